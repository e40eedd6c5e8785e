"""`preflight`: a real Trainer on simulated devices, all findings, and the caller's model left alone."""

from __future__ import annotations

import faulthandler
import multiprocessing
import re
import threading

import lightning.pytorch
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import preflight
from tests.helpers.mistakes import CLEAN, CpuLoss, FrozenTeacher, LeafAttribute, LossOnFirstDevice, ParametersInList
from tests.helpers.source import is_marked
from tests.helpers.training import Clean, make_loader


def rules(report):
    return {(finding.rule, finding.name) for finding in report.findings if finding.severity != "note"}


@pytest.mark.parametrize("model", CLEAN, ids=lambda model: model.__name__)
def test_clean_models_pass(model):
    """As a test in a user's project: assert preflight(Model(), loader).ok."""
    assert preflight(model, make_loader()).ok


@pytest.mark.parametrize("model", [CpuLoss, LeafAttribute, LossOnFirstDevice, ParametersInList])
def test_silent_mistakes_are_found(model):
    """Mistakes that torch lets through are found, a written-out cuda:0 with one process too."""
    assert rules(preflight(model, make_loader())) >= model.expected


def test_an_error_of_torch_becomes_a_finding():
    """A device error in forward is a finding with the culprit's name and line."""

    class Mixed(Clean):
        def training_step(self, batch, batch_idx):
            offset = torch.zeros(2, 4)  # BUG
            return F.mse_loss(self.net(batch) + offset, batch)

    report = preflight(Mixed, make_loader())
    assert ("mixed-devices", "offset") in rules(report)
    assert any(is_marked(f.origin) for f in report.findings)


def test_what_init_does_is_seen():
    """A callable is called inside the simulation: .cuda() in __init__ works and cuda:0 shows."""

    class Eager(Clean):
        def __init__(self):
            super().__init__()
            self.table = torch.ones(4).cuda(0)

        def training_step(self, batch, batch_idx):
            return F.mse_loss(self.net(batch) * self.table, batch)

    assert ("wrong-rank-device", "self.table") in rules(preflight(Eager, make_loader()))


def test_other_exceptions_are_raised_as_they_are():
    """An exception that was not recognized as a device error is the caller's."""

    class Broken(Clean):
        def training_step(self, batch, batch_idx):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        preflight(Broken, make_loader())


def test_the_callers_model_is_left_alone():
    """A model that is handed over keeps its weights, device and mode."""
    model = Clean()
    model.net[3].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert preflight(model, make_loader()).ok
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert type(model.net[0].weight) is nn.Parameter
    assert not model.net[3].training


def test_steps_and_validation():
    """It trains and validates as many steps as asked for."""
    seen = []

    class Counted(Clean):
        def training_step(self, batch, batch_idx):
            seen.append("train")
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            seen.append("validate")

        def val_dataloader(self):
            return make_loader(9)

    assert preflight(Counted, make_loader(9), steps=3).ok
    assert (seen.count("train"), seen.count("validate")) == (3, 3)


def test_an_iterable_of_batches():
    """Data may be any iterable of batches."""
    assert preflight(Clean, (torch.randn(2, 4) for _ in range(3))).ok


def test_the_other_namespace():
    """A module of the lightning package runs in that package's Trainer."""

    class Model(lightning.pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)

        def training_step(self, batch, batch_idx):
            return self.net(batch).mean().cpu()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    assert rules(preflight(Model, make_loader())) == {("loss-device", "loss")}


@pytest.mark.ddp
@pytest.mark.parametrize("strategy", ["ddp", "ddp_fork"])
def test_ranks(strategy):
    """With a strategy of several processes every rank's findings come back, with its rank."""
    report = preflight(LossOnFirstDevice, make_loader(8), strategy=strategy)
    assert [(f.rule, f.global_rank) for f in report.findings][:1] == [("wrong-rank-device", 1)]
    assert report.world_size == 2
    assert preflight(FrozenTeacher, make_loader(8), strategy=strategy).ok


@pytest.mark.ddp
def test_ranks_under_a_timer_of_the_fault_handler():
    """A process whose fault handler waits for a time, as pytest's ``faulthandler_timeout`` has it, can start ranks."""
    faulthandler.dump_traceback_later(600)
    try:
        assert preflight(Clean, make_loader(8), strategy="ddp", timeout_s=60).ok
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.mark.ddp
def test_a_rank_that_hangs_is_named_with_its_line():
    """When time is up all ranks are ended, and the one that hangs is named first, with the line where it is."""

    class Hanging(Clean):
        def training_step(self, batch, batch_idx):
            if self.global_rank == 1:
                threading.Event().wait()  # BUG
            return super().training_step(batch, batch_idx)

    with pytest.raises(TimeoutError) as info:
        preflight(Hanging, make_loader(8), strategy="ddp", timeout_s=6)
    first, hanging, waiting = str(info.value).split("\n")
    assert first == "2 of 2 ranks did not end within 6 s; all were ended."
    assert re.fullmatch(r"  rank 1 was at .*test_preflight.py:\d+  threading.Event\(\).wait\(\)  # BUG", hanging)
    assert re.fullmatch(r"  rank 0 was in \w+, .*:\d+ \(it may wait for another rank\)", waiting)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_trainer_arguments_pass_through(precision):
    """Further arguments go to the Trainer."""
    assert preflight(Clean, make_loader(), precision=precision).ok


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"model": nn.Linear(1, 1)},
            TypeError,
            "a LightningModule, or a callable that makes one, is needed; this is a Lin",
        ),
        ({"model": "Model"}, TypeError, "a LightningModule, or a callable that makes one, is needed; this is a str"),
        ({"steps": 0}, ValueError, r"preflight\(steps=0\): the number of steps is an integer of at least 1"),
        ({"timeout_s": 0}, ValueError, r"preflight\(timeout_s=0\): the time limit is a number of seconds above 0"),
        ({"devices": 0}, ValueError, r"devices=0\): the number of devices is an integer of at least 1"),
    ],
    ids=["module", "string", "steps", "time", "devices"],
)
def test_wrong_arguments(arguments, error, message):
    """A wrong argument is named with its value and what is needed."""
    with pytest.raises(error, match=message):
        preflight(**{"model": Clean, "data": make_loader(), **arguments})
