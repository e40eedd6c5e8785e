"""Parameters and buffers whose shape is not known yet: they remember the simulated device that they will be on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from lightning_devcheck._compat import default_device
from lightning_devcheck._simulate.api.making import named_device
from lightning_devcheck._simulate.api.module import become
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.places import decide, decided

MARK = "_simulated_index"


def lazy_stand_ins() -> Iterator[Change]:
    """What to replace: owner, attribute and stand-in."""
    for kind in (UninitializedParameter, UninitializedBuffer):
        yield kind, "__new__", staticmethod(_making(kind.__new__))
        yield kind, "materialize", _materializing(kind.materialize)


def _making(original: Callable[..., Any]) -> Callable[..., Any]:
    """A lazy tensor is made on the CPU; C++ cannot make it around a simulated one."""

    @functools.wraps(original)
    def make(cls: Any, requires_grad: bool = True, device: Any = None, dtype: Any = None, **kwargs: object) -> Any:
        wanted = named_device(default_device() if device is None else device)
        made = original(cls, requires_grad, "cpu" if wanted is not None else device, dtype, **kwargs)
        if wanted is not None:
            setattr(made, MARK, running().index_of(wanted))
        return made

    return make


def _materializing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        index, place = getattr(self, MARK, None), decided(self)
        if index is None or device is not None:
            original(self, shape, "cpu" if device is None else device, dtype)
        else:
            made = torch.empty(shape, device=torch.device("cuda", index), dtype=dtype or self.data.dtype)
            if isinstance(self, torch.nn.Parameter):
                made = torch.nn.Parameter(made, self.requires_grad)
            become(self, made)
        if place is not None and device is None:
            decide(self, place)

    return materialize
