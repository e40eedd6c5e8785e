"""Logged values that a collective refuses: the value is named, with its line, not what Lightning makes of it."""

from __future__ import annotations

import pytest
import torch

from lightning_devcheck import preflight
from tests.helpers.training import Clean, make_loader

pytestmark = pytest.mark.ddp


class Model(Clean):
    """A model that keeps something."""

    def __init__(self):
        super().__init__()
        self.kept = []


class KeepsOnHost(Model):
    """Keeps its losses on the CPU."""

    def training_step(self, batch, batch_idx):
        """Keep the loss on the CPU."""
        loss = super().training_step(batch, batch_idx)
        self.kept.append(loss.detach().cpu())
        return loss


class LogsEpoch(KeepsOnHost):
    """Logs at the end of the epoch what was kept."""

    def on_train_epoch_end(self):
        """Log their mean, which Lightning reduces later."""
        mean = torch.stack(self.kept).mean()  # made
        self.kept.clear()
        self.log("mean", mean, sync_dist=True)  # logged


class LogsEpochTable(KeepsOnHost):
    """The same, in a table."""

    def on_train_epoch_end(self):
        """Log it beside a number."""
        mean = torch.stack(self.kept).mean()  # made
        self.kept.clear()
        self.log_dict({"size": 4.0, "mean": mean}, sync_dist=True)  # logged


class LogsStep(Model):
    """Logs a table of values of which one is on the CPU."""

    def training_step(self, batch, batch_idx):
        """Log the loss and a number."""
        loss = super().training_step(batch, batch_idx)
        size = torch.tensor(4.0)  # made
        self.log_dict({"loss": loss.detach(), "size": size}, sync_dist=True)
        return loss


class LogsOnDevice(Model):
    """Logs numbers and device tensors, as is right."""

    def training_step(self, batch, batch_idx):
        """Log and keep."""
        loss = super().training_step(batch, batch_idx)
        self.log_dict({"loss": loss.detach(), "size": 4.0}, sync_dist=True, on_epoch=True)
        self.kept.append(loss.detach())
        return loss

    def on_train_epoch_end(self):
        """Log their mean."""
        self.log("mean", torch.stack(self.kept).mean(), sync_dist=True)


def check(model):
    """What two ranks say."""
    return preflight(model, make_loader(8), strategy="ddp_fork", timeout_s=60)


@pytest.mark.parametrize("model", [LogsEpoch, LogsEpochTable])
def test_value_that_is_reduced_after_its_hook(model):
    """A value of on_train_epoch_end is named though no line of the model's runs when it is reduced."""
    (finding, *_) = check(model).errors
    assert (finding.rule, finding.name) == ("collective-device", "mean")
    assert finding.origin.line == "mean = torch.stack(self.kept).mean()  # made"
    assert finding.used.line.startswith("self.log")
    assert finding.used.line.endswith("# logged")


def test_value_in_a_table():
    """Of what log_dict is given the tensor on the CPU is named."""
    (finding, *_) = check(LogsStep).errors
    assert (finding.rule, finding.name) == ("collective-device", "size")
    assert finding.fix == "size = torch.tensor(4.0, device=self.device)"


def test_values_on_the_device():
    """Numbers and device tensors may be logged over ranks."""
    assert check(LogsOnDevice).ok
