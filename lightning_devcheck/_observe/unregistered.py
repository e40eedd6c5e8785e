"""Tensors, modules and metrics where ``Module.to`` does not reach; found without calling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    parts,
    shape_of,
)
from lightning_devcheck._observe.module_tree import ModuleTree, tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.path import Link, Path
from lightning_devcheck._source.queries import (
    attribute_origin,
    hands_on,
    outside_origin,
    part_origin,
)

Kind = Literal["tensor", "parameter", "metric", "module"]


@dataclass(frozen=True, slots=True)
class Place:
    """Something that is kept where `torch.nn.Module.to` does not reach.

    Attributes:
        name: As the user would type it, ``self.heads[0]``.
        value: The tensor or module itself; a place is dropped as soon as it is recorded.
        owner: The class that assigns the attribute.
        attribute: The attribute that holds it, ``heads``.
        above: The classes of the modules around the owner, each with its own name for this.
        way: The classes of plain objects on the way, each with the attribute that leads on.
    """

    name: str
    value: Any
    owner: type
    attribute: str
    above: tuple[tuple[type, Path], ...]
    way: tuple[tuple[type, str], ...] = ()

    @property
    def made(self) -> Origin | None:
        """The line to change: the innermost that makes it, else the one that assigns it."""
        for kind, attribute in reversed(self.way):
            line = self._line(kind, attribute)
            # an argument has its device from outside
            if line is not None and not hands_on(kind, line):
                return line
        line = self._line(self.owner, self.attribute)
        if line is not None:
            return line
        for kind, path in self.above:
            line = outside_origin(kind, path)
            if line is not None:
                return line
        return None

    def _line(self, kind: type, attribute: str) -> Origin | None:
        if not is_tensor(self.value) or is_a(self.value, torch.nn.Parameter):
            return attribute_origin(kind, attribute)
        path = Path.parse(self.name)
        return part_origin(kind, attribute, path)


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
    for index, attribute, value in tree.attributes:
        owner = tree.modules[index]
        if attribute == "_hparams" or is_metric(owner):
            continue  # a metric's states move with it
        spelled = f"{tree.path(index)}.{attribute}"
        for name, found in inside(value, spelled, seen=seen):
            if is_a(found, GENERATOR):
                continue
            path, start = Path.parse(name), Path.parse(spelled)
            above = _above(tree, index, path)
            rest = path.links[len(start.links) :]
            way = _way(value, rest)
            yield Place(name, found, type(owner), attribute, tuple(above), tuple(way))


def _above(tree: ModuleTree, index: int, path: Path) -> Iterator[tuple[type, Path]]:
    """The classes of the modules around a module, each with its own name for a part."""
    length = len(tree.path(index).links)
    for depth, (kind, _) in enumerate(tree.links(index), 1):
        yield kind, Path("self", path.links[length - depth :])


def _way(value: Any, links: Iterable[Link]) -> Iterator[tuple[type, str]]:
    """The plain objects on the way to a part, each with the attribute that leads on."""
    for link in links:
        if link.kind == "attribute":
            yield type(value), link.key
        held = (part for step, part in parts(value) if step == link)
        value = next(held, None)


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
