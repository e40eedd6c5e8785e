"""Ranks under manual optimization: ``python uneven.py KIND PROCESSES WRONG BATCH``; no check for WRONG "none".

``KIND`` is how they train: ``local`` exchanges gradients by hand every four batches and rank 0 leaves out one backward,
``each`` exchanges them in every batch, where rank 0 leaves out the backward of batch 3, ``optimizers`` trains other
parts on each rank, ``no_sync`` holds back DDP's exchange, ``ddp`` leaves all to DDP.
"""

from __future__ import annotations

import contextlib
import sys

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

from lightning_devcheck import DeviceCheck
from tests.helpers.training import QUIET

BATCHES = 16


class Model(pl.LightningModule):
    def __init__(self, kind, wrong, batch):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = nn.Linear(4, 1), nn.Linear(4, 1)
        self.balance = [nn.Parameter(torch.zeros(()))]
        self.kind, self.wrong, self.batch = kind, wrong, batch

    def training_step(self, batch, batch_idx):
        loss = (self.first(batch) + self.second(batch)).pow(2).mean()
        if self.global_rank in self.wrong and batch_idx >= self.batch:
            loss = loss + self.balance[0]
        getattr(self, f"train_{self.kind}")(loss, batch, batch_idx)

    def train_local(self, loss, batch, batch_idx):
        if self.global_rank != 0 or batch_idx != 1:
            self.manual_backward(loss)
        if batch_idx % 4 == 3:
            self.exchange()

    def train_each(self, loss, batch, batch_idx):
        if self.global_rank != 0 or batch_idx != 3:
            self.manual_backward(loss)
        self.exchange()

    def train_optimizers(self, loss, batch, batch_idx):
        self.manual_backward(loss)
        for _ in range(2 * self.global_rank):
            self.manual_backward(self.second(batch).mean())
        self.exchange()

    def train_no_sync(self, loss, batch, batch_idx):
        held = batch_idx % 4 != 3
        if self.global_rank == 0 and batch_idx == 1:
            return
        with self.trainer.strategy.model.no_sync() if held else contextlib.nullcontext():
            self.manual_backward(loss)
        if not held:
            self.step()

    def train_ddp(self, loss, batch, batch_idx):
        self.manual_backward(loss)
        self.step()

    def exchange(self):
        for parameter in self.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)
        self.step()

    def step(self):
        optimizer = self.optimizers()
        optimizer.step()
        optimizer.zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Unwrapped(DDPStrategy):
    """Processes that find each other, and a model whose gradients nobody exchanges."""

    def configure_ddp(self):
        """Leave the model as it is."""


def main(kind: str, processes: int, wrong: str, batch: int) -> None:
    """Fit, and say what is left of the parameters."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ranks = {int(rank) for rank in wrong.split(",") if rank.isdigit()}
    strategy = DDPStrategy if kind in ("ddp", "no_sync") else Unwrapped
    data = torch.utils.data.DataLoader(torch.linspace(0, 1, BATCHES * processes)[:, None].expand(-1, 4))
    model = Model(kind, ranks, batch)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy=strategy(start_method="fork"),
        callbacks=[] if wrong == "none" else DeviceCheck(every_n_steps=3),
        **QUIET,
    )
    trainer.fit(model, data)
    print("finished", [parameter.tolist() for parameter in model.parameters()])


if __name__ == "__main__":
    kind, processes, wrong, batch = sys.argv[1:]
    main(kind, int(processes), wrong, int(batch))
