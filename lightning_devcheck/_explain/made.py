"""Expressions that put a tensor where it is: those that make one, or copy one to a device."""

from __future__ import annotations

import ast

import torch

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.mentions import evaluate, makes_tensor
from lightning_devcheck._observe.inert import DATA, is_a
from lightning_devcheck._source.statements import is_host_copy, spell

CPU = torch.device("cpu")


def is_made_on_host(node: ast.AST, frame: Frame) -> bool:
    """Whether an expression itself makes a tensor without a device, or copies one to the CPU."""
    return makes_tensor(node, frame) or is_host_copy(node)


def made_in_place(frame: Frame, device: torch.device | None) -> Named | None:
    """The tensor that the failing line makes itself, without a device, or copies to the CPU."""
    if device != CPU:
        return None
    for node in frame.failed_nodes():
        if is_made_on_host(node, frame):
            return Named(spell(node), frame.origin, "call")
    return None


def gives_data(value: ast.expr, frame: Frame) -> bool:
    """Whether an expression makes a dataset or a loader: its data are to be on the CPU."""
    if not isinstance(value, ast.Call):
        return False
    _, kind = evaluate(value.func, frame)
    return is_a(kind, type) and issubclass(kind, DATA)
