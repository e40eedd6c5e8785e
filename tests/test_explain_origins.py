"""Where a culprit comes from, where no assignment of the failing function says so."""

from __future__ import annotations

import functools

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import preflight
from tests.helpers.failing import explained
from tests.helpers.source import is_marked


@functools.cache
def table(length):
    """A table that is made once."""
    return torch.hann_window(length)  # MADE


class Windowed(nn.Module):
    """A module with a cached property."""

    @functools.cached_property
    def window(self):
        """A window that is made once."""
        return torch.hann_window(4)  # MADE

    def forward(self, x):
        """Multiply by the window."""
        return x * self.window


def test_what_a_cached_function_returns():
    """The line in the cached function is the one that made it, not the call."""

    def step(x):
        weights = table(4)
        return x * weights

    finding = explained(step)
    assert (finding.name, finding.origin.line) == ("weights", "return torch.hann_window(length)  # MADE")


def test_cached_property():
    """A cached property is an attribute; the line in its function made it."""
    module = Windowed()
    finding = explained(module, module)
    assert (finding.name, finding.origin.line) == ("self.window", "return torch.hann_window(4)  # MADE")
    assert finding.fix == "return torch.hann_window(4, device=self.device)"


class Model(pl.LightningModule):
    """A model of two layers."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(8, 8)
        self.net = nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        """Regress to the batch's own target."""
        return F.mse_loss(self.net(self.enc(batch["x"])), batch["y"])

    def configure_optimizers(self):
        """Adam, whose state has two tensors for each parameter."""
        return torch.optim.Adam(self.parameters(), lr=0.1)


class MovedByHand(Model):
    """A part of the model is put on the CPU."""

    def on_train_start(self):
        """Move the encoder."""
        self.enc.cpu()  # BUG


class HalfMoved(Model):
    """The batch is moved by the model itself, in part."""

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        """Move the input only."""
        return {**batch, "x": batch["x"].to(device)}  # BUG


class WhollyMoved(Model):
    """Lightning's own way, called by the model's: not the line to change."""

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        """Do what Lightning does."""
        return super().transfer_batch_to_device(batch, device, dataloader_idx)


class Named:
    """A batch that Lightning cannot move."""

    def __init__(self):
        self.x, self.y = torch.randn(4, 8), torch.randn(4, 1)

    def __getitem__(self, key):
        """The tensors by name."""
        return {"x": self.x, "y": self.y}[key]


class StateMoved(Model):
    """The optimizer's state is put on the CPU after the first step."""

    def on_train_batch_start(self, batch, batch_idx):
        """Move one of the two tensors of each parameter."""
        for state in self.optimizers().optimizer.state.values():
            state["exp_avg"] = state["exp_avg"].cpu()


class StateOfTheLeftBehind(Model):
    """Lightning moves the optimizer's state, and not the layer in a dict that it belongs to."""

    def __init__(self):
        super().__init__()
        self.layers = {"first": nn.Linear(8, 1)}  # BUG

    def training_step(self, batch, batch_idx):
        """Train the layer in the dict."""
        return (self.layers["first"](batch["x"]) - batch["y"]).square().mean()

    def configure_optimizers(self):
        """Make an optimizer that makes its state at once."""
        return torch.optim.Adagrad(self.layers["first"].parameters())


def report_of(model):
    return preflight(model, [{"x": torch.randn(4, 8), "y": torch.randn(4, 1)}] * 2)


def test_module_moved_by_hand():
    """The line that moves a part of the model is the origin, not the one that made it."""
    finding = report_of(MovedByHand).errors[0]
    assert (finding.rule, finding.name) == ("parameter-device", "self.enc.weight")
    assert finding.origin.line == "self.enc.cpu()  # BUG"
    assert finding.why.startswith("This line moves the module, in place")
    assert finding.fix.endswith('DeviceCheck(allow=["enc.weight*"])')


def test_batch_that_the_model_moves_itself():
    """The model's own transfer_batch_to_device is shown, with what to write in it."""
    finding = report_of(HalfMoved).errors[0]
    assert (finding.rule, finding.name) == ("batch-device", 'batch["y"]')
    assert is_marked(finding.origin)
    assert finding.why == "The module's own transfer_batch_to_device returns it where it was."
    assert "super().transfer_batch_to_device(batch, device, dataloader_idx)" in finding.fix


def test_optimizer_state_is_told_once():
    """State that was moved is one finding, by its parameter, though the check and the exception both see it."""
    errors = report_of(StateMoved).errors
    assert {finding.rule for finding in errors} == {"optimizer-device"}
    assert len({finding.name for finding in errors}) == len(errors)


def test_state_of_what_is_left_behind_is_not_told():
    """State is where training is: the parameter that was left behind is the one mistake."""
    (finding,) = report_of(StateOfTheLeftBehind).errors
    assert (finding.rule, finding.name) == ("unregistered-parameter", 'self.layers["first"].weight')
    assert is_marked(finding.origin)


def test_batch_that_lightning_moves_for_the_model():
    """Where the model's own way calls Lightning's, the batch's class is to blame and no line of the model."""
    finding = preflight(WhollyMoved, [Named(), Named()]).errors[0]
    assert finding.origin is None or "transfer_batch_to_device" not in finding.origin.line
    assert finding.why.startswith("Lightning moves tensors, lists")


@pytest.mark.parametrize("model", [Model, WhollyMoved])
def test_clean_models_are_quiet(model):
    """The same model without the mistake, and one that calls Lightning's own way, have no finding."""
    assert report_of(model).findings == ()


class TwoDevices(Model):
    """A part of the model is put on the other device, and meets the batch first."""

    def on_fit_start(self):
        """Move the encoder."""
        self.enc.to("cuda:0")  # BUG


def test_one_failure_is_one_finding():
    """A failure in the run is explained where it happened, and not once more after Lightning has moved the module."""
    (error,) = report_of(TwoDevices).errors
    assert (error.rule, error.name) == ("wrong-rank-device", "self.enc.weight")
    assert (error.device, error.expected, error.origin.line) == ("cuda:0", "cuda:1", 'self.enc.to("cuda:0")  # BUG')


class AddsLater(Model):
    """The model's own hook adds to the batch when the rest has been moved."""

    def on_after_batch_transfer(self, batch, dataloader_idx):
        """Add noise."""
        return {**batch, "noise": torch.randn(batch["x"].shape)}  # BUG

    def training_step(self, batch, batch_idx):
        """Add the noise to the input."""
        return super().training_step({**batch, "x": batch["x"] + batch["noise"]}, batch_idx)


def test_part_that_is_added_after_the_move():
    """A part of the batch that on_after_batch_transfer makes on the CPU did not stay behind: its line made it."""
    (error,) = report_of(AddsLater).errors
    assert (error.rule, error.name) == ("mixed-devices", 'batch["noise"]')
    assert error.fix == 'return {**batch, "noise": torch.randn(batch["x"].shape, device=self.device)}'
