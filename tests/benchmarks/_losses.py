"""What the benchmarks of `LossAccumulator` share: losses, and a metric of a collection."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import MeanMetric


class Named(MeanMetric):
    """An entry of a MetricCollection that picks its own loss."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def update(self, losses: list[Tensor]) -> None:
        """Take its own of all losses."""
        super().update(losses[self.index].detach())


def make_losses(size: int) -> list[Tensor]:
    """0-dim losses with a graph."""
    return list((torch.rand(size, requires_grad=True) * 1.0).unbind())
