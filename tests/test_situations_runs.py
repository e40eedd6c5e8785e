"""Runs around the training step: averaged weights, resuming, validation, several fits, the tuner; clean and wrong."""

from __future__ import annotations

import inspect
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from pytorch_lightning import callbacks as lightning_callbacks
from pytorch_lightning.callbacks import BatchSizeFinder, LearningRateFinder
from pytorch_lightning.tuner import Tuner

from lightning_devcheck import DeviceCheck, DeviceMismatchError, simulate_cuda
from tests.helpers.mistakes import CpuLoss
from tests.helpers.situations import Situation, fit
from tests.helpers.training import Clean, make_loader, make_trainer

KEPT_TEXT = r"self.balance\[0\] is an nn.Parameter in the loss that the module does not register"


class Tuned(Situation):
    """A model with a learning rate and a batch size to find."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.lr, self.batch_size = 0.01, 2

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=self.batch_size)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


@pytest.mark.skipif(not hasattr(lightning_callbacks, "EMAWeightAveraging"), reason="Lightning has it from 2.6 on")
def test_averaged_weights():
    """Averaged copies of the weights, kept elsewhere, are no mistake; a loss that is elsewhere is one all the same."""

    def train(model):
        check = DeviceCheck(every_n_steps=1)
        callbacks = [lightning_callbacks.EMAWeightAveraging(device="cpu"), check]
        make_trainer(accelerator="gpu", devices=[1], callbacks=callbacks).fit(model, make_loader(4))
        return check.report

    with simulate_cuda(devices=2):
        assert train(Clean()).findings == ()
        with pytest.raises(DeviceMismatchError, match="the loss is on cpu, the model is on cuda:1"):
            train(CpuLoss())


@pytest.mark.parametrize("mistake", [False, True], ids=["clean", "mistake"])
def test_resume(tmp_path, mistake):
    """A run that goes on from a checkpoint is checked from its first batch on; the callback itself saves nothing."""
    trainer = make_trainer(callbacks=DeviceCheck())
    trainer.fit(Situation(mistake=False), make_loader(2))
    path = tmp_path / "run.ckpt"
    trainer.save_checkpoint(path)
    assert "DeviceCheck" not in str(torch.load(path, weights_only=True)["callbacks"])
    check = DeviceCheck()
    trainer = make_trainer(callbacks=check, max_epochs=2)
    if mistake:
        with pytest.raises(DeviceMismatchError, match=KEPT_TEXT + r".*\(step 2\)"):
            trainer.fit(Situation(mistake=True), make_loader(2), ckpt_path=path)
    else:
        trainer.fit(Situation(mistake=False), make_loader(2), ckpt_path=path)
        assert check.report.findings == ()
        assert check.report.checked["steps"] == 2


def test_a_checkpoint_of_another_version(tmp_path):
    """What another version saved under the callback's name is no obstacle, and is read with weights_only."""
    trainer = make_trainer(callbacks=DeviceCheck())
    trainer.fit(Clean(), make_loader(2))
    path = tmp_path / "run.ckpt"
    trainer.save_checkpoint(path)
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["callbacks"]["DeviceCheck"] = {"checked": {"steps": 7}, "format": 99}
    torch.save(checkpoint, path)
    check = DeviceCheck()
    trainer = make_trainer(callbacks=check, max_epochs=2)
    # Lightning has the argument from 2.6 on
    only = {"weights_only": True} if "weights_only" in inspect.signature(trainer.fit).parameters else {}
    trainer.fit(Clean(), make_loader(2), ckpt_path=path, **only)
    assert check.report.checked["steps"] == 2


class Staged(Clean):
    """A model that may mix devices outside of training."""

    mistake = False

    def validation_step(self, batch, batch_idx):
        offset = torch.zeros(2, 4)  # BUG
        return F.mse_loss(self.net(batch) + (offset if self.mistake else 0), batch)

    test_step = predict_step = validation_step


def run_stage(stage, model):
    """Run one stage on a simulated device; its report."""
    check = DeviceCheck()
    trainer = make_trainer(accelerator="gpu", devices=[1], callbacks=check)
    getattr(trainer, stage)(model, make_loader(2))
    return check.report


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_other_stages(stage):
    """Outside of fit a clean model is quiet, and a device error of torch gets its report as a note."""
    model = Staged()
    with simulate_cuda(devices=2):
        assert run_stage(stage, model).findings == ()
        model.mistake = True
        with pytest.raises(RuntimeError) as info:
            run_stage(stage, model)
    said = "".join(info.value.__notes__)
    assert "offset" in said
    assert "# BUG" in said


def test_a_report_is_printed_where_notes_are_not_shown(monkeypatch, capfd):
    """A package that shows tracebacks without their notes, as ``pretty_errors`` does, hides no report."""

    def excepthook(kind, error, trace):
        """Show an exception."""

    excepthook.__module__ = "pretty_errors"
    monkeypatch.setattr(sys, "excepthook", excepthook)
    model = Staged()
    model.mistake = True
    with simulate_cuda(devices=2), pytest.raises(RuntimeError, match="same device"):
        run_stage("validate", model)
    assert "Fix (not tried): offset = torch.zeros(2, 4, device=self.device)" in capfd.readouterr().err


def test_several_fits():
    """Each fit of one Trainer is checked from its own first batch: a mistake that the second one brings is found."""
    check = DeviceCheck()
    trainer = make_trainer(callbacks=check)
    trainer.fit(Situation(mistake=False), make_loader(4))
    trainer.fit_loop.max_epochs = 2
    with pytest.raises(DeviceMismatchError, match=KEPT_TEXT):
        trainer.fit(Situation(mistake=True), make_loader(4))
    assert len(check.report.findings) == 1


def find_rate(model, check, folder):
    finder = LearningRateFinder(num_training_steps=4, update_attr=False)
    make_trainer(callbacks=[finder, check], default_root_dir=folder).fit(model)


def find_batch_size(model, check, folder):
    finder = BatchSizeFinder(max_trials=2, steps_per_trial=2)
    make_trainer(callbacks=[finder, check], default_root_dir=folder).fit(model)


def tune(model, check, folder):
    trainer = make_trainer(callbacks=check, default_root_dir=folder)
    Tuner(trainer).lr_find(model, num_training=4, update_attr=False)
    trainer.fit(model)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.parametrize("search", [find_rate, find_batch_size, tune], ids=lambda search: search.__name__)
def test_the_tuner(search, tmp_path):
    """The tuner, whose trial runs Lightning makes without callbacks, is quiet; the fit after it is checked."""
    check = DeviceCheck()
    search(Tuned(mistake=False), check, tmp_path)
    assert check.report.findings == ()
    assert check.report.checked["steps"] >= 2
    with pytest.raises(DeviceMismatchError, match=KEPT_TEXT):
        search(Tuned(mistake=True), DeviceCheck(), tmp_path)


class Whole(Situation):
    """A model that is compiled as a whole, so its training step too."""


class Part(Situation):
    """A compiled sub-module."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.net = torch.compile(self.net, backend="aot_eager")


class Step(Situation):
    """A compiled part of the step."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.loss_of = torch.compile(self._loss_of, backend="aot_eager")

    def _loss_of(self, batch):
        return F.mse_loss(self.net(batch), batch)

    def training_step(self, batch, batch_idx):
        return self.weigh(self.loss_of(batch))


def compiled(kind, mistake):
    model = kind(mistake)
    return torch.compile(model, backend="aot_eager") if kind is Whole else model


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("kind", [Whole, Part, Step], ids=lambda kind: kind.__name__)
def test_compiled(kind):
    """Compiled models: the clean one is quiet, the mistake is named outside compiled regions and inside."""
    torch._dynamo.reset()
    assert fit(compiled(kind, mistake=False)).findings == ()
    torch._dynamo.reset()
    with pytest.raises(DeviceMismatchError, match=KEPT_TEXT):
        fit(compiled(kind, mistake=True))


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("kind", [Whole, Part, Step], ids=lambda kind: kind.__name__)
def test_no_compilation_and_no_graph_break_more(kind):
    """With the check a model is compiled as often, with as many graph breaks, as without."""

    def count(callbacks):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make_trainer(callbacks=callbacks).fit(compiled(kind, mistake=False), make_loader(6))
        counters = torch._dynamo.utils.counters
        return counters["stats"]["unique_graphs"], dict(counters["graph_break"]), dict(counters["recompile_limit"])

    without, with_check = count([]), count([DeviceCheck(every_n_steps=2)])
    assert without == with_check
    if torch.__version__ < "2.7" and not without[0]:
        pytest.skip("torch 2.6 may compile nothing more once code was compiled inside a simulation")
    assert without[0] > 0
