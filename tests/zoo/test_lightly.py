"""Losses and heads of lightly."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.zoo._train import images, train

lightly = pytest.importorskip("lightly.loss")


@pytest.mark.parametrize("name", ["NTXentLoss", "BarlowTwinsLoss", "VICRegLoss", "NegativeCosineSimilarity"])
@pytest.mark.filterwarnings("ignore")
def test_self_supervised_losses(name):
    """A loss between two views of an image trains without an error or a warning."""
    loss = getattr(lightly, name)()

    def between(net, batch):
        return loss(net(batch), net(batch + 0.1 * torch.randn_like(batch)))

    def build():
        return nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.Flatten(), nn.LazyLinear(8))

    assert not [found for found in train(build, between, images()).findings if found.severity != "note"]
