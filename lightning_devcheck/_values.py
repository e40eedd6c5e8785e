"""Reading objects of unknown classes without running a line of their code.

No ``getattr``, ``isinstance``, ``==`` or ``repr`` on them: properties, ``__getattr__``, ``__class__`` and ``__eq__``
may be anybody's. Only plain dictionaries, slots and the built-in containers are looked into.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device})
MAX_ITEMS = 2_000  # of one container; nobody reads a longer list
# what torch and Lightning keep in a module's own dictionary
INTERNAL = frozenset(vars(torch.nn.Module())) | {"_trainer", "_fabric", "_hparams_initial", "_metric_attributes"}
# classes of these packages hold no tensor that is the user's to move
SKIPPED = frozenset(sys.stdlib_module_names) | {"torch", "lightning", "pytorch_lightning", "lightning_fabric", "numpy"}
SKIPPED |= {"lightning_utilities", "lightning_devcheck", "pandas", "tensorboard", "wandb"}
# classes of torch that keep the user's tensors as they were given
HOLDERS = (torch.optim.Optimizer, torch.distributions.Distribution, torch.distributions.Transform)


def is_a(value: Any, kind: type | tuple[type, ...]) -> bool:
    """``isinstance`` by the real type: ``__class__`` may be a property."""
    return issubclass(type(value), kind)


def is_module(value: Any) -> bool:
    """Whether something is a `torch.nn.Module`."""
    return is_a(value, torch.nn.Module)


def namespace(value: Any) -> dict[str, Any]:
    """What ``vars(value)`` and its slots hold; empty where the class puts something else in their place."""
    kind = type(value)
    found: dict[str, Any] = {}
    for cls in reversed(type.mro(kind) if kind is type else kind.__mro__):
        for name, member in type.__getattribute__(cls, "__dict__").items():
            if name == "__dict__":
                if type(member) not in (types.GetSetDescriptorType, types.MemberDescriptorType):
                    return {}  # a property, or the like
                continue
            if type(member) is types.MemberDescriptorType and cls.__module__ not in sys.builtin_module_names:
                found.update(_slot(member, name, value))
    try:
        state = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return found
    return {**found, **state} if type(state) is dict else found


def _slot(member: Any, name: str, value: Any) -> dict[str, Any]:
    try:
        return {name: member.__get__(value)}
    except AttributeError:  # not assigned yet
        return {}


def registered(module: torch.nn.Module, kind: str) -> dict[str, Any]:
    """The ``_parameters``, ``_buffers`` or ``_modules`` of a module, without those that are None."""
    own = object.__getattribute__(module, "__dict__").get(kind)
    return {} if not own else {key: value for key, value in dict.items(own) if value is not None}


def own_attributes(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """What a module holds besides what torch and Lightning keep there; plain numbers and texts are left out."""
    own = object.__getattribute__(module, "__dict__")
    return [(key, value) for key, value in own.items() if type(value) not in PLAIN and key not in INTERNAL]


def attribute(value: Any, name: str) -> Any:
    """An attribute that is simply stored; `MISSING` where code would have to run to get it."""
    if is_a(value, torch.nn.Module):
        own = object.__getattribute__(value, "__dict__")
        for kind in ("_parameters", "_buffers", "_modules"):
            if (own.get(kind) or {}).get(name) is not None:
                return own[kind][name]
        if name == "hparams":
            return own.get("_hparams", MISSING)  # Lightning's own property
        return own[name] if name in own else _class_value(type(value), name)
    if type(value) is types.ModuleType:
        return object.__getattribute__(value, "__dict__").get(name, MISSING)
    if is_a(value, type):
        return _class_value(value, name)
    found = namespace(value).get(name, MISSING)
    if found is MISSING and is_a(value, (dict, tuple)):
        return next((item for suffix, item in parts(value) if suffix == f".{name}"), MISSING)
    return _class_value(type(value), name) if found is MISSING else found


def class_member(cls: type, name: str) -> Any:
    """What a class or its bases store under a name, as it is stored: no descriptor is asked."""
    for base in type.__getattribute__(cls, "__mro__"):
        found = type.__getattribute__(base, "__dict__").get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def _class_value(cls: type, name: str) -> Any:
    """A class attribute that is data: a tensor, module or container on the class itself."""
    found = class_member(cls, name)
    return found if is_a(found, (torch.Tensor, torch.nn.Module, list, tuple, dict)) else MISSING


def item(value: Any, key: Any) -> Any:
    """What ``value[key]`` stores, for built-in containers and torch's; `MISSING` for all others."""
    if type(key) not in (int, str):
        return MISSING
    if is_a(value, torch.nn.Module):
        children = registered(value, "_modules") or registered(value, "_parameters")
        if type(key) is int and key < 0:
            key += len(children)
        return children.get(str(key), MISSING)
    if is_a(value, (list, tuple, collections.deque)) and type(key) is int:
        held = list(_iterate(value))
        return held[key] if -len(held) <= key < len(held) else MISSING
    if is_a(value, dict):
        return next((v for k, v in dict.items(value) if type(k) is type(key) and k == key), MISSING)
    return MISSING


def _iterate(value: Any) -> Iterator[Any]:
    base: Any = next(kind for kind in (list, tuple, collections.deque) if is_a(value, kind))
    return base.__iter__(value)  # type: ignore[no-any-return]


class _Missing:
    """The type of `MISSING`."""


MISSING: Any = _Missing()


def parts(value: Any) -> list[tuple[str, Any]]:
    """What an object holds and how each part is spelled after the object's name; nothing for unknown kinds."""
    kind = type(value)
    if kind in PLAIN or is_a(value, (torch.Tensor, torch.nn.Module, type)):
        return []
    if is_a(value, dict):
        return _dict_parts(value)
    if is_a(value, (list, tuple, collections.deque)):
        fields = type.__getattribute__(kind, "__dict__").get("_fields")
        names = [f".{field}" for field in fields] if type(fields) is tuple else None
        held = list(_iterate(value))[:MAX_ITEMS]
        return [(names[i] if names and i < len(names) else f"[{i}]", part) for i, part in enumerate(held)]
    if kind is functools.partial:
        given = [(f".args[{i}]", part) for i, part in enumerate(value.args)]
        return [*given, (".func", value.func), *((f'.keywords["{k}"]', part) for k, part in value.keywords.items())]
    if kind is types.FunctionType:
        return _closure_parts(value)
    if kind is types.SimpleNamespace or _is_user_class(kind):
        return [(f".{name}", part) for name, part in namespace(value).items() if type(name) is str]
    return []


def _dict_parts(value: dict[Any, Any]) -> list[tuple[str, Any]]:
    dotted = type(value).__name__ == "AttributeDict"  # Lightning's hyper-parameters
    held = [(k, part) for k, part in dict.items(value) if type(k) in (str, int)][:MAX_ITEMS]
    return [(f".{k}" if dotted else (f"[{k}]" if type(k) is int else f'["{k}"]'), part) for k, part in held]


def _closure_parts(function: types.FunctionType) -> list[tuple[str, Any]]:
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found.append((f"({name})", cell.cell_contents))
        except ValueError:  # not assigned yet
            continue
    return found


def _is_user_class(kind: type) -> bool:
    if any(cls in HOLDERS for cls in kind.__mro__):
        return True
    module = type.__getattribute__(kind, "__dict__").get("__module__")
    return type(module) is str and module.partition(".")[0] not in SKIPPED


def inside(value: Any, name: str, depth: int = 4, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Tensors, modules and generators in an object, each once, with their names; modules are not entered."""
    seen = set() if seen is None else seen
    if type(value) in PLAIN or id(value) in seen:
        return
    seen.add(id(value))
    if is_a(value, (torch.Tensor, torch.nn.Module, torch.Generator)):
        yield name, value
    elif depth:
        for suffix, part in parts(value):
            yield from inside(part, name + suffix, depth - 1, seen)


class ModuleTree:
    """A module and all that it registers, each module once, those nearest to the root first.

    Parallel lists rather than a tuple per module: thousands of new tuples would set off the garbage collector.

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

    def path(self, index: int) -> str:
        """What the user calls a module, ``self.heads[0]``."""
        links: list[str] = []
        while index:
            parent = self._parents[index]
            links.append(spell_child(self.modules[parent], self._keys[index]))
            index = parent
        return self._name + "".join(reversed(links))

    def links(self, index: int) -> list[tuple[type, str]]:
        """The classes and attributes that lead to a module, innermost first."""
        found: list[tuple[type, str]] = []
        while index:
            parent = self._parents[index]
            found.append((type(self.modules[parent]), self._keys[index]))
            index = parent
        return found


def spell_child(module: torch.nn.Module, key: str) -> str:
    """How a registered part is spelled after its owner's name: ``.proj``, ``[0]``, ``["a"]``."""
    if is_a(module, (torch.nn.ModuleDict, torch.nn.ParameterDict)):
        return f'["{key}"]'
    return f"[{key}]" if key.isdigit() else f".{key}"


def tensors_of(module: torch.nn.Module, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and metric states of a module and its sub-modules, with names that start with ``name``."""
    tree = ModuleTree(module, name)
    for index, part in enumerate(tree.modules):
        for kind in ("_parameters", "_buffers"):
            for key, tensor in registered(part, kind).items():
                yield tree.path(index) + spell_child(part, key), tensor
        for key, state in metric_states(part):
            for suffix, tensor in inside(state, f".{key}"):
                yield tree.path(index) + suffix, tensor


def metric_states(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """The states of a torchmetrics metric, by name; nothing for other modules."""
    own = object.__getattribute__(module, "__dict__")
    defaults = own.get("_defaults")
    if type(defaults) is not dict or not is_metric(module):
        return []
    return [(key, own[key]) for key in defaults if key in own]


def is_metric(value: Any) -> bool:
    """Whether something is a torchmetrics metric or collection; torchmetrics need not be imported to know."""
    return any(cls.__module__.startswith("torchmetrics") for cls in type(value).__mro__)
