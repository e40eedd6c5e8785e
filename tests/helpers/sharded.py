"""A small FSDP 2 run on two gloo processes: ``python sharded.py [mistake]``."""

from __future__ import annotations

import sys
import warnings

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard

from lightning_devcheck import DeviceCheck


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def configure_model(self):
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self.net(batch), batch)
        return loss.to("meta") if "mistake" in sys.argv else loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    check = DeviceCheck(every_n_steps=1)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
        callbacks=check,
        max_steps=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(12, 4), batch_size=2))
    # in one write: two ranks share the stream
    sys.stdout.write(f"{check.report.findings} {check.report.not_checked}\n")
