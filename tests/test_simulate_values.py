"""Simulated devices without values: models larger than memory, stand-ins for what is read, notes about them."""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import warnings

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import preflight, simulate_cuda
from tests.helpers.training import Clean, make_loader, make_trainer


@pytest.fixture
def shapes():
    """Two simulated devices without values, the second current; stand-ins are not warned of."""
    with simulate_cuda(devices=2, values=False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="this simulation has no values")
        torch.cuda.set_device(1)
        yield


def peak_gib():
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@pytest.mark.parametrize("where", ["cpu", "cuda:1"])
def test_a_model_larger_than_memory_trains(shapes, where):
    """A model of 160 GB, built on the CPU or on a device, does a step of AdamW and takes no memory."""
    before = peak_gib()
    with torch.device(where):
        model = nn.Sequential(nn.Linear(100_000, 200_000), nn.ReLU(), nn.Linear(200_000, 100_000))
    model.to("cuda:1")
    optimizer = torch.optim.AdamW(model.parameters())
    F.mse_loss(model(torch.randn(8, 100_000).cuda()), torch.zeros(8, 100_000, device="cuda")).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert optimizer.state[model[0].weight]["exp_avg"].device == torch.device("cuda", 1)
    assert peak_gib() - before < 0.5


def test_mixing_devices_is_refused_all_the_same(shapes):
    """Devices are followed as with values."""
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:1 and cpu"):
        nn.Linear(4, 4).cuda()(torch.ones(2, 4, device="cuda")) + torch.ones(2, 4)


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (lambda x: x.sum().item(), 1.0),
        (lambda x: float(x.mean()), 1.0),
        (lambda x: bool(x.sum() > 3), False),
        (lambda x: x.argmax().item(), 1),
        (lambda x: x[0].tolist(), [1.0] * 4),
        (lambda x: x.cpu().numpy().shape, (3, 4)),
        (lambda x: torch.equal(x, x), False),
        (lambda x: (x > 0).nonzero().shape, (12, 2)),
        (lambda x: x[x > 0].shape, (12,)),
        (lambda x: torch.masked_select(x, x > 0).shape, (12,)),
        (lambda x: x.unique().shape, (12,)),
        (lambda x: torch.unique(x, dim=0, return_inverse=True)[1].shape, (3,)),
        (lambda x: torch.repeat_interleave(x.long().flatten()).shape, (12,)),
        (lambda x: torch.bincount(x.long().flatten()).shape, (2,)),
        (lambda x: f"{x.sum():.2f}", "1.00"),
    ],
)
def test_reading_gives_a_stand_in_and_warns_with_the_line(read, given):
    """What is read of unknown values is made up: 1, False, everything; the line is named once."""
    with simulate_cuda(values=False):
        tensor = torch.randn(3, 4, device="cuda")
        with pytest.warns(UserWarning, match=r"^this simulation has no values: `\(lambda x: .*` was given") as caught:
            assert [read(tensor) for _ in range(2)] == [given, given]
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_known_whole_numbers_are_read_without_a_stand_in(shapes):
    """Token ids, masks and lengths from the data keep their values on the device, and decide shapes."""
    ids = torch.tensor([[5, 7, 2], [9, 2, 2]]).cuda()
    lengths = (ids != 2).sum(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (lengths.tolist(), ids.max().item()) == ([2, 1], 9)
        hidden = nn.Embedding(10, 4).cuda()(ids)
        assert hidden[ids != 2].shape == (3, 4)
        assert nn.utils.rnn.pack_padded_sequence(hidden, lengths.cpu(), batch_first=True).data.shape == (3, 4)


def test_unknown_values_spread_by_writing(shapes):
    """A known tensor into which an unknown value was written is unknown, its views too."""
    counts = torch.zeros(3, dtype=torch.long, device="cuda")
    counts[0] = torch.randn(4, device="cuda").argmax()
    assert counts[1:].tolist() == [1, 1]


def test_small_cpu_tensors_keep_their_values(shapes):
    """What a script computes on the CPU is right: schedules, seeds, permutations."""
    assert torch.arange(4.0).cumsum(0).tolist() == [0.0, 1.0, 3.0, 6.0]
    assert sorted(torch.randperm(4).tolist()) == [0, 1, 2, 3]
    batches = torch.utils.data.DataLoader(torch.arange(6.0), batch_size=3, shuffle=True)
    assert sorted(torch.cat(list(batches)).tolist()) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_copy_on_the_cpu_stays_without_values(shapes):
    """A device tensor copied to the CPU is a CPU tensor, mixes with those, and survives copying and pickling."""
    copied = torch.randn(3, 4, device="cuda").cpu()
    assert (copied.device.type, copied.is_cuda, repr(copied)) == ("cpu", False, "tensor(..., size=(3, 4))")
    assert (copied + torch.ones(4)).shape == pickle.loads(pickle.dumps(copied)).shape == (3, 4)
    assert copied.sum().cuda().device == torch.device("cuda", 1)
    assert (torch.ones(2, device="cuda") * copied.sum()).is_cuda  # a 0-dim CPU tensor may join


def test_meta_tensors_stay_torchs_own(shapes):
    """The meta device asked for by name is torch's."""
    assert torch.empty(2, device="meta").is_meta
    assert repr(torch.ones(2, device="cuda")) == "tensor(..., device='cuda:1', size=(2,))"


@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_a_trainer_fits(precision):
    """An unmodified Trainer runs all its steps, GradScaler's included: its look for inf finds none."""
    with simulate_cuda(values=False):
        model = Clean()
        stepped = []
        model.on_before_zero_grad = lambda optimizer: stepped.append(len(optimizer.state))
        trainer = make_trainer(accelerator="gpu", devices=[1], precision=precision)
        trainer.fit(model, make_loader())
        assert trainer.global_step == 3
        assert stepped[-1] == len(list(model.parameters()))


class Curious(Clean):
    """Looks at its loss."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        if loss > 10:
            loss = 0.1 * loss
        return loss


def test_preflight_notes_what_was_made_up():
    """The report names the line, what it reads and what it was given; it stays ok."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = preflight(Curious, make_loader(), values=False)
    (note,) = [finding for finding in report.findings if finding.rule == "made-up-value"]
    assert report.ok
    assert note.what == "loss has no value in this run; the line was given False"
    assert note.used.line == "if loss > 10:"


class Scaled(pl.LightningModule):
    """A large layer and a scale, which Lightning moves where it is a buffer."""

    def __init__(self, clean):
        super().__init__()
        self.net = nn.Linear(4, 100_000)
        if clean:
            self.register_buffer("scale", torch.ones(100_000))
        else:
            self.scale = torch.ones(100_000)

    def training_step(self, batch, batch_idx):
        return (self.net(batch) * self.scale).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_preflight_finds_mistakes_without_values(strategy):
    """A mistake is found as with values, by one process and by two."""
    report = preflight(lambda: Scaled(clean=False), make_loader(4), values=False, strategy=strategy)
    assert {finding.rule for finding in report.errors} == {"mixed-devices"}
    assert preflight(lambda: Scaled(clean=True), make_loader(4), values=False, strategy=strategy).findings == ()


def test_run_without_values(tmp_path):
    """``lightning-devcheck run --no-values`` runs a script whose model would take 160 GB."""
    script = tmp_path / "train.py"
    script.write_text(
        "import pytorch_lightning as pl, torch\n"
        "class Large(pl.LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.net = torch.nn.Linear(100_000, 400_000)\n"
        "    def training_step(self, batch, batch_idx):\n"
        "        loss = self.net(batch).mean()\n"
        "        print(loss.item())\n"
        "        return loss\n"
        "    def configure_optimizers(self):\n"
        "        return torch.optim.Adam(self.parameters())\n"
        "loader = torch.utils.data.DataLoader(torch.zeros(4, 100_000), batch_size=2)\n"
        "pl.Trainer(accelerator='gpu', devices=1, max_epochs=1).fit(Large(), loader)\n"
    )
    command = [sys.executable, "-m", "lightning_devcheck", "run", "--no-values", "--format", "json", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr[-2000:]
    (note,) = [found for found in json.loads(result.stdout)["findings"] if found["rule"] == "made-up-value"]
    assert note["what"] == "loss has no value in this run; the line was given 1.0"
