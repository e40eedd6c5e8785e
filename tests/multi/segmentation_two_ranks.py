"""Segmentation on two ranks: six device mistakes, of which two show on rank 1 alone."""

import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 3


def coordinates(image):
    """Two channels with the place of each pixel."""
    rows = torch.linspace(-1, 1, image.shape[2], device=image.device)
    columns = torch.linspace(-1, 1, image.shape[3], device="cuda:0")  # BUG 1: columns
    # FIX 1: columns = torch.linspace(-1, 1, image.shape[3], device=image.device)
    return rows[:, None] * columns


class Segmenter(pl.LightningModule):
    """A convolution with coordinates, a weighted cross entropy and a Dice loss."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(4, 8, 3, padding=1)
        self.head = nn.Conv2d(8, CLASSES, 1)
        # a dict is no ModuleDict
        self.criteria = {"ce": nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]))}  # BUG 2: self.criteria["ce"].weight
        # FIX 2: self.criteria = nn.ModuleDict({"ce": nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]))})

    def forward(self, image):
        places = coordinates(image).expand(image.shape[0], 1, -1, -1)
        return self.head(F.relu(self.body(torch.cat([image, places], 1))))

    def training_step(self, batch, batch_idx):
        image, target = batch
        logits = self(image)
        loss = self.criteria["ce"](logits, target) + self.dice(logits, target)
        pixels = torch.tensor(float(target.numel()))  # BUG 3: pixels
        # FIX 3: pixels = torch.tensor(float(target.numel()), device=target.device)
        dist.all_reduce(pixels)
        total = loss * target.numel() / pixels
        # one write: the ranks share a pipe
        print(f"rank {self.global_rank} loss {total.item().hex()}\n", end="")
        right = (logits.argmax(1) == target).float().mean()
        self.log("accuracy", right.cpu(), sync_dist=True)  # BUG 4: right.cpu()
        # FIX 4: self.log("accuracy", right, sync_dist=True)
        return total

    def dice(self, logits, target):
        probabilities = logits.softmax(1)
        classes = F.one_hot(target, CLASSES).movedim(-1, 1)
        border = torch.ones(target.shape[1:])  # BUG 5: border
        # FIX 5: border = torch.ones(target.shape[1:], device=target.device)
        border[0] = border[-1] = 0.5
        overlap = (probabilities * classes * border).sum((0, 2, 3))
        smooth = torch.full((CLASSES,), 1e-3).to("cuda:0")  # BUG 6: smooth
        # FIX 6: smooth = torch.full((CLASSES,), 1e-3, device=overlap.device)
        return 1 - ((2 * overlap + smooth) / (target.numel() + smooth)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(24, 3, 6, 6), torch.randint(0, CLASSES, (24, 6, 6)))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        accelerator="gpu", devices=2, strategy="ddp", max_epochs=1, enable_model_summary=False, **quiet
    )
    trainer.fit(Segmenter(), DataLoader(data, batch_size=4))
