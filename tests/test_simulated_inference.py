"""Inference mode on simulated devices, which is what Lightning validates in: views, autocast, later training."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import simulate_cuda
from tests.helpers.training import Clean, make_loader, make_trainer

VIEWS = {
    "index": lambda t: t[:, :2],
    "view": lambda t: t.view(-1),
    "t": lambda t: t.t(),
    "chunk": lambda t: t.chunk(2)[0],
    "unbind": lambda t: t.unbind()[0],
    "expand": lambda t: t[None].expand(2, -1, -1),
    "detach": lambda t: t.detach(),
    "as_strided": lambda t: t.as_strided((2, 2), (1, 2)),
}


MORE_VIEWS = {
    **VIEWS,
    "none": lambda t: t[None],
    "int": lambda t: t[1],
    "narrow": lambda t: t.narrow(0, 1, 2),
    "split": lambda t: t.split([1, 3], 1)[1],
    "tensor_split": lambda t: t.tensor_split(3)[0],
    "reshape": lambda t: t.reshape(2, 8),
    "flatten": lambda t: t.flatten(),
    "T": lambda t: t.T,
    "nested": lambda t: t[None][:, 1:][..., None].transpose(0, 1).expand(-1, 1, 4, 1),
    "broadcast_to": lambda t: torch.broadcast_to(t, (2, 4, 4)),
    "dtype": lambda t: t.view(torch.int32),
    "list": lambda t: t[[0, 1]],
    "computed": lambda t: t * 2,
    "of what was computed": lambda t: (t * 2)[0],
    "outside again": torch.inference_mode(False)(lambda t: t[0]),
}


def made(kind, device):
    """A tensor of a kind, made outside of inference mode or, where it says so, inside."""
    with torch.inference_mode(kind.startswith("inside")):
        tensor = torch.arange(16.0).view(4, 4).clone().to(device)
        return nn.Parameter(tensor) if kind.endswith("parameter") else tensor


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
@pytest.mark.parametrize("kind", ["parameter", "buffer", "inside, parameter", "inside, buffer"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("name", MORE_VIEWS)
def test_results_are_inference_tensors_where_torchs_are(name, mode, kind, device):
    """A view, of the CPU or a device, has the kind, shape and values that plain torch gives it."""
    with mode():
        plain = MORE_VIEWS[name](made(kind, "cpu"))
    with simulate_cuda(devices=2):
        tensor = made(kind, device)
        with mode():
            view = MORE_VIEWS[name](tensor)
        assert str(view.device) == device
        assert (view.is_inference(), view.requires_grad) == (plain.is_inference(), plain.requires_grad)
        assert torch.equal(view.detach().cpu(), plain.detach())


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t[0].add_(1),
        lambda t: t[None][0, :, 0].mul_(2),
        lambda t: t.split(2)[1].zero_(),
        lambda t: t.view(-1)[3:].copy_(torch.ones(13)),
        lambda t: t.__setitem__((slice(None), 0), 5.0),
        lambda t: t.masked_fill_(t > 3, 0),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
@pytest.mark.parametrize("kind", ["parameter", "buffer", "inside, buffer"])
def test_writing_inside_reaches_the_tensor(write, device, kind):
    """Inference mode writes through views of the CPU's and a device's tensors what it writes in plain torch."""
    plain = made(kind, "cpu")
    with torch.inference_mode():
        write(plain)
    with simulate_cuda(devices=2):
        tensor = made(kind, device)
        with torch.inference_mode():
            write(tensor)
        assert torch.equal(tensor.detach().cpu(), plain.detach())


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_weights_made_before(name, values):
    """A view of a parameter or buffer that was made outside is one on its device, and no inference tensor."""
    with simulate_cuda(devices=2, values=values):
        weight = nn.Parameter(torch.ones(4, 4, device="cuda:1"))
        with torch.inference_mode():
            view = VIEWS[name](weight)
        assert str(view.device) == "cuda:1"
        assert not view.is_inference()


@torch.inference_mode()
def read(x):
    """What four ways to read give."""
    return [x.sum().item(), bool(x.sum() > 0), torch.allclose(x, x.clone()), torch.equal(x, x.clone())]


def test_reading_values_that_are_not_there():
    """Without values a read inside gets the stand-in that it gets outside, and tensors are taken for different."""
    with simulate_cuda(values=False):
        with pytest.warns(UserWarning, match="this simulation has no values"):
            given = read(torch.ones(3, device="cuda"))
        assert given == [1.0, False, False, False]


def test_reading_later_what_was_made_inside():
    """A result of validation is read after it, with values or without."""
    for values, read in ((True, 3.0), (False, 1.0)):
        with simulate_cuda(values=values), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.inference_mode():
                made = torch.ones(3, device="cuda").sum()
            assert made.item() == read


def test_what_is_made_inside_is_an_inference_tensor():
    """New tensors and views of them may not be used in training afterwards, as on a real device."""
    with simulate_cuda():
        weight = nn.Parameter(torch.ones(4, 4, device="cuda"))
        with torch.inference_mode():
            made = weight * 2
            view = made[0]
            cast = weight.to(torch.float64)
            same = weight.to(torch.float32)
        assert made.is_inference()
        assert view.is_inference()
        assert cast.is_inference()
        assert not same.is_inference()
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            weight * made


def test_in_place_updates_through_a_view_reach_the_buffer():
    """Writing through a view of a buffer inside changes the buffer, which trains on afterwards."""
    with simulate_cuda():
        buffer, weight = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda", requires_grad=True)
        with torch.inference_mode():
            buffer[:2].add_(3)
        (buffer * weight).sum().backward()
        assert weight.grad.tolist() == [3, 3, 0, 0]


MODULES = {
    "linear": (lambda: nn.Linear(4, 4), lambda x: x),
    "attention": (lambda: nn.MultiheadAttention(4, 2, batch_first=True), lambda x: (x, x, x)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True).eval(), lambda x: x),
    "gru": (lambda: nn.GRU(4, 3), lambda x: x),
    "normalised": (lambda: nn.Sequential(nn.BatchNorm1d(3), nn.InstanceNorm1d(3), nn.LayerNorm(4)), lambda x: x),
    "bag": (lambda: nn.EmbeddingBag(5, 3), lambda x: x[0].long().abs() % 5),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_give_the_cpus_values(name):
    """Layers compute in inference mode what they do on the CPU."""
    torch.manual_seed(0)
    make, take = MODULES[name]
    module, x = make(), torch.randn(2, 3, 4)
    results = []
    with simulate_cuda():
        for device in ("cpu", "cuda"):
            given = take(x.to(device))
            with torch.inference_mode():
                out = module.to(device)(*given if isinstance(given, tuple) else (given,))
            results.append((out[0] if isinstance(out, tuple) else out).cpu())
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: F.cross_entropy(x, y),
        lambda x, y: F.cross_entropy(x, y, weight=torch.ones(3, device="cuda"), label_smoothing=0.1),
        lambda x, y: F.nll_loss(x.log_softmax(1), y),
        lambda x, y: F.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"),
        lambda x, y: F.cosine_similarity(x, x),
        lambda x, y: F.scaled_dot_product_attention(*[x[None, None]] * 3),  # nothing is cast below what was
        lambda x, y: F.layer_norm(x, (3,)),
        lambda x, y: torch.einsum("ij,kj->ik", x, x),
        lambda x, y: x @ x.t(),
        lambda x, y: x.std(),
        lambda x, y: x.relu() + x.float(),
    ],
)
def test_autocast_casts_as_outside(call, low):
    """Autocast gives the same precision and values in inference mode as without gradients, losses in float32."""
    torch.manual_seed(0)
    results = []
    with simulate_cuda():
        logits, labels = torch.randn(4, 3, device="cuda"), torch.tensor([0, 1, 2, 0], device="cuda")
        for mode in (torch.no_grad, torch.inference_mode):
            with mode(), torch.autocast("cuda", low):
                results.append(call(logits.to(low), labels).cpu())
    assert results[0].dtype is results[1].dtype
    assert torch.equal(*results)


def test_autocast_that_is_on_already():
    """Autocast that was switched on before the simulation is on in it."""
    torch.set_autocast_enabled("cuda", True)
    try:
        with simulate_cuda(), torch.inference_mode():
            x = torch.randn(3, 3, device="cuda").half()
            assert F.cross_entropy(x, torch.tensor([0, 1, 2], device="cuda")).dtype is torch.float32
    finally:
        torch.set_autocast_enabled("cuda", False)


def test_autocast_that_is_off_inside_casts_nothing():
    """A block without autocast in one with it computes in the precision it is given."""
    with simulate_cuda(), torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        x = torch.randn(3, 3, device="cuda")
        with torch.autocast("cuda", enabled=False):
            assert F.linear(x, x).dtype is torch.float32
        assert F.linear(x, x).dtype is torch.bfloat16


class Positions(Clean):
    """Reads a part of its table of positions, and weighs its loss."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(16, 2))
        self.register_buffer("weights", torch.ones(2))

    def loss_of(self, batch):
        logits = self.net(batch)[:, :2] + self.positions[: len(batch)]
        labels = torch.zeros(len(batch), dtype=torch.long, device=self.device)
        return F.cross_entropy(logits, labels, weight=self.weights, label_smoothing=0.1)

    def training_step(self, batch, batch_idx):
        return self.loss_of(batch)

    def validation_step(self, batch, batch_idx):
        self.seen = self.loss_of(batch).dtype


@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_lightning_validates_and_trains_on(precision):
    """A Trainer validates between training steps on a model that views its parameters, in every precision."""
    torch.manual_seed(0)
    with simulate_cuda():
        model = Positions()
        trainer = make_trainer(accelerator="gpu", precision=precision, max_epochs=2, num_sanity_val_steps=1)
        trainer.fit(model, make_loader(), make_loader())
        assert trainer.global_step > 1
        assert model.seen is torch.float32
