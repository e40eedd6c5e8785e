"""What code inside torch asks of a tensor: its device, ``meta`` in C++ for a simulated one, or its class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from lightning_devcheck._simulate.compat import GROUPING, PARSING, RECORDED, WithoutFunctions
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor


def answer_stand_ins() -> Iterator[Change]:
    """What to replace: owner, attribute and stand-in."""
    yield (*PARSING, _parsing(getattr(*PARSING)))
    yield (*GROUPING, _grouped)
    yield (*RECORDED, (*getattr(*RECORDED), SimulatedTensor))


def _parsing(original: Callable[..., Any]) -> Callable[..., Any]:
    """What ``Module.to`` makes of its arguments: another tensor stands for its device and dtype."""

    @functools.wraps(original)
    def parse(*args: object, **kwargs: object) -> Any:
        other = args[0] if args else kwargs.get("tensor")
        if isinstance(other, SimulatedTensor):
            args, kwargs = (other.device, other.dtype, *args[1:]), {}
        with WithoutFunctions():  # torch would look this function up by its name, and hand it to the function mode
            return original(*args, **kwargs)

    return parse


def _grouped(
    lists: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[torch.device, torch.dtype], tuple[list[list[Any]], list[int]]]:
    """Rows of tensor lists by the device and dtype of the first list's tensor."""
    groups: dict[tuple[torch.device, torch.dtype], tuple[list[list[Any]], list[int]]] = {}
    for position, first in enumerate(lists[0]):
        columns, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for column, values in zip(columns, lists, strict=True):
            if values:
                column.append(values[position])
        if with_indices:
            indices.append(position)
    return groups
