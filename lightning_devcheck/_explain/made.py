"""Expressions that put a tensor where it is: those that make one, copy one to a device, or import one."""

from __future__ import annotations

import ast
import sys
import types
from typing import Any

import torch

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.mentions import evaluate, makes_tensor
from lightning_devcheck._observe.inert import DATA, is_a
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import origin_at, parse
from lightning_devcheck._source.statements import is_host_copy, pairs_of, spell


def is_made_on_host(node: ast.AST, frame: Frame) -> bool:
    """Whether an expression itself makes a tensor without a device, or copies one to the CPU."""
    return makes_tensor(node, frame) or is_host_copy(node)


def made_in_place(frame: Frame, device: torch.device | None) -> Named | None:
    """The tensor that the failing expression makes itself, without a device, or copies to the CPU."""
    for tree in (frame.failing(), frame.statement()):
        for node in ast.walk(tree) if tree is not None else ():
            if device is not None and device.type == "cpu" and is_made_on_host(node, frame):
                return Named(spell(node), frame.origin, "call")
    return None


def gives_data(value: ast.expr, frame: Frame) -> bool:
    """Whether an expression makes a dataset or a loader: what it gives is on the CPU, and is to be."""
    kind: Any = evaluate(value.func, frame)[1] if isinstance(value, ast.Call) else None
    return is_a(kind, type) and issubclass(kind, DATA)


def imported(frame: Frame, name: str) -> Origin | None:
    """The line that made an imported constant, in the module it comes from."""
    value = frame.lookup(name)
    for module in list(sys.modules.values()):
        state = vars(module) if type(module) is types.ModuleType else {}
        filename = state.get("__file__")
        if state.get(name) is not value or type(filename) is not str or filename == frame.filename:
            continue
        tree = parse(filename)
        for node in tree.body if tree else ():
            if name in (spell(target) for target, _ in pairs_of(node)):
                return origin_at(filename, node)
    return None
