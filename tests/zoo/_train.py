"""Train somebody else's network for two steps, as `preflight` does, and run it in inference mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from lightning_devcheck import Report, preflight


class Wrapped(pl.LightningModule):
    """A network and what makes a loss of it and a batch."""

    def __init__(self, net: nn.Module, loss: Callable[[nn.Module, Any], torch.Tensor]) -> None:
        super().__init__()
        self.net = net
        self.loss = loss

    def training_step(self, batch, batch_idx):
        return self.loss(self.net, batch)

    @torch.inference_mode()
    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.loss(self.net, batch)  # as a validation step computes it

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def train(
    build: Callable[[], nn.Module], loss: Callable[[nn.Module, Any], torch.Tensor], batches: Sequence[Any]
) -> Report:
    """The report of two steps, each with one in inference mode; the network is built inside of the simulation."""
    return preflight(lambda: Wrapped(build(), loss), batches, steps=2)


def ids(words: int = 50) -> list[torch.Tensor]:
    """Two batches of two sentences with eight words."""
    return [torch.randint(0, words, (2, 8)) for _ in range(2)]


def images(size: int = 32) -> list[torch.Tensor]:
    """Two batches of two images."""
    return [torch.randn(2, 3, size, size) for _ in range(2)]


def square(net: nn.Module, batch: Any) -> torch.Tensor:
    """A loss for networks that are not about anything."""
    return net(batch).square().mean()
