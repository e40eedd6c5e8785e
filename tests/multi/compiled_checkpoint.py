"""A model with a compiled part that starts from a checkpoint, is validated, tested and used."""

import tempfile

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.compile(backend="eager")
def gelu_like(x, slope):
    """An activation."""
    return x * torch.sigmoid(slope * x)


class Keeper(pl.Callback):
    """Keeps what was said of each batch."""

    def __init__(self):
        self.kept = []

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.kept.append(outputs.cpu() if batch_idx else outputs)  # BUG 1: self.kept[1] | torch.stack(self.kept)
        # FIX 1: self.kept.append(outputs)

    def on_validation_epoch_end(self, trainer, pl_module):
        print("validated", torch.stack(self.kept).sum().item().hex())
        self.kept.clear()


class Net(pl.LightningModule):
    """Three layers, one of which comes from a file."""

    def __init__(self, file):
        super().__init__()
        self.file = file
        self.body, self.extra, self.head = nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 3)
        self.slope = torch.full((7,), 1.7)  # BUG 2: self.slope
        # FIX 2: self.register_buffer("slope", torch.full((7,), 1.7))

    def on_fit_start(self):
        saved = torch.load(self.file, map_location=self.device)
        self.extra.load_state_dict(saved)

    def configure_optimizers(self):
        return torch.optim.NAdam(self.parameters(), lr=0.02)

    def forward(self, x):
        hidden = gelu_like(self.body(x), self.slope)
        return self.head(self.extra(hidden))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        soft = F.one_hot(y, 3).cpu() * 0.9  # BUG 3: soft
        # FIX 3: soft = F.one_hot(y, 3) * 0.9
        loss = -(logits.log_softmax(1) * soft).sum(1).mean()
        self.log("loss", loss)
        print("loss", loss.item().hex())
        return loss

    def validation_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0]), batch[1])

    def test_step(self, batch, batch_idx):
        ranks = self(batch[0]).argsort(1)
        gains = torch.tensor([3.0, 2.0, 1.0])  # BUG 4: gains
        # FIX 4: gains = torch.tensor([3.0, 2.0, 1.0], device=self.device)
        print("tested", torch.take(gains, ranks).sum().item().hex())

    def predict_step(self, batch, batch_idx):
        views = torch.stack([self(batch[0] * (1 + n)) for n in range(3)])
        votes = torch.softmax(torch.arange(3.0), 0)[:, None, None]  # BUG 5: votes
        # FIX 5: votes = torch.softmax(torch.arange(3.0, device=self.device), 0)[:, None, None]
        print("predicted", (views * votes).sum().item().hex())


if __name__ == "__main__":
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(12, 5), torch.randint(0, 3, (12,)))
    loader = DataLoader(data, batch_size=4)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save(nn.Linear(7, 7).state_dict(), file.name)
        trainer = pl.Trainer(
            accelerator="gpu", devices=1, max_epochs=1, enable_model_summary=False, callbacks=[Keeper()], **quiet
        )
        model = Net(file.name)
        trainer.fit(model, loader, loader)
        trainer.test(model, loader, verbose=False)
        trainer.predict(model, loader)
