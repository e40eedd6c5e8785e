"""Average the terms of a loss over two DDP processes that see different numbers of samples.

    python examples/ddp_losses.py               two processes on the CPU
    python examples/ddp_losses.py --simulate    the same on two simulated CUDA devices

Batches of 8 and 2 samples, and a third term that only some batches have: a plain mean over batches or over processes
would be wrong. The last line compares what was logged with the mean over all samples.
"""

import argparse
import contextlib

import pytorch_lightning as pl
import torch
from torch import nn

from lightning_devcheck import DeviceCheck, LossAccumulator, simulate_cuda

SAMPLES = 20  # each of the two processes gets ten: one batch of 8 and one of 2


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.losses = LossAccumulator({"full": 1 / 2, "half": 1 / 4, "rare": 1 / 8})

    def training_step(self, batch, batch_idx):
        x = batch * self.scale
        terms = {"full": x.mean(), "half": x.square().mean()}
        if len(batch) == 2:
            terms["rare"] = x.abs().mean()
        loss = self.losses(terms, n=len(batch))
        self.log_dict(self.losses, on_step=False, on_epoch=True)  # one collective for the total and the three terms
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)  # the terms stay what they are, so the means are known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true")
    simulate = parser.parse_args().simulate
    data = torch.arange(SAMPLES, dtype=torch.float32)
    with simulate_cuda(devices=2) if simulate else contextlib.nullcontext():
        trainer = pl.Trainer(
            accelerator="gpu" if simulate else "cpu",
            devices=2,
            strategy="ddp_fork",
            max_epochs=1,
            callbacks=DeviceCheck(),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=8))
        logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    print({name: round(value, 4) for name, value in logged.items()})
    difference = max(abs(logged["full"] - data.mean().item()), abs(logged["half"] - data.square().mean().item()))
    print(f"two processes and one agree to {difference:.0e}")


if __name__ == "__main__":
    main()
