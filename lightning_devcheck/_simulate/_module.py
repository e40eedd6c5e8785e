"""``Module.to`` keeps its parameters' identity, as it does between the CPU and CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lightning_devcheck._simulate._compat import APPLY, HOOKS


def module_stand_ins() -> Iterable[tuple[Any, str, Any]]:
    """What to replace: owner, attribute and stand-in."""
    owner, name = APPLY
    yield owner, name, _keeping(getattr(owner, name))


def _keeping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the old parameter objects the new tensors: an optimizer made before a move goes on holding them."""

    @functools.wraps(original)
    def apply(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        before = dict(self._parameters)
        result = original(self, *args, **kwargs)
        for name, old in before.items():
            new = self._parameters.get(name)
            if old is not None and new is not None and new is not old and _became(old, new):
                self._parameters[name] = old
        return result

    return apply


def _became(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Swap what two tensor objects are; False where something else holds the tensor itself, such as a graph."""
    try:
        become(old, new)
    except RuntimeError:
        return False
    return True


def become(old: torch.Tensor, new: torch.Tensor) -> None:
    """Swap what two tensor objects are; the hooks stay with the first, as they do where ``.data`` is assigned.

    Raises:
        RuntimeError: Where something else holds the tensor itself, such as a graph.
    """
    hooks = [(name, getattr(old, name)) for name in HOOKS]
    torch.utils.swap_tensors(old, new)
    for name, registered in hooks:
        if registered:
            setattr(new, name, None)
            setattr(old, name, registered)
