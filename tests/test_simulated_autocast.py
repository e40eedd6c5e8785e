"""Autocast on simulated devices: CUDA's lists, nesting, the cache, GradScaler, and nothing left behind."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.compat import AUTOCAST_KEY, kernels_for
from lightning_devcheck._simulate.kernels.autocast import policies
from tests.helpers.training import Clean, make_loader, make_trainer

LOW = torch.bfloat16
FULL = torch.float32


@pytest.fixture
def cuda():
    """Two simulated devices, the second current."""
    with simulate_cuda(devices=2):
        torch.cuda.set_device(1)
        yield


def randn(*shape):
    """Random numbers on the device that want a gradient."""
    return torch.randn(*shape, device="cuda", requires_grad=True)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda low: randn(3, 3) @ randn(3, 3), LOW),
        (lambda low: nn.Linear(4, 2).cuda()(randn(3, 4)), LOW),
        (lambda low: nn.Conv2d(2, 2, 3).cuda()(randn(1, 2, 5, 5)), LOW),
        (lambda low: torch.einsum("ij,kj->ik", randn(3, 4), randn(2, 4)), LOW),
        (lambda low: F.scaled_dot_product_attention(*[randn(1, 2, 4, 4)] * 3), LOW),
        (lambda low: nn.MultiheadAttention(4, 2).cuda()(*[randn(3, 1, 4)] * 3)[0], LOW),
        (lambda low: nn.LSTM(4, 3).cuda()(randn(2, 1, 4))[0], LOW),
        (lambda low: nn.GRUCell(4, 3).cuda()(randn(2, 4)), LOW),
        (lambda low: F.gelu(randn(3, 3).to(low)), LOW),
        (lambda low: nn.LayerNorm(3).cuda()(randn(3, 3).to(low)), FULL),
        (lambda low: randn(3, 3).to(low).exp(), FULL),
        (lambda low: randn(3, 3).to(low).softmax(-1), FULL),
        (lambda low: randn(3, 3).to(low).sum(), FULL),
        (lambda low: randn(3, 3).to(low).sum(dtype=low), LOW),
        (lambda low: randn(3, 3).to(low).norm(), FULL),
        (lambda low: torch.norm(randn(3, 3).to(low), dim=1, keepdim=True), FULL),
        (lambda low: F.mse_loss(randn(3).to(low), randn(3).to(low)), FULL),
        (lambda low: F.cross_entropy(randn(2, 3).to(low), torch.tensor([0, 1], device="cuda")), FULL),
        (lambda low: torch.addcmul(randn(3), randn(3).to(low), randn(3)), FULL),
        (lambda low: torch.addcmul(*[randn(3).to(low)] * 3), LOW),
        (lambda low: torch.cat([randn(3), randn(3).to(low)]), FULL),
    ],
)
def test_each_list_casts_as_cudas_does(cuda, call, dtype, low):
    """Products run in the lower precision, losses and sums in float32, others in the widest of their arguments."""
    with torch.autocast("cuda", low):
        result = call(low)
    assert result.dtype is (low if dtype is LOW else dtype)
    result.float().sum().backward()


def test_the_lists_are_torchs_own():
    """The lists come from the installed torch, and every operator in them has an autocast kernel for CUDA there."""
    assert len(policies()) > 100
    assert policies()["linear"] == "lower"
    assert set(policies()) <= set(kernels_for(AUTOCAST_KEY))


def test_what_is_not_cast(cuda):
    """Doubles, whole numbers and tensors of the CPU keep their precision."""
    with torch.autocast("cuda", torch.bfloat16):
        assert (randn(2, 2).double() @ randn(2, 2).double()).dtype is torch.float64
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is FULL
        assert torch.arange(3, device="cuda").sum().dtype is torch.int64


def test_nesting_and_switching_off(cuda):
    """An inner block decides for itself, and hands back."""
    assert torch.get_autocast_dtype("cuda") is torch.float16
    with torch.autocast("cuda", torch.bfloat16):
        with torch.autocast("cuda", enabled=False):
            assert (randn(2, 2) @ randn(2, 2)).dtype is FULL
            with torch.autocast("cuda", torch.float16):
                assert (randn(2, 2) @ randn(2, 2)).dtype is torch.float16
        assert torch.get_autocast_dtype("cuda") is (randn(2, 2) @ randn(2, 2)).dtype is torch.bfloat16
    assert (randn(2, 2) @ randn(2, 2)).dtype is FULL


def test_unsafe_loss_is_refused(cuda):
    """Binary cross-entropy of probabilities is refused in torch's words, the one of logits is not."""
    with torch.autocast("cuda"):
        F.binary_cross_entropy_with_logits(randn(3), torch.ones(3, device="cuda"))
        with pytest.raises(RuntimeError, match="BCELoss are unsafe to autocast"):
            F.binary_cross_entropy(randn(3).sigmoid(), torch.ones(3, device="cuda"))


class Shared(nn.Module):
    """Uses one weight several times: its gradients add up before or after the cast."""

    def __init__(self):
        super().__init__()
        self.encode, self.turn, self.decode = nn.Conv1d(3, 8, 3, padding=1), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.encode(x).transpose(1, 2)
        for _ in range(3):
            hidden = F.relu(self.turn(hidden))
        return self.decode(hidden)


def step(model, inputs, device, **options):
    """One step under autocast; the loss and the weights after it, on the CPU."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torch.autocast(device, torch.bfloat16, **options):
        loss = F.mse_loss(model(inputs), torch.zeros(2, 5, 3, device=inputs.device))
    loss.backward()
    optimizer.step()
    return [loss.detach().cpu(), *(parameter.detach().cpu() for parameter in model.parameters())]


@pytest.mark.parametrize("cache_enabled", [True, False])
def test_a_step_equals_the_cpus(cuda, cache_enabled):
    """Where the lists of CUDA and the CPU coincide, a step gives the same bits, with the cache of casts and without."""
    model, inputs = Shared(), torch.randn(2, 3, 5)
    expected = step(copy.deepcopy(model), inputs, "cpu", cache_enabled=cache_enabled)
    found = step(model.cuda(), inputs.cuda(), "cuda", cache_enabled=cache_enabled)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_casts_are_not_kept_after_the_block(cuda):
    """A weight that changed between two blocks is cast anew."""
    layer, inputs = nn.Linear(2, 2, bias=False).cuda(), torch.eye(2, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        layer(inputs)
    with torch.no_grad():
        layer.weight.fill_(3.0)
    with torch.autocast("cuda", torch.bfloat16):
        assert layer(inputs).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_custom_functions_choose_their_precision(cuda):
    """``custom_fwd`` and ``custom_bwd`` cast for a Function and bring its backward the same state."""
    seen = []

    class Times(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            seen.append((x.dtype, torch.is_autocast_enabled("cuda")))
            return x @ weight

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            seen.append((grad.dtype, torch.is_autocast_enabled("cuda")))
            return grad @ weight.T, x.T @ grad

    with torch.autocast("cuda"):
        out = Times.apply(randn(2, 2).half(), randn(2, 2).half())
    out.sum().backward()
    assert seen == [(FULL, False), (FULL, False)]


def test_grad_scaler_skips_a_step_with_inf(cuda):
    """A gradient that is too large skips the step and halves the scale; the next step is taken."""
    layer = nn.Linear(1, 1, bias=False).cuda()
    optimizer, scaler = torch.optim.SGD(layer.parameters(), 0.1), torch.amp.GradScaler("cuda", init_scale=1024.0)
    taken = []
    for value in (60000.0, 1.0):
        before = layer.weight.item()
        with torch.autocast("cuda", torch.float16):
            loss = layer(torch.full((1, 1), value, device="cuda")).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        taken.append(layer.weight.item() != before)
    assert taken == [False, True]
    assert scaler.get_scale() == 512.0


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)])
def test_a_trainer_trains_in_mixed_precision(cuda, precision, dtype):
    """Under Lightning's mixed precision the network's output has the lower one, and it learns."""
    seen = []

    class Watched(Clean):
        def training_step(self, batch, batch_idx):
            out = self.net(batch)
            seen.append(out.dtype)
            return F.mse_loss(out, batch)

    model = Watched()
    before = model.net[-1].weight.detach().clone()
    make_trainer(accelerator="gpu", devices=[1], precision=precision).fit(model, make_loader())
    assert set(seen) == {dtype}
    assert not torch.equal(before, model.net[-1].weight.cpu())


def test_torchs_own_kernels_come_back():
    """After a simulation torch has the kernels that it had, and autocast on the CPU works as before."""
    before = sorted(kernels_for(AUTOCAST_KEY))
    with simulate_cuda():
        pass
    assert sorted(kernels_for(AUTOCAST_KEY)) == before
    with torch.autocast("cpu", torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16


def made_without_gradients(layer, x):
    with torch.no_grad():
        first = layer(x)
    return first, layer(x)


def made_in_inference_mode(layer, x):
    with torch.inference_mode():
        first = layer(x)
    return first, layer(x)


def kept_for_validation(layer, x):
    first = layer(x)
    with torch.no_grad():
        return first, layer(x), layer(x)


def without_a_cache_between(layer, x):
    first = layer(x)
    with torch.autocast(x.device.type, LOW, cache_enabled=False):
        with torch.no_grad():
            layer.weight.add_(1)
        second = layer(x)
    return first, second, layer(x)


def changed_in_place(layer, x):
    first = layer(x)
    with torch.no_grad():
        layer.weight.add_(1)
    return first, layer(x)


def cleared(layer, x):
    first = layer(x)
    with torch.no_grad():
        layer.weight.add_(1)
    torch.clear_autocast_cache()
    return first, layer(x)


def frozen_and_thawed(layer, x):
    results = []
    for wanted in (False, True, False, True):
        layer.requires_grad_(wanted)
        results.append(layer(x))
    return results


def replaced(layer, x):
    first = layer(x)
    layer.weight = nn.Parameter(torch.zeros(3, 3, device=x.device))
    return first, layer(x)


def checkpointed(layer, x):
    out = checkpoint(layer, x.requires_grad_(), use_reentrant=True)
    return out, layer(x)


CACHES = (made_without_gradients, made_in_inference_mode, kept_for_validation, without_a_cache_between)
CACHES += (changed_in_place, cleared, frozen_and_thawed, replaced, checkpointed)


@pytest.mark.parametrize("use", CACHES)
def test_the_cache_is_the_cpus(use):
    """What autocast keeps of a weight, and whether it has a graph, is what the installed torch keeps on the CPU."""
    results = []
    with simulate_cuda():
        for device in ("cpu", "cuda"):
            torch.manual_seed(0)
            layer, x = nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
            with torch.autocast(device, LOW):
                outs = use(layer, x)
            graphs = [None if out.grad_fn is None else out.grad_fn.name() for out in outs]
            values = [out.float().tolist() for out in outs]
            total = sum(out.float().sum() for out in outs)
            if total.requires_grad:
                total.backward()
            gradient = None if layer.weight.grad is None else layer.weight.grad.tolist()
            results.append((graphs, values, gradient, [out.is_inference() for out in outs]))
    assert results[1] == results[0]


def test_validation_inside_a_training_step_keeps_the_graph(cuda):
    """Torch from 2.11 on keeps no cast that was made without gradients; before, the loss has no graph, as on CUDA."""
    layer, x = nn.Linear(3, 3).cuda(), torch.ones(2, 3, device="cuda")
    with torch.autocast("cuda", LOW):
        _, second = made_without_gradients(layer, x)
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert second.requires_grad is (release >= (2, 11))
