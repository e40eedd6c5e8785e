"""Which values are known in a simulation without values, and what stands in for the others."""

from __future__ import annotations

from typing import Any

import torch

from lightning_devcheck._simulate.arguments import Args, Kwargs, call_changed, tensors_in
from lightning_devcheck._simulate.compat import Operator
from lightning_devcheck._simulate.host_reads import stand_in_of
from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.simulated import CPU, META, inner_of, without_values

# an operator that torch cannot run on shapes runs on stand-ins, if they take no more than this
TRIED_BYTES = 2**28


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values are there, and nothing unknown was written among them."""
    inner = inner_of(tensor)
    if inner.is_meta:
        return False
    if not running().spoiled or inner.layout is not torch.strided:
        return True
    return not hasattr(inner.untyped_storage(), "spoiled")


def spoil(tensor: torch.Tensor) -> None:
    """Remember that values which are not known were written into a tensor; its views share them."""
    inner = inner_of(tensor)
    if not inner.is_meta and inner.layout is torch.strided:
        running().spoiled = True
        inner.untyped_storage().spoiled = True  # type: ignore[attr-defined]


def on_shapes(func: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator on its arguments' shapes and dtypes, on torch's ``meta`` device."""
    return call_changed(func, args, kwargs, _shape_of)


def _shape_of(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return without_values(inner_of(value))
    return META if isinstance(value, torch.device) else value


def with_stand_ins(func: Operator, args: Args, kwargs: Kwargs, error: Exception | None) -> Any:
    """Run an operator that torch cannot run on shapes, on stand-ins for what is not known.

    Raises:
        NotImplementedError: If that takes too much memory.
    """
    given = tensors_in(*args, *kwargs.values())
    unknown = [tensor for tensor in given if not has_values(tensor)]
    sizes = [tensor.numel() * tensor.element_size() for tensor in unknown]
    if sum(sizes) > TRIED_BYTES:
        raise NotImplementedError(
            f"{func} on tensors this large is not simulated with values=False: torch has no rule "
            "for the shape of its result. Run it on smaller inputs, or with values."
        ) from error
    return call_changed(func, args, kwargs, _known_or_stand_in)


def _known_or_stand_in(value: object) -> object:
    if isinstance(value, torch.device):
        return CPU
    if not isinstance(value, torch.Tensor):
        return value
    if has_values(value):
        return inner_of(value)
    return torch.full(value.shape, stand_in_of(value), dtype=value.dtype)
