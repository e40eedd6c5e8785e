"""Train a small encoder-decoder with six scales on a photograph; optionally with one of four real mistakes.

    python examples/multiscale.py                   trains, the loss falls
    python examples/multiscale.py --mistake zeros   the sum starts from torch.zeros(1), on the CPU
    python examples/multiscale.py --mistake cpu     the terms are collected with .cpu()
    python examples/multiscale.py --mistake list    a learnable weight per scale, kept in a plain list
    python examples/multiscale.py --mistake rank    the terms go to a written-out cuda:0; this process is cuda:1

It runs on a GPU where there is one (on the second, where there are two), else on simulated ones.
"""

import argparse
import contextlib

import matplotlib.cbook
import matplotlib.image
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import DeviceCheck, LossAccumulator, simulate_cuda

SCALES = 6
PATCH = 64


def load_patches():
    """Cut the photograph that matplotlib ships into [N, 3, 64, 64] patches in 0..1, on the CPU."""
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        photograph = torch.tensor(matplotlib.image.imread(file, format="jpg")) / 255
    patches = photograph.permute(2, 0, 1).unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)
    return patches.permute(1, 2, 0, 3, 4).reshape(-1, 3, PATCH, PATCH).contiguous()


def conv(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.ReLU())


class Multiscale(pl.LightningModule):
    """Removes noise from patches; predicts the clean patch at scales 1, 1/2, … 1/32."""

    def __init__(self, mistake=None, width=16):
        super().__init__()
        self.mistake = mistake
        self.down = nn.ModuleList(conv(width if i else 3, width, 2 if i else 1) for i in range(SCALES))
        self.up = nn.ModuleList(conv(2 * width, width) for _ in range(SCALES - 1))
        self.heads = nn.ModuleList(nn.Conv2d(width, 3, 1) for _ in range(SCALES))
        self.losses = LossAccumulator({f"1/{2**i}": 1 / 2 ** (i + 1) for i in range(SCALES)})
        if mistake == "list":
            self.balance = [nn.Parameter(torch.zeros(())) for _ in range(SCALES)]

    def forward(self, x):
        features = []
        for block in self.down:
            x = block(x)
            features.append(x)
        outputs = [x]
        for block, skip in zip(self.up, reversed(features[:-1]), strict=True):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), skip], dim=1))
            outputs.insert(0, x)
        return [head(output) for head, output in zip(self.heads, outputs, strict=True)]

    def training_step(self, batch, batch_idx):
        (clean,) = batch
        predictions = self(clean + 0.1 * torch.randn_like(clean))
        targets = [F.interpolate(clean, size=p.shape[-2:], mode="area") for p in predictions]
        terms = [F.mse_loss(p, target) for p, target in zip(predictions, targets, strict=True)]
        if self.mistake == "zeros":
            loss = torch.zeros(1)
            for i, term in enumerate(terms):
                loss += term / 2 ** (i + 1)
            return loss
        if self.mistake == "cpu":
            return sum((term / 2 ** (i + 1)).cpu() for i, term in enumerate(terms))
        if self.mistake == "list":
            terms = [term * torch.exp(-weight) + weight for term, weight in zip(terms, self.balance, strict=True)]
        if self.mistake == "rank":
            terms = [term.to("cuda:0") for term in terms]
        return self.losses(terms, n=len(clean))

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: loss {self.losses.compute()['loss'].item():.4f}")
        self.losses.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mistake", choices=["zeros", "cpu", "list", "rank"])
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    pl.seed_everything(0)
    data = torch.utils.data.TensorDataset(load_patches())
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    with contextlib.nullcontext() if torch.cuda.is_available() else simulate_cuda(devices=2):
        trainer = pl.Trainer(
            accelerator="gpu",
            devices=[torch.cuda.device_count() - 1],
            max_epochs=args.epochs,
            callbacks=DeviceCheck(),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Multiscale(args.mistake), loader)


if __name__ == "__main__":
    main()
