"""Dropout inside `MultiheadAttention`, whose last projection, after the dropout, is on the CPU."""

import pytorch_lightning as pl
import torch
from torch import nn


class Model(pl.LightningModule):
    """Attention of a sequence to itself."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)

    def on_train_start(self):
        self.attention.out_proj.cpu()

    def training_step(self, batch, batch_idx):
        out, _ = self.attention(batch, batch, batch, need_weights=True)
        return out.square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def make_batch():
    """Return a batch."""
    return torch.randn(3, 5, 8)
