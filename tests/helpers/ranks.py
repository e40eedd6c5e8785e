"""A small DDP run whose mistake is on some processes only: ``python ranks.py STRATEGY PROCESSES WRONG BATCH [FOLDER]``.

``WRONG`` are the global ranks with the mistake (``0,3``) and ``BATCH`` the batch, counted from 0, where it starts;
``error`` instead of ranks stands for an exception of all ranks' own, without a `DeviceCheck`. In
``FOLDER`` every rank leaves its process id, the time of its mistake, and what it prints to stderr.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import nn

from lightning_devcheck import DeviceCheck


class Model(pl.LightningModule):
    def __init__(self, wrong: set[int], batch: int, folder: str, fails: bool) -> None:
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.balance = [nn.Parameter(torch.zeros(()))]
        self.wrong, self.batch, self.folder, self.fails = wrong, batch, folder, fails

    def setup(self, stage):
        if self.folder:
            self.leave("pid", str(os.getpid()))
            own = os.open(Path(self.folder) / f"rank-{self.global_rank}", os.O_WRONLY | os.O_CREAT)
            os.dup2(own, sys.stderr.fileno())

    def training_step(self, batch, batch_idx):
        loss = self.net(batch[0]).pow(2).mean()
        if self.global_rank in self.wrong and batch_idx >= self.batch:
            loss = loss + self.balance[0]
            if self.folder:
                self.leave("mistake", str(time.time()))
            if self.fails:
                raise RuntimeError("this step fails")
        return loss

    def leave(self, what: str, text: str) -> None:
        (Path(self.folder) / f"{what}-{self.global_rank}").write_text(text)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(strategy: str, processes: int, wrong: str, batch: int, folder: str) -> None:
    """Fit for 16 batches per process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    fails = wrong == "error"
    ranks = set(range(processes)) if fails else {int(rank) for rank in wrong.split(",") if rank}
    data = torch.utils.data.TensorDataset(torch.ones(16 * processes, 4))
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy=strategy,
        callbacks=None if fails else DeviceCheck(),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(ranks, batch, folder, fails), torch.utils.data.DataLoader(data, batch_size=1))
    print(f"rank {trainer.global_rank} finished", flush=True)


if __name__ == "__main__":
    name, number, wrong, start, *place = sys.argv[1:]
    main(name, int(number), wrong, int(start), place[0] if place else "")
