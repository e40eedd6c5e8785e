"""A module and all that it registers: each part once, with the name the user would type."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from lightning_devcheck._compat import owned_tensors, tensors_of_part
from lightning_devcheck._observe.inert import inside, is_a, is_metric, own_attributes, own_tensors
from lightning_devcheck._source.path import Link, Path


class ModuleTree:
    """A module and all that it registers, each module once, those nearest to the root first.

    Parallel lists rather than a tuple per module: thousands of new tuples would set off the garbage
    collector.

    Attributes:
        modules: The modules, the root first.
    """

    def __init__(self, root: torch.nn.Module, name: str = "self") -> None:
        self.modules = [root]
        self._parents, self._keys, self._name = [-1], [""], name
        seen = {id(root)}
        for index, module in enumerate(self.modules):  # grows on the way
            children = object.__getattribute__(module, "__dict__").get("_modules")
            for key, child in dict.items(children) if is_a(children, dict) else ():
                if id(child) not in seen and is_a(child, torch.nn.Module):
                    seen.add(id(child))
                    self.modules.append(child)
                    self._parents.append(index)
                    self._keys.append(key)

    @functools.cached_property
    def attributes(self) -> list[tuple[int, str, Any]]:
        """What the modules hold besides what torch and Lightning keep there: a module's position, name and value."""
        return [(index, *held) for index, module in enumerate(self.modules) for held in own_attributes(module)]

    def path(self, index: int) -> Path:
        """What the user calls a module, ``self.heads[0]``."""
        if not index:
            return Path.parse(self._name)
        parent = self._parents[index]
        return self.path(parent) + link_to(self.modules[parent], self._keys[index])

    def links(self, index: int) -> list[tuple[type, str]]:
        """The classes and attributes that lead to a module, innermost first."""
        found: list[tuple[type, str]] = []
        while index:
            parent = self._parents[index]
            found.append((type(self.modules[parent]), self._keys[index]))
            index = parent
        return found


class OwnTensors:
    """The parameters and buffers of a module and its parts, listed once for a check.

    Their names take five times as long, so they wait until they are asked for.

    Attributes:
        module: The module.
        parameters: The parameters, one that is shared as often as it is registered.
        buffers: The buffers, likewise.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.parameters, self.buffers = owned_tensors(module)

    @functools.cached_property
    def parts(self) -> list[dict[str, torch.Tensor]]:
        """What each part holds, by its name as typed, in torch's order."""
        found = []
        for prefix, part in self.module.named_modules():
            start = spell_path(self.module, prefix)
            held = tensors_of_part(part).items()
            found.append({f"{start}{link_to(part, key)}": tensor for key, tensor in held})
        return found

    @functools.cached_property
    def names(self) -> dict[int, str]:
        """The name of each as typed, by its id; of one that is shared the first."""
        found: dict[int, str] = {}
        for part in reversed(self.parts):
            found |= {id(tensor): name for name, tensor in reversed(part.items())}
        return found


def link_to(module: torch.nn.Module, key: str) -> Link:
    """How a registered part is spelled after its owner's name: ``.proj``, ``[0]``, ``["a"]``."""
    if is_a(module, (torch.nn.ModuleDict, torch.nn.ParameterDict)):
        return Link("item", key)
    return Link("item", int(key)) if key.isdecimal() else Link("attribute", key)


def spell_path(root: torch.nn.Module, path: str) -> str:
    """A part of a module as the user types it: ``heads.0.weight`` is ``self.heads[0].weight``, or ``self.heads["0"]…``.

    Args:
        root: The module.
        path: The part's fully qualified name.
    """
    found, module = Path("self"), root
    for key in path.split(".") if path else ():
        found += link_to(module, key)
        children = object.__getattribute__(module, "__dict__")["_modules"]
        module = dict.get(children, key, module)
    return str(found)


def tensors_of(module: torch.nn.Module, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and metric states of a module and its sub-modules, with names that start with ``name``."""
    tree = ModuleTree(module, name)
    for index, part in enumerate(tree.modules):
        for key, tensor in own_tensors(part).items():
            yield str(tree.path(index) + link_to(part, key)), tensor
        for key, state in metric_states(part):
            yield from inside(state, f"{tree.path(index)}.{key}")


def metric_states(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """The states of a torchmetrics metric, by name; nothing for other modules."""
    own = object.__getattribute__(module, "__dict__")
    defaults = own.get("_defaults")
    if not is_a(defaults, dict) or not is_metric(module):
        return []
    return [(key, own[key]) for key in defaults if key in own]
