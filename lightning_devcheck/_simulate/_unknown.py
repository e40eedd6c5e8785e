"""Which values are known in a simulation without values, and what operators get in place of those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from lightning_devcheck._simulate._host import stand_in_of
from lightning_devcheck._simulate._placing import tensors_of
from lightning_devcheck._simulate._state import running
from lightning_devcheck._simulate._tensor import META, inner_of, without_values

# an operator that torch cannot run on shapes runs on stand-ins, if they take no more than this
TRIED_BYTES = 2**28


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values are there, and nothing unknown was written among them."""
    inner = inner_of(tensor)
    if inner.is_meta:
        return False
    return not (running().spoiled and inner.layout is torch.strided and hasattr(inner.untyped_storage(), "spoiled"))


def spoil(tensor: torch.Tensor) -> None:
    """Remember that values which are not known were written into a tensor; its views share them."""
    inner = inner_of(tensor)
    if not inner.is_meta and inner.layout is torch.strided:
        running().spoiled = True
        inner.untyped_storage().spoiled = True  # type: ignore[attr-defined]


def shapes_of(values: Iterable[Any]) -> list[Any]:
    """Arguments with each tensor's shape and dtype for the tensor, and torch's ``meta`` for every device."""
    return [_shape_of(value) for value in values]


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        inner = inner_of(value)
        return inner if inner.is_meta else without_values(inner)
    if isinstance(value, (list, tuple)):
        return shapes_of(value)
    return META if isinstance(value, torch.device) else value


def with_stand_ins(func: Any, args: Sequence[Any], kwargs: dict[str, Any], error: Exception | None) -> Any:
    """Run an operator that torch cannot run on shapes: on what is known, and on stand-ins for the rest.

    Raises:
        NotImplementedError: If that takes too much memory.
    """
    unknown = [tensor for tensor in tensors_of((*args, *kwargs.values())) if not has_values(tensor)]
    if sum(tensor.numel() * tensor.element_size() for tensor in unknown) > TRIED_BYTES:
        raise NotImplementedError(
            f"{func} on tensors this large is not simulated with values=False: torch has no rule for the shape of its "
            "result. Run it on smaller inputs, or with values."
        ) from error
    return func(*_given(args), **dict(zip(kwargs, _given(kwargs.values()), strict=True)))


def _given(values: Iterable[Any]) -> list[Any]:
    return [_given_for(value) for value in values]


def _given_for(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return inner_of(value) if has_values(value) else torch.full(value.shape, stand_in_of(value), dtype=value.dtype)
    if isinstance(value, (list, tuple)):
        return _given(value)
    return torch.device("cpu") if isinstance(value, torch.device) else value
