"""What operators take and give: tensors, and lists of them within lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

Function = Callable[..., Any]
Args = Sequence[Any]
Kwargs = dict[str, Any]
Conversion = Callable[[Any], object]
# what selects, as an index
MASKS = (torch.bool, torch.uint8)


def tensors_in(*values: object) -> Iterator[torch.Tensor]:
    """Find the tensors among arguments, those in lists included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(*value)


def map_nested(value: Any, change: Conversion) -> Any:
    """Change what lists within lists hold; each stays the list or tuple that it is."""
    if not isinstance(value, (list, tuple)):
        return change(value)
    changed = []
    for item in value:  # an optimizer's lists are long: no call of ours for each of their tensors
        if isinstance(item, (list, tuple)):
            changed.append(map_nested(item, change))
        else:
            changed.append(change(item))
    return alike(value, changed)


def alike(value: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    """Make a list or a tuple, as a value is one; a named tuple stays one."""
    if isinstance(value, list):
        return items
    make = getattr(value, "_make", tuple)
    return make(items)


def call_changed(
    func: Function,
    args: Args,
    kwargs: Kwargs,
    change: Conversion,
) -> Any:
    """Call with every argument changed, those in lists included."""
    positional = [map_nested(value, change) for value in args]
    named = {name: map_nested(value, change) for name, value in kwargs.items()}
    return func(*positional, **named)


def by_name(names: Iterable[str], args: Args, kwargs: Kwargs) -> Kwargs:
    """Name the arguments of a call; those that are left out are not in it."""
    named = dict(zip(names, args, strict=False))
    return named | kwargs
