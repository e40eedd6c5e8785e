"""Adam over lists of tensors (foreach), some of whose state is on the CPU."""

import pytorch_lightning as pl
import torch
from torch import nn


class Model(pl.LightningModule):
    """Two layers; the state of one is put back by hand, on the CPU."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 1)

    def on_train_start(self):
        state = self.optimizers().state
        for parameter in self.second.parameters():
            shape = parameter.shape
            state[parameter] = {
                "step": torch.tensor(3.0),
                "exp_avg": torch.full(shape, 0.01),
                "exp_avg_sq": torch.full(shape, 0.02),
            }

    def training_step(self, batch, batch_idx):
        return self.second(self.first(batch).tanh()).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05, foreach=True)


def make_batch():
    """Return a batch."""
    return torch.randn(4, 6)
