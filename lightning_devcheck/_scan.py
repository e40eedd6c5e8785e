"""Tensors, modules and metrics in places that ``Module.to`` does not reach; found by reading, not by calling."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from lightning_devcheck._causes import cause_of
from lightning_devcheck._compat import no_torch_function
from lightning_devcheck._devices import device_of
from lightning_devcheck._records import Finding, Origin
from lightning_devcheck._report import Report
from lightning_devcheck._rules import make_finding
from lightning_devcheck._source import attribute_origin
from lightning_devcheck._values import (
    Visit,
    inside,
    is_a,
    is_metric,
    own_attributes,
    registered,
    tensors_of,
    walk_modules,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Something that is kept where `torch.nn.Module.to` does not reach.

    Attributes:
        name: As the user would type it, ``self.heads[0]``.
        value: The tensor or module itself; a place is dropped as soon as it is judged.
        owner: The class that assigns the attribute.
        attribute: The attribute that holds it, ``heads``.
    """

    name: str
    value: torch.Tensor | torch.nn.Module
    owner: type
    attribute: str

    @property
    def origin(self) -> Origin | None:
        """The line that assigns the attribute, where the source is at hand."""
        return attribute_origin(self.owner, self.attribute)


def scan(module: torch.nn.Module) -> Report:
    """List the tensors, modules and metrics that Lightning will not move with a module.

    Looks into plain attributes, lists, tuples, dicts, dataclasses, your own plain objects, `functools.partial`s and
    closures of the module and of all its sub-modules. It reads what is stored and runs no code of yours: no property,
    ``__getattr__`` or ``__getitem__``. Nothing is on a device, nothing is copied, and processes do not talk. The cost
    grows with the number of modules, about 5 µs each.

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
    if not is_a(module, torch.nn.Module):
        raise TypeError(f"scan(module=...): a torch.nn.Module is needed, this is a {type(module).__name__}.")
    with no_torch_function():
        findings = tuple(map(_finding, unregistered(module)))
    return Report(findings, {"tensors": len(findings)})


def unregistered(module: torch.nn.Module, modules: Sequence[Visit] | None = None) -> Iterator[Place]:
    """Everything in the module tree that is not registered with its owner, each object once.

    Args:
        module: The root of the tree.
        modules: What `walk_modules` gives for it, where that is at hand.
    """
    modules = list(walk_modules(module)) if modules is None else modules
    places = list(_plain_places(modules))
    known = set() if not places else {id(part) for _, part, _ in modules}
    for _, part, _ in modules if places else ():
        known |= {id(t) for kind in ("_parameters", "_buffers") for t in registered(part, kind).values()}
    yield from (place for place in places if id(place.value) not in known)


def _plain_places(modules: Sequence[Visit]) -> Iterator[Place]:
    seen: set[int] = set()
    for path, owner, _ in modules:
        for attribute, value in own_attributes(owner):
            if attribute == "_hparams":
                continue
            if is_metric(owner):
                break  # its states move with it
            for name, found in inside(value, f"{path}.{attribute}", seen=seen):
                if not is_a(found, torch.Generator):
                    yield Place(name, found, type(owner), attribute)


def spell_path(fqn: str) -> str:
    """A fully qualified name as the user types it: ``heads.0.weight`` is ``self.heads[0].weight``."""
    parts = fqn.split(".") if fqn else []
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def _finding(place: Place) -> Finding:
    value, origin = place.value, place.origin
    if isinstance(value, torch.Tensor):  # `inside` made sure of the type
        rule, devices = "unregistered-tensor", str(device_of(value))
        shape = None if torch.nn.parameter.is_lazy(value) else tuple(value.shape)
        fields: dict[str, Any] = {"shape": shape, "dtype": str(value.dtype).removeprefix("torch.")}
    else:
        rule = "unregistered-metric" if is_metric(value) else "unregistered-module"
        held = sorted({str(device_of(tensor)) for _, tensor in tensors_of(value)})
        devices, fields = ", ".join(held) or "cpu", {}
    why, fix = cause_of(rule, place.name, origin, None, devices, "")
    return make_finding(rule, name=place.name, device=devices, origin=origin, why=why, fix=fix, **fields)
