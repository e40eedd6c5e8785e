"""Distillation with what outlives a step: optimizer, schedule, average and checkpoint; seven mistakes."""

import tempfile

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Student(pl.LightningModule):
    """Learns from labels, from two teachers and from an earlier version of itself."""

    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint = checkpoint
        self.body = nn.Linear(6, 8)
        self.head = nn.Linear(8, 4)
        self.teachers = [nn.Linear(6, 4) for _ in range(2)]  # BUG 1: self.teachers[0].weight
        # FIX 1: self.teachers = nn.ModuleList(nn.Linear(6, 4) for _ in range(2))
        self.average = {
            name: p.detach().clone() for name, p in self.named_parameters()
        }  # BUG 2: self.average[name] | self.average["body.weight"]
        # FIX 2: self.average = {}
        self.warmup = torch.linspace(0.1, 1, 10)  # BUG 3: self.warmup[step : step + 1]
        # FIX 3: self.register_buffer("warmup", torch.linspace(0.1, 1, 10))
        self.temperature = {"soft": nn.Parameter(torch.tensor(2.0))}  # BUG 4: self.temperature["soft"]
        # FIX 4: self.temperature = nn.ParameterDict({"soft": nn.Parameter(torch.tensor(2.0))})

    def on_fit_start(self):
        self.earlier = torch.load(self.checkpoint, map_location="cuda:0")  # BUG 5: self.earlier["head.weight"]
        # FIX 5: self.earlier = torch.load(self.checkpoint, map_location=self.device)

    def on_train_start(self):
        fresh = nn.init.orthogonal_(torch.empty_like(self.head.weight))
        self.head.weight = nn.Parameter(fresh)  # BUG 6: self.head.weight
        # FIX 6: self.head.weight.data.copy_(fresh)
        state = self.optimizers().state[self.body.bias]
        state["momentum_buffer"] = torch.zeros(8)  # BUG 7: self.body.bias | state["momentum_buffer"]
        # FIX 7: state["momentum_buffer"] = torch.zeros(8, device=self.device)

    def training_step(self, batch, batch_idx):
        x, label = batch
        logits = self.head(F.relu(self.body(x)))
        soft = sum(teacher(x) for teacher in self.teachers) / self.temperature["soft"]
        step = self.global_step
        loss = F.cross_entropy(logits, label)
        loss = loss + (self.warmup[step : step + 1] * F.mse_loss(logits, soft)).sum()
        loss = loss + 0.1 * F.mse_loss(self.head.weight, self.earlier["head.weight"])
        print("loss", loss.item().hex())
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                self.average.setdefault(name, parameter.clone()).lerp_(parameter, 0.1)
        print("average", sum(float(value.sum()) for value in self.average.values()).hex())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


if __name__ == "__main__":
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(16, 6), torch.randint(0, 4, (16,)))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save({"head.weight": torch.randn(4, 8)}, file.name)
        trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, enable_model_summary=False, **quiet)
        trainer.fit(Student(file.name), DataLoader(data, batch_size=4))
