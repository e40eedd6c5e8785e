"""Tensors, modules and metrics in places that ``Module.to`` does not reach; found by reading, not by calling."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from lightning_devcheck._compat import no_torch_function
from lightning_devcheck._judge.causes import cause_of
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import (
    GENERATOR,
    dtype_of,
    inside,
    is_a,
    is_metric,
    is_tensor,
    registered,
    shape_of,
)
from lightning_devcheck._observe.module_tree import ModuleTree, tensors_of
from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.report import Report
from lightning_devcheck._report.rules import RULES, make_finding
from lightning_devcheck._source.files import attribute_origin, outside_origin, part_origin


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Something that is kept where `torch.nn.Module.to` does not reach.

    Attributes:
        name: As the user would type it, ``self.heads[0]``.
        value: The tensor or module itself; a place is dropped as soon as it is judged.
        owner: The class that assigns the attribute.
        attribute: The attribute that holds it, ``heads``.
        root: The class of the tree's root.
    """

    name: str
    value: Any
    owner: type
    attribute: str
    root: type

    @property
    def origin(self) -> Origin | None:
        """The line that assigns the attribute, where the source is at hand."""
        return attribute_origin(self.owner, self.attribute) or outside_origin(self.root, self.name)

    @property
    def made(self) -> Origin | None:
        """The line to change: for a tensor the one that puts it into the attribute, else the attribute's own."""
        plain = is_a(self.value, torch.Tensor) and not is_a(self.value, torch.nn.Parameter)
        return (part_origin(self.owner, self.attribute, self.name) if plain else None) or self.origin


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


def unregistered(module: torch.nn.Module, tree: ModuleTree | None = None) -> Iterator[Place]:
    """Everything in the module tree that is not registered with its owner, each object once.

    Args:
        module: The root of the tree.
        tree: The module's tree, where that is at hand.
    """
    tree = ModuleTree(module) if tree is None else tree
    places = list(_plain_places(tree))
    known = {id(part) for part in tree.modules} if places else set()
    for part in tree.modules if places else ():
        known |= {id(t) for kind in ("_parameters", "_buffers") for t in registered(part, kind).values()}
    yield from (place for place in places if id(place.value) not in known)


def _plain_places(tree: ModuleTree) -> Iterator[Place]:
    seen: set[int] = set()
    for index, attribute, value in tree.attributes:
        owner = tree.modules[index]
        if attribute == "_hparams" or is_metric(owner):
            continue  # a metric's states move with it
        for name, found in inside(value, f"{tree.path(index)}.{attribute}", seen=seen):
            if not is_a(found, GENERATOR):
                yield Place(name, found, type(owner), attribute, type(tree.modules[0]))


def _finding(place: Place) -> Finding:
    value, origin = place.value, place.made
    if is_tensor(value):
        rule, devices = "unregistered-tensor", str(device_of(value))
        fields: dict[str, Any] = {"shape": shape_of(value), "dtype": dtype_of(value)}
    else:
        rule = "unregistered-metric" if is_metric(value) else "unregistered-module"
        held = sorted({str(device_of(tensor)) for _, tensor in tensors_of(value)})
        devices, fields = ", ".join(held) or "cpu", {}
    words = "unregistered-parameter" if is_a(value, torch.nn.Parameter) else rule
    why, fix = cause_of(words, place.name, origin, None, devices, "", place.owner)
    fields |= {"why": why or RULES[words].why, "fix": fix or RULES[words].fix}
    return make_finding(rule, name=place.name, device=devices, origin=origin, **fields)
