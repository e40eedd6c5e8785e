"""What the ways to train have in common: a model that is clean or has one mistake, and a run that checks each batch."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import DeviceCheck
from tests.helpers.training import Clean, make_loader, make_trainer

KEPT = ("unregistered-parameter", "self.balance[0]")


class Situation(Clean):
    """A loss that every situation computes in its own way; ``mistake`` multiplies it by a parameter in a plain list."""

    def __init__(self, mistake: bool):
        super().__init__()
        self.mistake = mistake
        self.balance = [nn.Parameter(torch.ones(()))]

    def weigh(self, loss):
        return loss * self.balance[0] if self.mistake else loss

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.net(batch), batch))


def fit(model, **kwargs):
    """Fit for four batches on the CPU, where such mistakes are mistakes too."""
    check = DeviceCheck(every_n_steps=1)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", ".*(returned `None`|passed to the optimizer|in eval mode|shuffle|.grad attr).*"
        )
        make_trainer(**{"callbacks": [check], **kwargs}).fit(model, make_loader(4))
    return check.report
