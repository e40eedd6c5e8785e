"""What a function that is kept somewhere has captured: the line that made it."""

from __future__ import annotations

import types
from typing import Any

import torch

from lightning_devcheck._explain.bindings import find_binding
from lightning_devcheck._explain.calls import definition, frame_inside
from lightning_devcheck._observe.inert import MISSING, attribute, item
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import origin_at
from lightning_devcheck._source.path import Path


def captured_line(root: torch.nn.Module | None, name: str) -> Origin | None:
    """The line that gave a captured variable its value; None for an argument of the function around.

    Args:
        root: The module.
        name: What holds the function, and the variable: ``self.criterion(weight).bias``.
    """
    function: Any = root
    for link in Path.parse(name).links:
        if link.kind == "variable":
            return _captured(function, link.key)
        step = attribute if link.kind == "attribute" else item
        function = step(function, link.key)
    return None


def _captured(function: Any, name: str) -> Origin | None:
    node = definition(function.__code__) if type(function) is types.FunctionType else None
    if node is None:
        return None
    inner = frame_inside(function, MISSING, None, node)
    binding = find_binding(inner, name)
    if binding is None or binding.kind != "value" or not binding.function:
        return None
    return origin_at(inner.filename, binding.node, binding.function)
