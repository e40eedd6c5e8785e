"""`scan`: what Lightning will not move, and what only looks like it."""

from __future__ import annotations

import functools
import types

import pytest
import torch
from torch import nn
from torchmetrics import MeanMetric, MetricCollection

from lightning_devcheck import scan
from tests.helpers.training import Clean


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.ones(3)
        self.heads = [nn.Linear(2, 2)]
        self.named = {"a": (nn.Linear(2, 2),)}
        self.metrics = [MeanMetric()]
        self.loss = functools.partial(nn.functional.cross_entropy, weight=torch.ones(3))
        self.config = types.SimpleNamespace(table=torch.ones(1))


FOUND = {
    ("unregistered-tensor", "self.weights"),
    ("unregistered-module", "self.heads[0]"),
    ("unregistered-module", 'self.named["a"][0]'),
    ("unregistered-metric", "self.metrics[0]"),
    ("unregistered-tensor", 'self.loss.keywords["weight"]'),
    ("unregistered-tensor", "self.config.table"),
}


def test_kinds_of_places():
    """Tensors, modules and metrics in attributes, containers, partials and plain objects are notes."""
    report = scan(Kept())
    assert {(finding.rule, finding.name) for finding in report.findings} == FOUND
    assert report.ok
    assert all(finding.origin.function == "__init__" for finding in report.findings)


def test_names_of_parts():
    """A place in a sub-module is named from the root."""
    root = nn.Sequential(nn.ModuleDict({"a": Kept()}))
    names = {finding.name for finding in scan(root).findings}
    assert 'self[0]["a"].weights' in names


class Rows(torch.utils.data.Dataset):
    """Data of the user's, which Lightning moves batch by batch."""

    def __init__(self):
        self.rows = torch.ones(3, 4)

    def __getitem__(self, index):
        return self.rows[index]


class Registered(Clean):
    """Everything here moves with the module."""

    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"table": torch.ones(1)})
        self.register_buffer("table", torch.ones(2))
        self.metric = MeanMetric()
        self.metrics = MetricCollection({"a": MeanMetric()})
        self.order = [self.net[0], self.net[4].weight, self.table]
        self.again = self.net
        self.numbers = [1.0, "a", None]
        self.sizes = torch.Size([2, 3])
        self.example_input_array = torch.ones(2, 4)
        self.data = torch.utils.data.TensorDataset(torch.ones(2, 4))
        self.loaders = {"train": torch.utils.data.DataLoader(self.data)}
        self.own_data = [Rows()]
        self.activation = functools.partial(nn.functional.leaky_relu, negative_slope=0.1)
        self.forward_again = self.forward
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.tied = nn.Linear(8, 4)
        self.tied.weight = self.net[4].weight


def test_registered_things_are_silent():
    """Lists of layers that are registered elsewhere, metrics and buffers are no findings."""
    assert scan(Registered()).findings == ()


def test_argument_must_be_a_module():
    """Anything else is refused."""
    with pytest.raises(TypeError, match=r"scan\(module=...\): a torch.nn.Module is needed, this is a dict"):
        scan({})
