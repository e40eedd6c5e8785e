"""Tensors, modules and metrics in places that ``Module.to`` does not reach; found by reading, not by calling."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import torch

from lightning_devcheck._devices import device_of
from lightning_devcheck._records import Finding, Origin
from lightning_devcheck._report import Report
from lightning_devcheck._rules import make_finding
from lightning_devcheck._source import attribute_origin

MAX_DEPTH = 4  # containers in containers
# what torch and Lightning keep in a module's own dictionary
INTERNAL = {"_parameters", "_buffers", "_modules", "_trainer", "_fabric", "_hparams", "_hparams_initial"}


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Something that is kept where `torch.nn.Module.to` does not reach.

    Attributes:
        name: As the user would type it, ``self.heads[0]``.
        value: The tensor or module itself; a place is dropped as soon as it is judged.
        origin: The line that assigns the attribute, where the source is at hand.
    """

    name: str
    value: torch.Tensor | torch.nn.Module
    origin: Origin | None


def scan(module: torch.nn.Module) -> Report:
    """List the tensors, modules and metrics that Lightning will not move with a module.

    Looks into plain attributes, lists, tuples, dicts, dataclasses and `functools.partial`s of the module and of all its
    sub-modules. It reads ``vars()`` and runs no code of yours: no property, ``__getattr__`` or ``__getitem__``. Nothing
    is on a device, nothing is copied, and processes do not talk. The cost grows with the number of modules, about 5 µs
    each.

    Args:
        module: The module that will be moved.

    Returns:
        A report of notes: each is harmless until the thing meets a tensor on a device.

    Raises:
        TypeError: If ``module`` is not a `torch.nn.Module`.

    Example:
        >>> import torch
        >>> from lightning_devcheck import scan
        >>> class Model(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.class_weights = torch.tensor([1.0, 2.0])
        >>> [(finding.rule, finding.name) for finding in scan(Model()).findings]
        [('unregistered-tensor', 'self.class_weights')]
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"scan(module={module!r}): a torch.nn.Module is needed, this is a {type(module).__name__}.")
    places = list(unregistered(module))
    return Report(tuple(map(_finding, places)), {"tensors": len(places)})


def unregistered(module: torch.nn.Module) -> Iterator[Place]:
    """Everything in the module tree that is not registered with its owner, each object once."""
    registered = {id(part) for part in module.modules()}
    registered |= {id(t) for t in (*module.parameters(), *module.buffers())}
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        state = object.__getattribute__(owner, "__dict__")
        for attribute, value in list(state.items()):
            if attribute in INTERNAL or attribute.endswith("_hooks"):
                continue
            origin = functools.partial(attribute_origin, type(owner), attribute)
            for name, found in _inside(value, f"{spell_path(prefix)}.{attribute}", MAX_DEPTH, seen):
                if id(found) not in registered:
                    yield Place(name, found, origin())


def spell_path(fqn: str) -> str:
    """A fully qualified name as the user types it: ``heads.0.weight`` is ``self.heads[0].weight``."""
    parts = fqn.split(".") if fqn else []
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def _inside(value: Any, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, torch.Tensor | torch.nn.Module]]:
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value
        return
    items = _items(value)
    if depth == 0 or not items or id(value) in seen:
        return
    seen.add(id(value))
    for suffix, item in items:
        yield from _inside(item, name + suffix, depth - 1, seen)


def _items(value: Any) -> list[tuple[str, Any]]:
    """The parts of a plain container and how each is spelled; nothing for every other object."""
    kind = type(value)
    if kind in (list, tuple):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if kind is dict:
        return [(f"[{key!r}]".replace("'", '"'), item) for key, item in value.items() if type(key) in (str, int)]
    if kind is functools.partial:
        given = [(f".args[{index}]", item) for index, item in enumerate(value.args)]
        return given + [(f'.keywords["{key}"]', item) for key, item in value.keywords.items()]
    if dataclasses.is_dataclass(kind):
        try:
            state = object.__getattribute__(value, "__dict__")
        except AttributeError:  # slots
            return []
        return [(f".{key}", item) for key, item in state.items()]
    return []


def _finding(place: Place) -> Finding:
    value = place.value
    if isinstance(value, torch.Tensor):
        return make_finding(
            "unregistered-tensor",
            name=place.name,
            device=device_of(value),
            shape=tuple(value.shape),
            dtype=str(value.dtype).removeprefix("torch."),
            origin=place.origin,
            fix=_register_buffer(place.name),
        )
    devices = {device_of(tensor) for tensor in (*value.parameters(), *value.buffers())}
    kind = "metric" if any(cls.__name__ == "Metric" for cls in type(value).__mro__) else "module"
    return make_finding(
        f"unregistered-{kind}",
        name=place.name,
        device=", ".join(sorted(map(str, devices))) or "cpu",
        origin=place.origin,
    )


def _register_buffer(name: str) -> str:
    owner, _, attribute = name.rpartition(".")
    if not attribute.isidentifier():
        return 'self.register_buffer("name", tensor, persistent=False)'
    return f'{owner}.register_buffer("{attribute}", …, persistent=False)'
