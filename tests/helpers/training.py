"""A tiny model, its data and a quiet Trainer."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "max_epochs": 1,
}


def make_trainer(**kwargs: Any) -> pl.Trainer:
    """A Trainer that prints and saves nothing, on the CPU unless told otherwise."""
    return pl.Trainer(**{"accelerator": "cpu", "devices": 1, **QUIET, **kwargs})


def make_loader(batches: int = 3) -> torch.utils.data.DataLoader:
    """Batches of 2 samples with 4 features."""
    data = torch.randn(2 * batches, 4, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(data, batch_size=2)


class Clean(pl.LightningModule):
    """A network with nothing wrong; subclasses put one mistake in."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 4))

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch), batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)
