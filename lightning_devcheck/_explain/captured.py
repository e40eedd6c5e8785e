"""What a function that is kept somewhere has captured: the line that made it."""

from __future__ import annotations

import ast
import types

import torch

from lightning_devcheck._explain.bindings import find_binding
from lightning_devcheck._explain.calls import definition, frame_inside
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.mentions import evaluate
from lightning_devcheck._observe.inert import MISSING
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import origin_at

NOWHERE = (lambda: None).__code__


def captured_line(root: torch.nn.Module | None, root_name: str, name: str) -> Origin | None:
    """The line that gave a captured variable its value; None for an argument of the function around.

    Args:
        root: The module.
        root_name: What it is called.
        name: What holds the function, and the variable: ``self.criterion(weight).bias``.
    """
    kept, _, rest = name.partition("(")
    if not rest:
        return None
    outer = Frame("", 0, NOWHERE, {root_name: root}, {})
    _, function = evaluate(ast.parse(kept, mode="eval").body, outer)
    if type(function) is not types.FunctionType:
        return None
    node = definition(function.__code__)
    if node is None:
        return None
    inner = frame_inside(function, MISSING, outer, node)
    binding = find_binding(inner, rest.partition(")")[0])
    if binding is None or binding.kind != "value" or not binding.function:
        return None
    return origin_at(inner.filename, binding.node, binding.function)
