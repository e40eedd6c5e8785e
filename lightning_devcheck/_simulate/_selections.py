"""Operators whose result, or its shape, depends on values, for a simulation that has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lightning_devcheck._simulate._host import note_stand_in, stand_in_of
from lightning_devcheck._simulate._tensor import META, inner_of
from lightning_devcheck._simulate._unknown import has_values, shapes_of

MASKS = (torch.bool, torch.uint8)
EVERY = "every element as selected"
DISTINCT = "every element as different"
Arguments = tuple[Sequence[Any], dict[str, Any]]


def _read(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    value = stand_in_of(args[0])
    if not hasattr(args[0], "_stand_in"):
        note_stand_in(str(value))
    return value


def _equal(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    note_stand_in("False")
    return False


def _nonzero(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    note_stand_in(EVERY)
    return _positions(args[0].numel(), args[0].dim())


def _positions(count: int, *columns: int) -> torch.Tensor:
    return torch.empty((count, *columns), dtype=torch.long, device=META)


def _masked_select(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    tensor, mask = args
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    if has_values(mask):
        count = int(inner_of(mask).expand(shape).sum())
    else:
        note_stand_in(EVERY)
        count = shape.numel()
    return torch.empty(count, dtype=tensor.dtype, device=META)


def _index(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Indexing: a mask selects what it does where it is known, else everything."""
    tensor, indices, *rest = args
    plain: list[Any] = []
    for index in indices:
        plain += [index] if index is None or index.dtype not in MASKS else _selected(index)
    return func(*shapes_of([tensor, plain, *rest]), **kwargs)


def _selected(mask: torch.Tensor) -> list[torch.Tensor]:
    if has_values(mask):
        return list(inner_of(mask).nonzero().unbind(1))
    note_stand_in(EVERY)
    return [_positions(mask.numel()) for _ in range(mask.dim())]


def _unique(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """All of ``unique``: along a dimension where one is given, else over all elements."""
    note_stand_in(DISTINCT)
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    tensor, dim = inner_of(given["self"]), given.get("dim")
    inner = torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
    if dim is None:
        return inner.reshape(-1), _positions(0).new_empty(tensor.shape), _positions(tensor.numel())
    return inner, _positions(tensor.shape[dim]), _positions(tensor.shape[dim])


def _repeats(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    size = kwargs.get("output_size")
    if size is None:
        note_stand_in("1 for each repeat")
    return _positions(args[0].numel() if size is None else size)


def _bincount(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    note_stand_in("1 for each value")
    least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    return _positions(max(least, 2))


def _no_inf(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """GradScaler's look for inf: there is none, so that the optimizer steps."""
    args[1]._stand_in = 0.0


def _first(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _nothing(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """A check of values, which are taken to be right."""


SELECTIONS: dict[str, Callable[[Any, Sequence[Any], dict[str, Any]], Any]] = {
    "aten::_local_scalar_dense": _read,
    "aten::equal": _equal,
    "aten::allclose": _equal,
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::index": _index,
    "aten::_unique2": _unique,
    "aten::unique_dim": _unique,
    "aten::unique_consecutive": _unique,
    "aten::unique_dim_consecutive": _unique,
    "aten::repeat_interleave": _repeats,
    "aten::bincount": _bincount,
    "aten::_amp_foreach_non_finite_check_and_unscale_": _no_inf,
    "aten::_amp_update_scale_": _first,
    "aten::_assert_async": _nothing,
    "aten::_linalg_check_errors": _nothing,
}
