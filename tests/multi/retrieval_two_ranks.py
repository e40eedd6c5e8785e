"""Retrieval over what two ranks gather: collectives by hand."""

import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Retrieval(pl.LightningModule):
    """Texts that find pictures."""

    def __init__(self):
        super().__init__()
        self.text = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8))
        self.image = nn.Linear(6, 8)
        self.center = torch.zeros(8)  # BUG 1: self.center
        # FIX 1: self.register_buffer("center", torch.zeros(8))

    def training_step(self, batch, batch_idx):
        text, image = batch
        t, i = F.normalize(self.text(text), dim=1), F.normalize(self.image(image) - self.center, dim=1)
        others = [torch.empty(i.shape) for _ in range(2)]  # BUG 2: others[0]
        # FIX 2: others = [torch.empty(i.shape, device=i.device) for _ in range(2)]
        dist.all_gather(others, i.detach().contiguous())
        others[self.global_rank] = i
        everything = torch.cat(others)
        labels = torch.arange(len(t)) + len(t) * self.global_rank  # BUG 3: labels
        # FIX 3: labels = torch.arange(len(t), device=t.device) + len(t) * self.global_rank
        loss = F.cross_entropy(t @ everything.T * 5, labels)
        self.center = 0.9 * self.center + 0.1 * everything.detach().mean(0)
        size = torch.tensor([float(len(t))])  # BUG 4: size
        # FIX 4: size = torch.tensor([float(len(t))], device=t.device)
        dist.broadcast(size, 0)
        if self.global_rank == 1:
            penalty = torch.ones(8)  # BUG 5: penalty
            # FIX 5: penalty = torch.ones(8, device=t.device)
            loss = loss + 0.01 * (t * penalty).square().mean()
        # one write: the ranks share a pipe
        print(f"rank {self.global_rank} loss {loss.item().hex()} {size.item()}\n", end="")
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(24, 5), torch.randn(24, 6))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        accelerator="gpu", devices=2, strategy="ddp", max_epochs=1, enable_model_summary=False, **quiet
    )
    trainer.fit(Retrieval(), DataLoader(data, batch_size=4))
