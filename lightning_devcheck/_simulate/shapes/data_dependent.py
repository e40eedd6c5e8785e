"""Operators whose result, or its shape, depends on values, for a simulation that has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_devcheck._simulate.arguments import MASKS
from lightning_devcheck._simulate.compat import Operator
from lightning_devcheck._simulate.host_reads import note_stand_in, stand_in_of
from lightning_devcheck._simulate.ops.table import Shape
from lightning_devcheck._simulate.shapes.known import has_values, on_shapes
from lightning_devcheck._simulate.tensor.simulated import META, inner_of

EVERY = "every element as selected"
DISTINCT = "every element as different"
Given = dict[str, Any]  # the arguments, each by its name
Rule = Callable[[Operator, Given], Any]
SHAPES: dict[Shape, Rule] = {}


def _rule(shape: Shape) -> Callable[[Rule], Rule]:
    """Register what a cell of the table of operators names."""

    def register(rule: Rule) -> Rule:
        return SHAPES.setdefault(shape, rule)

    return register


@_rule("read")
def _read(operator: Operator, given: Given) -> bool | int | float:
    tensor = given["self"]
    value = stand_in_of(tensor)
    if not hasattr(tensor, "_stand_in"):
        note_stand_in(str(value))
    return value


@_rule("false")
def _equal(operator: Operator, given: Given) -> bool:
    note_stand_in("False")
    return False


@_rule("positions")
def _nonzero(operator: Operator, given: Given) -> torch.Tensor:
    note_stand_in(EVERY)
    tensor = given["self"]
    return _positions(tensor.numel(), tensor.dim())


def _positions(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.long, device=META)


@_rule("masked")
def _masked_select(operator: Operator, given: Given) -> torch.Tensor:
    tensor, mask = given["self"], given["mask"]
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    if has_values(mask):
        selected = inner_of(mask).expand(shape)
        count = int(selected.sum())
    else:
        note_stand_in(EVERY)
        count = shape.numel()
    return torch.empty(count, dtype=tensor.dtype, device=META)


@_rule("indexed")
def _index(operator: Operator, given: Given) -> Any:
    """Index: a mask selects what it does where it is known, else everything."""
    plain: list[torch.Tensor | None] = []
    for index in given["indices"]:
        if index is not None and index.dtype in MASKS:
            plain += _selected(index)
        else:
            plain.append(index)
    return on_shapes(operator, (), {**given, "indices": plain})


def _selected(mask: torch.Tensor) -> list[torch.Tensor]:
    if has_values(mask):
        found = inner_of(mask).nonzero()
        return list(found.unbind(1))
    note_stand_in(EVERY)
    every = _positions(mask.numel())
    return [every] * mask.dim()


@_rule("distinct")
def _unique(operator: Operator, given: Given) -> tuple[torch.Tensor, ...]:
    """Do all of ``unique``: along a dimension where one is given, else over all elements."""
    note_stand_in(DISTINCT)
    tensor, dim = given["self"], given.get("dim")
    values = torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
    if dim is None:
        inverse = _positions(*tensor.shape)
        return values.reshape(-1), inverse, _positions(tensor.numel())
    length = tensor.shape[dim]
    return values, _positions(length), _positions(length)


@_rule("repeated")
def _repeats(operator: Operator, given: Given) -> torch.Tensor:
    size = given.get("output_size")
    if size is None:
        note_stand_in("1 for each repeat")
        size = given["repeats"].numel()
    return _positions(size)


@_rule("counted")
def _bincount(operator: Operator, given: Given) -> torch.Tensor:
    note_stand_in("1 for each value")
    return _positions(max(given.get("minlength", 0), 2))


@_rule("finite")
def _no_inf(operator: Operator, given: Given) -> None:
    """Look for inf as GradScaler does: there is none, so that the optimizer steps."""
    given["found_inf"]._stand_in = 0.0


@_rule("unchanged")
def _first(operator: Operator, given: Given) -> Any:
    return given["self"]


@_rule("nothing")
def _nothing(operator: Operator, given: Given) -> None:
    """A check of values, which are taken to be right."""
