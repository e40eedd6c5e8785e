"""Message passing on a graph: scatter, index_add, sparse products, a batch that is no tensor."""

from dataclasses import dataclass

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class Graph:
    """A graph; Lightning moves what is in a dataclass."""

    x: torch.Tensor
    edges: torch.Tensor
    y: torch.Tensor


def degrees(targets, count):
    """How many edges end at each node."""
    ones = torch.ones(len(targets))  # BUG 1: ones
    # FIX 1: ones = torch.ones(len(targets), device=targets.device)
    return torch.zeros(count, device=targets.device).index_add(0, targets, ones)


class Layer(nn.Module):
    """Mean of the neighbours."""

    def __init__(self, width):
        super().__init__()
        self.own, self.other = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, edges):
        source, target = edges
        gathered = torch.zeros(x.shape)  # BUG 2: gathered
        # FIX 2: gathered = torch.zeros(x.shape, device=x.device)
        gathered = gathered.index_add(0, target, self.other(x)[source])
        return self.own(x) + gathered / (1 + degrees(target, len(x)))[:, None]


class Net(pl.LightningModule):
    """Two layers and a pooling by kind."""

    def __init__(self):
        super().__init__()
        self.layers = {"first": Layer(4), "second": Layer(4)}  # BUG 3: self.layers["first"]
        # FIX 3: self.layers = nn.ModuleDict({"first": Layer(4), "second": Layer(4)})
        self.head = nn.Linear(4, 3)

    def training_step(self, batch, batch_idx):
        x = self.layers["second"](self.layers["first"](batch.x, batch.edges).relu(), batch.edges)
        kinds = torch.arange(len(x)) % 2  # BUG 4: kinds
        # FIX 4: kinds = torch.arange(len(x), device=x.device) % 2
        pooled = x.new_zeros(2, 4).scatter_reduce(0, kinds[:, None].expand_as(x), x, "amax")
        loops = torch.arange(len(x)).repeat(2, 1)  # BUG 5: loops
        # FIX 5: loops = torch.arange(len(x), device=x.device).repeat(2, 1)
        edges = torch.cat([batch.edges, loops], 1)
        weights = torch.ones(edges.shape[1], device=x.device)
        smooth = torch.sparse.mm(torch.sparse_coo_tensor(edges, weights, (len(x), len(x))), x)
        logits = self.head(smooth + pooled[batch.y % 2])
        picked = torch.tensor([0, 2, 3])  # BUG 6: picked
        # FIX 6: picked = torch.tensor([0, 2, 3], device=x.device)
        loss = F.cross_entropy(logits.index_select(0, picked), batch.y[picked])
        print("loss", loss.item().hex())
        return loss

    def configure_optimizers(self):
        layers = [*self.layers["first"].parameters(), *self.layers["second"].parameters()]
        return torch.optim.Adagrad([*layers, *self.head.parameters()], lr=0.1)


if __name__ == "__main__":
    pl.seed_everything(0)
    graphs = [Graph(torch.randn(5, 4), torch.randint(0, 5, (2, 8)), torch.randint(0, 3, (5,))) for _ in range(4)]
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, enable_model_summary=False, **quiet)
    trainer.fit(Net(), DataLoader(graphs, batch_size=None, collate_fn=lambda graph: graph))
