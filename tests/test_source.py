"""Source lines: whose a file is, which line gives an attribute its value."""

from __future__ import annotations

import os

import pytest
import pytorch_lightning as pl
import torch
import torchmetrics
from torch import nn

import lightning_devcheck
from lightning_devcheck._source.files import is_framework, line_of, user_lines
from lightning_devcheck._source.queries import attribute_origin, method_line


@pytest.mark.parametrize(
    "package", [torch, pl, torchmetrics, lightning_devcheck, os], ids=lambda module: module.__name__
)
def test_framework_files(package):
    """torch, Lightning, torchmetrics, this package and the standard library are not the user's."""
    assert is_framework(package.__file__)


@pytest.mark.parametrize("filename", [__file__, "<ipython-input-3>", "<string>", "/home/me/torch/train.py", "train.py"])
def test_user_files(filename):
    """Everything else is, also what only looks like a framework's."""
    assert not is_framework(filename)


def test_other_libraries_come_last():
    """A line of another installed library is used only where there is none of the user's."""
    other = f"{os.path.dirname(os.path.dirname(torch.__file__))}/timm/layers.py"
    frames = [
        f'  File "{__file__}", line 3, in step\n    loss = model(x)\n',
        f'  File "{other}", line 7, in forward\n    return x * y\n',
        f'  File "{torch.__file__}", line 9, in call\n    run()\n',
    ]
    assert [place.lineno for place in user_lines(frames)] == [3, 7]


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = None
        self.inherited = torch.ones(1)
        self.left, self.right = torch.ones(1), torch.ones(2)
        self.register_buffer("scale", torch.ones(3))
        self.count = torch.zeros(2)

    def forward(self, x):
        self.layer = nn.Linear(2, 2)
        self.count[0] += 1
        self.count += 1
        return x


class Child(Base):
    def other(self):
        return 1


@pytest.mark.parametrize(
    ("attribute", "line", "function"),
    [
        ("layer", "self.layer = nn.Linear(2, 2)", "forward"),
        ("inherited", "self.inherited = torch.ones(1)", "__init__"),
        ("right", "self.left, self.right = torch.ones(1), torch.ones(2)", "__init__"),
        ("scale", 'self.register_buffer("scale", torch.ones(3))', "__init__"),
        ("count", "self.count = torch.zeros(2)", "__init__"),
    ],
)
def test_line_of_an_attribute(attribute, line, function):
    """The line that makes an attribute's value, in the class or a base; placeholders and updates do not count."""
    origin = attribute_origin(Child, attribute)
    assert (origin.line, origin.function) == (line, function)


def test_attribute_without_a_line():
    """Classes of frameworks and unknown attributes have none."""
    assert attribute_origin(Child, "missing") is None
    assert attribute_origin(nn.Linear, "weight") is None


def test_line_of_a_method():
    """A method is shown by its last return."""
    assert method_line(Child, "forward").line == "return x"
    assert method_line(Child, "missing") is None


def test_line_without_source():
    """A file that is gone has a number and no text."""
    assert line_of("/nowhere/gone.py", 5).line == ""


class WithHook(nn.Module):
    """Keeps a tensor behind a function inside a method, and has a class of its own inside."""

    def __init__(self):
        super().__init__()

        def hook():
            return None

        self.kept = torch.zeros(3)
        self.hook = hook

    class Inner:
        """Keeps a tensor under a name that the class around has none of."""

        def __init__(self):
            self.own = torch.zeros(3)


def test_line_after_a_nested_function():
    """A statement behind a nested function is in the method, not in the nested function."""
    assert attribute_origin(WithHook, "kept").function == "__init__"


def test_attribute_of_a_nested_class():
    """What a class inside keeps is no attribute of the class around it."""
    assert attribute_origin(WithHook.Inner, "own").line == "self.own = torch.zeros(3)"
    assert attribute_origin(WithHook, "own") is None
