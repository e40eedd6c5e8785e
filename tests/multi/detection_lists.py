"""Detection on lists of pictures of several sizes: boxes, anchors, workers, all stages."""

import functools

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class Sizes:
    """How large the pictures were; has no ``to``."""

    def __init__(self, values):
        self.values = values


def collate(samples):
    """Lists of pictures and of targets, made in a worker."""
    images, targets = zip(*samples, strict=True)
    sizes = Sizes(torch.tensor([list(image.shape[-2:]) for image in images], dtype=torch.float))
    return list(images), list(targets), sizes


@functools.lru_cache
def anchors(count):
    """The corners of the anchors."""
    steps = torch.linspace(0, 1, count)  # BUG 1: anchors(len(guess))
    # FIX 1: steps = torch.linspace(0, 1, count, device="cuda")
    return torch.stack([steps, steps, steps + 0.2, steps + 0.2], 1)


def overlap(first, second):
    """Intersection over union of boxes."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    inner = (high - low).clamp(min=0).prod(2)
    area = [(boxes[:, 2:] - boxes[:, :2]).clamp(min=1e-3).prod(1) for boxes in (first, second)]
    return inner / (area[0][:, None] + area[1][None] - inner)


class Detector(pl.LightningModule):
    """Boxes and scores out of a few convolutions."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(0))
        self.boxes, self.scores = nn.Linear(32, 5 * 4), nn.Linear(32, 5)
        self.histogram = torch.zeros(4)  # BUG 2: self.histogram
        # FIX 2: self.register_buffer("histogram", torch.zeros(4))

    def forward(self, image):
        features = self.body(image)
        guess = self.boxes(features).view(5, 4)
        return anchors(len(guess)) + 0.1 * guess, self.scores(features)

    def training_step(self, batch, batch_idx):
        images, targets, sizes = batch
        losses = []
        for number, (image, target) in enumerate(zip(images, targets, strict=True)):
            boxes, scores = self(image)
            found = overlap(boxes.detach(), target["boxes"]).argmax(1)
            wanted = target["boxes"].cpu()[found.cpu()]  # BUG 3: wanted
            # FIX 3: wanted = target["boxes"][found]
            best = torch.zeros(5)  # BUG 4: best
            # FIX 4: best = torch.zeros(5, device=scores.device)
            best[number % 5] = 1.0
            losses.append(F.smooth_l1_loss(boxes, wanted) + F.binary_cross_entropy_with_logits(scores, best))
        shares = torch.stack(losses) * sizes.values.prod(1)  # BUG 5: sizes.values | batch[2].values
        # FIX 5: shares = torch.stack(losses) * sizes.values.prod(1).to(self.device)
        loss = shares.sum() / 50
        print("loss", loss.item().hex())
        return loss

    def validation_step(self, batch, batch_idx):
        for image, target in zip(batch[0], batch[1], strict=True):
            boxes, scores = self(image)
            kept = torch.empty(0, 4)  # BUG 6: kept
            # FIX 6: kept = torch.empty(0, 4, device=boxes.device)
            for row in scores.argsort(descending=True)[:3]:
                kept = torch.cat([kept, boxes[row][None]])
            self.histogram.scatter_add_(0, target["labels"], torch.ones_like(target["labels"], dtype=torch.float))
        print("validated", kept.sum().item().hex(), self.histogram.sum().item().hex())

    def predict_step(self, batch, batch_idx):
        boxes, _ = self(batch[0][0])
        limit = torch.tensor([1.0, 1.0, 0.9, 0.9])  # BUG 7: limit
        # FIX 7: limit = torch.tensor([1.0, 1.0, 0.9, 0.9], device=boxes.device)
        print("predicted", torch.minimum(boxes, limit).sum().item().hex())

    def configure_optimizers(self):
        return torch.optim.RMSprop(self.parameters(), lr=0.01)


if __name__ == "__main__":
    pl.seed_everything(0)
    samples = []
    for number in range(12):
        corner = torch.rand(2, 2)
        target = {"boxes": torch.cat([corner, corner + 0.3], 1), "labels": torch.tensor([number % 4, 1])}
        samples.append((torch.randn(3, 6 + number % 3, 7), target))
    loader = DataLoader(samples, batch_size=4, collate_fn=collate, num_workers=1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, enable_model_summary=False, **quiet)
    model = Detector()
    trainer.fit(model, loader, loader)
    trainer.predict(model, loader)
