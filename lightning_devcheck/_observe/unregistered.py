"""Tensors, modules and metrics where ``Module.to`` does not reach; found without calling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import (
    GENERATOR,
    dtype_of,
    inside,
    is_a,
    is_metric,
    is_tensor,
    own_tensors,
    shape_of,
)
from lightning_devcheck._observe.module_tree import ModuleTree, tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.queries import attribute_origin, outside_origin, part_origin

Kind = Literal["tensor", "parameter", "metric", "module"]


@dataclass(frozen=True, slots=True)
class Place:
    """Something that is kept where `torch.nn.Module.to` does not reach.

    Attributes:
        name: As the user would type it, ``self.heads[0]``.
        value: The tensor or module itself; a place is dropped as soon as it is recorded.
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
        own = attribute_origin(self.owner, self.attribute)
        path = Path.parse(self.name)
        return own or outside_origin(self.root, path)

    @property
    def made(self) -> Origin | None:
        """The line to change: for a tensor the one that puts it in, else the attribute's own."""
        value, part = self.value, None
        if is_tensor(value) and not is_a(value, torch.nn.Parameter):
            path = Path.parse(self.name)
            part = part_origin(self.owner, self.attribute, path)
        return part or self.origin


@dataclass(frozen=True, slots=True)
class Unregistered:
    """What there is to say of such a place.

    Attributes:
        name: As the user would type it.
        kind: What is kept there.
        devices: Where it is.
        origin: The line to change, where the source is at hand.
        owner: The class that assigns the attribute.
        shape: The shape of a tensor; None for others.
        dtype: The dtype of a tensor; None for others.
    """

    name: str
    kind: Kind
    devices: str
    origin: Origin | None
    owner: type
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


def unregistered(module: torch.nn.Module, tree: ModuleTree | None = None) -> Iterator[Place]:
    """Everything in the module tree that is not registered with its owner, each object once.

    Args:
        module: The root of the tree.
        tree: The module's tree, where that is at hand.
    """
    if tree is None:
        tree = ModuleTree(module)
    places = list(_plain_places(tree))
    if not places:
        return
    known = set(map(id, tree.modules))
    for part in tree.modules:
        known.update(map(id, own_tensors(part).values()))
    for place in places:
        if id(place.value) not in known:
            yield place


def _plain_places(tree: ModuleTree) -> Iterator[Place]:
    seen: set[int] = set()
    root = type(tree.modules[0])
    for index, attribute, value in tree.attributes:
        owner = tree.modules[index]
        if attribute == "_hparams" or is_metric(owner):
            continue  # a metric's states move with it
        spelled = f"{tree.path(index)}.{attribute}"
        for name, found in inside(value, spelled, seen=seen):
            if not is_a(found, GENERATOR):
                yield Place(name, found, type(owner), attribute, root)


def record(place: Place) -> Unregistered:
    """Write down what is kept at a place."""
    value = place.value
    kind = _kind_of(value)
    if is_tensor(value):
        devices = str(device_of(value))
        shape, dtype = shape_of(value), dtype_of(value)
    else:
        held = {str(device_of(tensor)) for _, tensor in tensors_of(value)}
        devices = ", ".join(sorted(held)) or "cpu"
        shape, dtype = None, None
    return Unregistered(place.name, kind, devices, place.made, place.owner, shape, dtype)


def _kind_of(value: Any) -> Kind:
    if is_a(value, torch.nn.Parameter):
        return "parameter"
    if is_tensor(value):
        return "tensor"
    if is_metric(value):
        return "metric"
    return "module"
