"""A classifier with metrics of torchmetrics and of its own: seven device mistakes."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchmetrics.functional.classification import binary_auroc

CLASSES = 3


class Calibration(Metric):
    """The mean confidence by bins; its edges are no state, so they never move."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.edges = torch.linspace(0, 1, 5)  # BUG 1: self.edges | self.calibration.edges
        # FIX 1: self.register_buffer("edges", torch.linspace(0, 1, 5))
        self.add_state("total", torch.zeros(6), "sum")

    def update(self, confidence):
        self.total += torch.bincount(torch.bucketize(confidence, self.edges), minlength=6)

    def compute(self):
        return self.total / self.total.sum()


class RunningMean:
    """A mean of vectors; no module."""

    def __init__(self, size):
        self.mean, self.count = torch.zeros(size), 0  # BUG 2: self.mean | self.confidence.mean
        # FIX 2: self.mean, self.count = torch.zeros(size, device="cuda"), 0

    def add(self, value):
        self.count += 1
        self.mean = self.mean + (value - self.mean) / self.count


class Classifier(pl.LightningModule):
    """One layer, many figures."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(5, CLASSES)
        self.listed = [MulticlassAccuracy(CLASSES)]  # BUG 3: self.listed[0]
        # FIX 3: self.listed = nn.ModuleList([MulticlassAccuracy(CLASSES)])
        self.f1 = MulticlassF1Score(CLASSES)
        self.calibration = Calibration()
        self.confidence = RunningMean(CLASSES)
        self.confusion = torch.zeros(CLASSES, CLASSES)  # BUG 4: self.confusion
        # FIX 4: self.register_buffer("confusion", torch.zeros(CLASSES, CLASSES))
        self.scores, self.truths = [], []

    def training_step(self, batch, batch_idx):
        x, label = batch
        logits = self.net(x)
        soft = torch.eye(CLASSES)[label]  # BUG 5: torch.eye(CLASSES)
        # FIX 5: soft = torch.eye(CLASSES, device=label.device)[label]
        loss = F.cross_entropy(logits, 0.9 * soft + 0.1 / CLASSES)
        chances = logits.detach().softmax(1)
        self.measure(chances, label)
        print("loss", loss.item().hex(), self.confidence.mean.sum().item().hex())
        return loss

    def measure(self, chances, label):
        self.listed[0].update(chances, label)
        self.f1.update(chances.cpu(), label)  # BUG 6: chances.cpu()
        # FIX 6: self.f1.update(chances, label)
        self.calibration.update(chances.amax(1))
        self.confidence.add(chances.mean(0))
        self.confusion[label, chances.argmax(1)] += 1
        self.scores.append(chances[:, 0].cpu())  # BUG 7: torch.cat(self.scores) | self.scores[0]
        # FIX 7: self.scores.append(chances[:, 0])
        self.truths.append(label == 0)

    def on_train_epoch_end(self):
        area = binary_auroc(torch.cat(self.scores), torch.cat(self.truths).long())
        figures = [area, self.listed[0].compute(), self.f1.compute(), self.calibration.compute().amax()]
        print("epoch", *(figure.item().hex() for figure in figures), self.confusion.trace().item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


if __name__ == "__main__":
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(16, 5), torch.randint(0, CLASSES, (16,)))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, enable_model_summary=False, **quiet)
    trainer.fit(Classifier(), DataLoader(data, batch_size=4))
