"""What a plain object keeps: the line is the one in its class that makes it, or the one that hands it over."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

from lightning_devcheck import scan
from tests.helpers.source import is_marked


class Table:
    """Computes what it keeps."""

    def __init__(self):
        sigmas = torch.linspace(1, 0, 4)
        self.steps = sigmas * 10  # the culprit


class Running:
    """Starts with zeros, and replaces them later."""

    def __init__(self, size):
        self.mean, self.count = torch.zeros(size), 0  # the culprit

    def add(self, value):
        """Take in another value."""
        self.count += 1
        self.mean = self.mean + (value - self.mean) / self.count


class Loss:
    """Has a layer, and is no module."""

    def __init__(self, size):
        self.net = nn.Linear(size, size)  # the culprit


class Outer:
    """Keeps another object, in a dictionary."""

    def __init__(self):
        self.parts = {"table": Table()}


class Inherits(Table):
    """Keeps what its base makes."""


class Given:
    """Keeps what it is given."""

    def __init__(self, mean):
        self.mean = mean


class Copies:
    """Keeps copies of what it is given."""

    def __init__(self, parameters):
        self.slow = [parameter.detach().clone() for parameter in parameters]


@dataclasses.dataclass
class Fields:
    """Keeps what it is given, without a line of its own."""

    mean: torch.Tensor


class Model(nn.Module):
    """Keeps objects that have tensors."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.table = Table()
        self.running = Running(4)
        self.loss = Loss(4)
        self.outer = Outer()
        self.inherits = Inherits()
        self.given = Given(torch.zeros(4))  # the culprit
        self.copies = Copies(self.net.parameters())  # the culprit
        self.fields = Fields(torch.zeros(4))  # the culprit


NAMES = (
    "self.table.steps",
    "self.running.mean",
    "self.loss.net",
    'self.outer.parts["table"].steps',
    "self.inherits.steps",
    "self.given.mean",
    "self.copies.slow[0]",
    "self.fields.mean",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_line_that_makes_what_an_object_keeps(name):
    """Of the classes on the way the innermost counts that makes it: one that takes it over does not."""
    findings = {finding.name: finding for finding in scan(Model()).findings}
    assert is_marked(findings[name].origin, "# the culprit")


class Part(nn.Module):
    """Sets an attribute of torch's layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        shift = torch.rand(4)
        self.layer.shift = shift  # the culprit


class Whole(nn.Module):
    """Has such a part."""

    def __init__(self):
        super().__init__()
        self.part = Part()


def test_the_line_that_sets_an_attribute_of_a_layer():
    """It is looked for in the class of every module around the layer, not in the outermost alone."""
    (finding,) = scan(Whole()).findings
    assert finding.name == "self.part.layer.shift"
    assert is_marked(finding.origin, "# the culprit")


def test_a_copy_of_an_object_has_the_line_of_its_class():
    """How an object came to a module says nothing of what its class makes."""
    model = Model()
    model.table = copy.deepcopy(model.table)
    (finding,) = [finding for finding in scan(model).findings if finding.name == "self.table.steps"]
    assert is_marked(finding.origin, "# the culprit")
