"""Where an object is kept in the module that is trained, and the line that put it there."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._judge.culprit import Kind
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import inside, is_metric, is_module, own_tensors, registered
from lightning_devcheck._observe.module_tree import ModuleTree, link_to, metric_states, tensors_of
from lightning_devcheck._observe.unregistered import unregistered
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import is_host, statement_at
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.queries import attribute_origin, move_line, part_origin, statements_of
from lightning_devcheck._source.statements import is_host_copy, spell, targets_of


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor's name and history.

    Attributes:
        name: As the user types it.
        origin: The line that made it.
        kind: Where it is kept.
    """

    name: str
    origin: Origin | None
    kind: Kind


def locate(root: torch.nn.Module | None, wanted: Any, name: str = "self") -> Named | None:
    """Find an object in a module tree, by identity.

    Args:
        root: The root of the tree.
        wanted: The object.
        name: What the root is called.
    """
    if root is None:
        return None
    tree = ModuleTree(root, name)
    for index, module in enumerate(tree.modules):
        for key, value in own_tensors(module).items():
            if value is wanted:
                return _registered(tree, index, key)
        if key := _state_key(module, wanted):
            line = _put_on_host(type(module), key) or _first_line(tree.links(index))
            return Named(str(tree.path(index)), line, "metric")
    return _among_unregistered(root, tree, wanted)


def left_behind(
    root: torch.nn.Module | None, frames: Iterable[Frame], tensors: Iterable[torch.Tensor]
) -> torch.Tensor | None:
    """Find a plain attribute that stayed on a device, of a module that the Trainer has put back on the CPU.

    Args:
        root: The module that was trained.
        frames: What runs; while a Trainer does, its module is where it should be.
        tensors: Those on the device.
    """
    if root is None or any(is_host(frame.filename) for frame in frames):
        return None
    held = [registered(module, "_parameters") for module in ModuleTree(root).modules]
    devices = {device_of(parameter) for found in held for parameter in found.values()}
    if devices != {torch.device("cpu")}:
        return None
    located = ((tensor, locate(root, tensor)) for tensor in tensors)
    return next((tensor for tensor, found in located if found is not None and found.kind == "attribute"), None)


def _registered(tree: ModuleTree, index: int, key: str) -> Named:
    module = tree.modules[index]
    name = str(tree.path(index) + link_to(module, key))
    moved = next((line for cls, link in tree.links(index) if (line := move_line(cls, link)) is not None), None)
    line = _data_line(type(tree.modules[0]), name) or moved or _first_line([(type(module), key), *tree.links(index)])
    return Named(name, line, "registered")


def _state_key(metric: torch.nn.Module, wanted: Any) -> str:
    """The state of a metric that something is, or is a part of."""
    states = ((key, found) for key, state in metric_states(metric) for _, found in inside(state, ""))
    return next((key for key, found in states if found is wanted), "")


def _put_on_host(metric: type, key: str) -> Origin | None:
    """The line of a user's metric that copies to the CPU what it keeps in a state."""
    line = part_origin(metric, key, Path.parse(f"self.{key}[0]"))
    made = statement_at(line)
    return line if made is not None and any(is_host_copy(node) for node in ast.walk(made)) else None


def _among_unregistered(root: torch.nn.Module, tree: ModuleTree, wanted: Any) -> Named | None:
    for place in unregistered(root, tree):
        if place.value is wanted:
            return Named(place.name, place.made, "attribute")
        held = place.value
        if is_module(held):
            for name, tensor in tensors_of(held, place.name):
                if tensor is wanted:
                    metric = is_metric(held)
                    return Named(place.name if metric else name, place.made, "metric" if metric else "module")
    return _attribute_with(tree, wanted)


def _attribute_with(tree: ModuleTree, wanted: Any) -> Named | None:
    """Find what is no part of a scan: a generator, hyper-parameters."""
    for index, key, value in tree.attributes:
        spelled = f"{tree.path(index)}.{'hparams' if key == '_hparams' else key}"
        name = next((name for name, found in inside(value, spelled) if found is wanted), None)
        if name is not None:
            return Named(name, attribute_origin(type(tree.modules[index]), key), "attribute")
    return None


def _data_line(owner: type, name: str) -> Origin | None:
    """The line of a class that puts other memory into a parameter: ``self.layer.weight.data = tensor``."""
    for statement in statements_of(owner):
        if f"{name}.data" in map(spell, targets_of(statement.node)):
            return statement.origin
    return None


def _first_line(links: Iterable[tuple[type, str]]) -> Origin | None:
    """The innermost of the classes on the way that has a line of the user's for the attribute."""
    return next((line for cls, key in links if (line := attribute_origin(cls, key)) is not None), None)
