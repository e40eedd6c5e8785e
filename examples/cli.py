"""A LightningCLI script that knows nothing of device checks: cli.yaml adds the callback.

python examples/cli.py fit --config examples/cli.yaml                         where there is a GPU
lightning-devcheck run examples/cli.py fit --config examples/cli.yaml         on simulated ones
lightning-devcheck run examples/cli.py fit --config examples/cli.yaml --model.smoothing 0.1
                                                          the same with a target that stays on the CPU
"""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.cli import LightningCLI
from torch import nn


class Clusters(pl.LightningDataModule):
    """Points around three centres."""

    def __init__(self, batch_size: int = 32):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(3, (256,), generator=generator)
        points = F.one_hot(labels, 3) + 0.3 * torch.randn(256, 3, generator=generator)
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points, labels), self.batch_size)


class Classifier(pl.LightningModule):
    def __init__(self, smoothing: float = 0.0, learning_rate: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(3, 3)
        # the mistake is here: a plain attribute is not moved
        self.prior = torch.full((3,), smoothing / 3)

    def training_step(self, batch, batch_idx):
        points, labels = batch
        targets = F.one_hot(labels, 3).float()
        if self.hparams.smoothing:
            targets = (1 - self.hparams.smoothing) * targets + self.prior
        return F.cross_entropy(self.layer(points), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.learning_rate)


if __name__ == "__main__":
    LightningCLI(Classifier, Clusters, save_config_callback=None)
