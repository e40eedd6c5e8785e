"""Train a small GAN by hand (manual optimization) with two losses, each checked before its backward.

    python examples/gan.py                          trains, says nothing
    python examples/gan.py --mistake                the discriminator's labels go to a written-out cuda:0

It runs on a GPU where there is one (on the second, where there are two), else on simulated ones.
`DeviceCheck` sees `self.manual_backward(loss)`; a bare `loss.backward()` calls no hook.
"""

import argparse
import contextlib

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import DeviceCheck, simulate_cuda


class GAN(pl.LightningModule):
    """Learns points on a circle."""

    def __init__(self, mistake=False):
        super().__init__()
        self.automatic_optimization = False
        self.mistake = mistake
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))

    def judge(self, points, real):
        scores = self.discriminator(points)
        labels = torch.full_like(scores, float(real))
        if self.mistake:
            labels = labels.to("cuda:0")
        return F.binary_cross_entropy_with_logits(scores, labels)

    def training_step(self, batch, batch_idx):
        (points,) = batch
        generator_optimizer, discriminator_optimizer = self.optimizers()
        fake = self.generator(torch.randn(len(points), 4, device=self.device))
        self.step(generator_optimizer, self.judge(fake, real=True))
        self.step(discriminator_optimizer, self.judge(points, real=True) + self.judge(fake.detach(), real=False))

    def step(self, optimizer, loss):
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self):
        parts = (self.generator, self.discriminator)
        return [torch.optim.Adam(part.parameters(), lr=1e-3, betas=(0.5, 0.9)) for part in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    pl.seed_everything(0)
    angles = torch.rand(256) * 2 * torch.pi
    circle = torch.utils.data.TensorDataset(torch.stack([angles.cos(), angles.sin()], dim=1))
    with contextlib.nullcontext() if torch.cuda.is_available() else simulate_cuda(devices=2):
        trainer = pl.Trainer(
            accelerator="gpu", devices=[torch.cuda.device_count() - 1], max_epochs=2, callbacks=DeviceCheck(),
            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(GAN(args.mistake), torch.utils.data.DataLoader(circle, batch_size=32))
    print(f"{trainer.global_step} optimizer steps")


if __name__ == "__main__":
    main()
