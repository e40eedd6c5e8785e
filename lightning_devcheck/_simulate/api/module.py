"""``Module.to`` keeps its parameters' identity, as it does between the CPU and CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lightning_devcheck._simulate.compat import APPLY, HOOKS
from lightning_devcheck._simulate.patch import Change


def module_stand_ins() -> Iterable[Change]:
    """What to replace: owner, attribute and stand-in."""
    owner, name = APPLY
    yield owner, name, _keeping(getattr(owner, name))


def _keeping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the old parameter objects the new tensors: an optimizer made before a move goes on holding them."""

    @functools.wraps(original)
    def apply(self: torch.nn.Module, fn: Any, *args: object, **kwargs: object) -> Any:
        put_back = _convert_lazy(self, fn)
        before = dict(self._parameters)
        try:
            result = original(self, fn, *args, **kwargs)
        finally:
            put_back()
        after = dict(self._parameters)  # a scripted module's own mapping has no get
        for name, old in before.items():
            new = after.get(name)
            if old is not None and new is not None and new is not old and _became(old, new):
                self._parameters[name] = old
        return result

    return apply


def _convert_lazy(module: torch.nn.Module, convert: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
    """Convert a module's own lazy tensors, and take them out of it; the result puts them back.

    Args:
        module: The module, without its children.
        convert: What ``Module.to`` and its like do to a tensor.
    """
    taken = []
    for registry in (module._parameters, module._buffers):
        for name, tensor in list(registry.items()):
            if tensor is not None and torch.nn.parameter.is_lazy(tensor):
                converted = convert(tensor)
                if converted is not tensor:
                    tensor.data = converted
                taken.append((registry, name, tensor))
                registry[name] = None

    def put_back() -> None:
        for registry, name, tensor in taken:
            registry[name] = tensor  # type: ignore[assignment]

    return put_back


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
