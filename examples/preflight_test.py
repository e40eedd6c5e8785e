"""Device bugs as failing tests, on a machine without a GPU.

pytest examples/preflight_test.py
"""

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import preflight


class Weighted(pl.LightningModule):
    """A classifier whose class weights Lightning moves."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.register_buffer("class_weights", torch.tensor([1.0, 2.0, 0.5]), persistent=False)

    def training_step(self, batch, batch_idx):
        inputs, labels = batch
        return F.cross_entropy(self.layer(inputs), labels, self.class_weights)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Forgotten(Weighted):
    """The same with the class weights in a plain attribute."""

    def __init__(self):
        super().__init__()
        del self.class_weights
        self.class_weights = torch.tensor([1.0, 2.0, 0.5])


@pytest.fixture
def data():
    inputs, labels = torch.randn(16, 8), torch.randint(3, (16,))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=8)


def test_model_trains_on_a_gpu(data):
    """Two training steps on the second of two simulated GPUs find nothing; a failure prints the report."""
    report = preflight(Weighted, data, devices=2)
    assert report.ok, str(report)


def test_model_trains_on_two_gpus(data):
    """Two processes, one simulated GPU each, find nothing either."""
    report = preflight(Weighted, data, devices=2, strategy="ddp_fork")
    assert report.ok, str(report)


def test_forgotten_buffer_is_found(data):
    """The check sees what no CPU test sees: a tensor that Lightning does not move."""
    report = preflight(Forgotten, data, devices=2)
    assert [finding.name for finding in report.errors] == ["self.class_weights"]
