"""What a module's own hooks do to a batch on its way to the device."""

from __future__ import annotations

import ast
import re

import torch

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import origin_at
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.queries import method_line, methods_of
from lightning_devcheck._source.statements import puts_on_host, spell

TRANSFER = "transfer_batch_to_device"
AFTER = "on_after_batch_transfer"


def own_transfer(root: torch.nn.Module | None) -> Origin | None:
    """Where a module's own ``transfer_batch_to_device`` returns the batch, if it does all of that itself."""
    for _, method in methods_of(type(root), TRANSFER):
        calls_base = "super()" in spell(method)
        return None if calls_base else method_line(type(root), TRANSFER)
    return None


def added_later(root: torch.nn.Module | None, name: str) -> Origin | None:
    """The line of a module's own ``on_after_batch_transfer`` that puts a part of the batch on the CPU.

    Args:
        root: The module.
        name: The part, ``batch["noise"]``; a line that mentions it goes first.
    """
    words = set(Path.parse(name).keys)
    for filename, method in methods_of(type(root), AFTER):
        simple = [node for node in ast.walk(method) if isinstance(node, ast.stmt) and puts_on_host(node)]
        simple.sort(key=lambda node: words.isdisjoint(re.findall(r"\w+", spell(node))))
        return origin_at(filename, simple[0], AFTER) if simple else None
    return None
