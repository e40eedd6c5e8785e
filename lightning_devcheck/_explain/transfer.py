"""What a module's own hooks do to a batch on its way to the device."""

from __future__ import annotations

import re

import torch

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.queries import method_line, methods_of, statements_of
from lightning_devcheck._source.statements import puts_on_host, spell

TRANSFER = "transfer_batch_to_device"
AFTER = "on_after_batch_transfer"


def own_transfer(root: torch.nn.Module | None) -> Origin | None:
    """Where a module's own ``transfer_batch_to_device`` returns the batch, all done by itself."""
    for _, method in methods_of(type(root), TRANSFER):
        if "super(" in spell(method):
            return None
        return method_line(type(root), TRANSFER)
    return None


def added_later(root: torch.nn.Module | None, name: str) -> Origin | None:
    """The line of ``on_after_batch_transfer`` that puts a part of the batch on the CPU.

    Args:
        root: The module.
        name: The part, ``batch["noise"]``; a line that mentions it goes first.
    """
    keys = Path.parse(name).keys
    first = None
    for statement in statements_of(type(root)):
        if statement.function != AFTER or not puts_on_host(statement.node):
            continue
        line = statement.origin
        words = re.findall(r"\w+", spell(statement.node))
        if not set(keys).isdisjoint(words):
            return line
        first = first or line
    return first
