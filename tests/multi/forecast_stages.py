"""A forecast that is fitted, validated, tested and used: seven device mistakes, in all four stages."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, default_collate


class Calendar:
    """Hours of the day; has no ``to``, so Lightning leaves it where it is."""

    def __init__(self, hours):
        self.hours = hours


class Scaler:
    """What is known of the data; no module."""

    def __init__(self):
        self.mean = torch.full((8,), 0.1)  # BUG 1: self.scaler.mean
        # FIX 1: self.mean = torch.full((8,), 0.1, device="cuda")


def collate(samples):
    """A batch with its calendar."""
    past, future, hours = default_collate(samples)
    return past, future, Calendar(hours)


class Forecast(pl.LightningModule):
    """A line through the past, a correction for the hour."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 3)
        self.by_hour = nn.Embedding(24, 3)
        self.scaler = Scaler()
        self.totals = torch.zeros(3)  # BUG 2: self.totals
        # FIX 2: self.register_buffer("totals", torch.zeros(3))
        self.room = torch.empty(4, 3)  # BUG 3: self.room
        # FIX 3: self.register_buffer("room", torch.empty(4, 3))

    def training_step(self, batch, batch_idx):
        past, future, calendar = batch
        guess = self.line(past) + self.by_hour(calendar.hours)  # BUG 4: calendar.hours | batch[2].hours
        # FIX 4: guess = self.line(past) + self.by_hour(calendar.hours.to(past.device))
        level, shape = F.mse_loss(guess.mean(1), future.mean(1)), F.l1_loss(guess, future)
        parts = torch.tensor([level.item(), shape.item()])  # BUG 5: parts
        # FIX 5: parts = torch.stack([level, shape]).detach()
        shares = torch.stack([level, shape]) / parts.sum()
        loss = (parts * shares).sum() + (guess * past.mean()).mean()
        print("loss", loss.item().hex())
        return loss

    def on_validation_epoch_start(self):
        self.errors = [torch.zeros(3)]  # BUG 6: self.errors[0]
        # FIX 6: self.errors = [torch.zeros(3, device=self.device)]

    def validation_step(self, batch, batch_idx):
        past, future, _ = batch
        error = (self.line(past) - future).abs().mean(0)
        self.errors.append(error)
        self.totals += error

    def on_validation_epoch_end(self):
        print("validated", torch.stack(self.errors).mean().item().hex(), self.totals.sum().item().hex())

    def test_step(self, batch, batch_idx):
        past, future, _ = batch
        error = self.line(past - self.scaler.mean) - future
        edges = torch.linspace(-1, 1, 5)  # BUG 7: edges
        # FIX 7: edges = torch.linspace(-1, 1, 5, device=self.device)
        print("tested", torch.bucketize(error, edges).float().mean().item().hex())

    def predict_step(self, batch, batch_idx):
        past, _, _ = batch
        guess = torch.mm(past, self.line.weight.T, out=self.room)
        print("predicted", guess.sum().item().hex())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    pl.seed_everything(0)
    samples = [(torch.randn(8), torch.randn(3), torch.tensor(i)) for i in range(16)]
    loader = DataLoader(samples, batch_size=4, collate_fn=collate)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, enable_model_summary=False, **quiet)
    model = Forecast()
    trainer.fit(model, loader, loader)
    trainer.test(model, loader, verbose=False)
    trainer.predict(model, loader)
