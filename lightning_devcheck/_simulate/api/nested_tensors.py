"""Nested tensors, which are not simulated, and say so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from lightning_devcheck._simulate.api.making import named_device
from lightning_devcheck._simulate.arguments import tensors_in
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor

NESTING = ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged", "narrow")
REFUSAL = "nested tensors on CUDA are not simulated: pad the tensors to one shape instead"


def nested_stand_ins() -> Iterator[Change]:
    """What to replace: owner, attribute and stand-in."""
    for name in NESTING:
        if hasattr(torch.nested, name):
            yield torch.nested, name, _refusing(getattr(torch.nested, name))


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(*args: object, **kwargs: object) -> Any:
        tensors = tensors_in(*args, *kwargs.values())
        simulated = any(isinstance(tensor, SimulatedTensor) for tensor in tensors)
        if simulated or named_device(kwargs.get("device")) is not None:
            raise NotImplementedError(REFUSAL)
        return original(*args, **kwargs)

    return make
