"""Reading objects of unknown classes without running a line of their code.

No ``getattr``, ``isinstance``, ``==`` or ``repr`` on them: properties, ``__getattr__``, ``__class__`` and ``__eq__``
may be anybody's. Only plain dictionaries, slots and the built-in containers are looked into.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import torch

from lightning_devcheck._source.path import Link

Part = tuple[Link, Any]
PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device})
_PLAIN = frozenset(map(id, PLAIN))
MAX_ITEMS = 2_000  # of one container; nobody reads a longer list
# what torch and Lightning keep in a module's own dictionary; Lightning moves the example itself
INTERNAL = frozenset(vars(torch.nn.Module())) | {"_trainer", "_fabric", "_hparams_initial", "_metric_attributes"}
INTERNAL |= {"_example_input_array"}
# classes of these packages hold no tensor that is the user's to move
SKIPPED = frozenset(sys.stdlib_module_names) | {"torch", "lightning", "pytorch_lightning", "lightning_fabric", "numpy"}
SKIPPED |= {"lightning_utilities", "lightning_devcheck", "pandas", "tensorboard", "wandb"}
# classes of torch that keep the user's tensors as they were given
HOLDERS: tuple[type, ...] = (torch.optim.Optimizer, torch.distributions.Distribution, torch.distributions.Transform)
GENERATOR = torch.Generator  # a simulation puts a class of its own in its place; older generators are not of that
# what holds data: it belongs on the CPU until Lightning moves a batch of it
DATA: tuple[type, ...] = (torch.utils.data.Dataset, torch.utils.data.DataLoader, torch.utils.data.Sampler)


def is_a(value: Any, kind: type | tuple[type, ...]) -> bool:
    """``isinstance`` by the real type: ``__class__`` may be a property."""
    return issubclass(type(value), kind)


def bases_of(kind: type) -> tuple[type, ...]:
    """A class and its bases; its metaclass is not asked."""
    found: tuple[type, ...] = type.__getattribute__(kind, "__mro__")
    return found


def class_dict(kind: type) -> Mapping[str, Any]:
    """What a class itself stores."""
    found: Mapping[str, Any] = type.__getattribute__(kind, "__dict__")
    return found


def is_plain(value: Any) -> bool:
    """Whether something is a number, a text or the like; by identity, as a metaclass may define how classes compare."""
    return id(type(value)) in _PLAIN


def is_exactly(value: Any, *kinds: type) -> bool:
    """Whether something is of one of the classes themselves."""
    return any(type(value) is kind for kind in kinds)


def read(tensor: torch.Tensor, name: str) -> Any:
    """An attribute of a tensor as torch itself stores it, whatever the tensor's class says."""
    return getattr(torch.Tensor, name).__get__(tensor)


def dims(tensor: torch.Tensor) -> int:
    """The number of dimensions."""
    return torch.Tensor.dim(tensor)


def shape_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The shape; None for a lazy parameter, which has none yet."""
    lazy = is_a(tensor, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer))
    return None if lazy else tuple(torch.Tensor.size(tensor))


def dtype_of(tensor: torch.Tensor) -> str:
    """The dtype as one word, ``float32``."""
    return str(read(tensor, "dtype")).removeprefix("torch.")


def is_module(value: Any) -> TypeGuard[torch.nn.Module]:
    """Whether something is a `torch.nn.Module`."""
    return is_a(value, torch.nn.Module)


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether something is a `torch.Tensor`."""
    return is_a(value, torch.Tensor)


def namespace(value: Any) -> dict[str, Any]:
    """What ``vars(value)`` and its slots hold; empty where the class puts something else in their place."""
    kind = type(value)
    found: dict[str, Any] = {}
    for cls in reversed(bases_of(kind)):
        builtin = class_dict(cls).get("__module__", "builtins") in sys.builtin_module_names
        for name, member in class_dict(cls).items():
            if name == "__dict__":
                if not is_exactly(member, types.GetSetDescriptorType, types.MemberDescriptorType):
                    return {}  # a property, or the like
                continue
            if type(member) is types.MemberDescriptorType and not builtin:
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
    return {key: value for key, value in dict.items(own) if value is not None} if is_a(own, dict) else {}


def own_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module itself."""
    return registered(module, "_parameters") | registered(module, "_buffers")


def own_attributes(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """What a module holds besides what torch and Lightning keep there; plain numbers and texts are left out."""
    own = object.__getattribute__(module, "__dict__")
    return [
        (key, v) for key, v in own.items() if type(key) is str and key not in INTERNAL and id(type(v)) not in _PLAIN
    ]


def attribute(value: Any, name: str) -> Any:
    """An attribute that is simply stored; `MISSING` where code would have to run to get it."""
    if is_a(value, torch.nn.Module):
        own = object.__getattribute__(value, "__dict__")
        for kind in ("_parameters", "_buffers", "_modules"):
            found = registered(value, kind).get(name)
            if found is not None:
                return found
        if name == "hparams":
            return own.get("_hparams", MISSING)  # Lightning's own property
        return own[name] if name in own else _class_value(type(value), name)
    if type(value) is types.ModuleType:
        return object.__getattribute__(value, "__dict__").get(name, MISSING)
    if is_a(value, type):
        return _class_value(value, name)
    found = namespace(value).get(name, MISSING)
    if found is MISSING and is_a(value, (dict, tuple)):
        return dict(parts(value)).get(Link("attribute", name), MISSING)
    return _class_value(type(value), name) if found is MISSING else found


def class_member(cls: type, name: str) -> Any:
    """What a class or its bases store under a name, as it is stored: no descriptor is asked."""
    for base in bases_of(cls):
        found = class_dict(base).get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def has_device(value: Any) -> bool:
    """Whether something has a ``.device``, as a LightningModule has."""
    return class_member(type(value), "device") is not MISSING or attribute(value, "device") is not MISSING


def _class_value(cls: type, name: str) -> Any:
    """A class attribute that is data: a tensor, module or container on the class itself."""
    found = class_member(cls, name)
    return found if is_a(found, (torch.Tensor, torch.nn.Module, list, tuple, dict)) else MISSING


def item(value: Any, key: Any) -> Any:
    """What ``value[key]`` stores, for built-in containers and torch's; `MISSING` for all others.

    Tensors and modules are keys by identity, as their hash is.
    """
    if is_a(value, dict) and is_a(key, (torch.Tensor, torch.nn.Module)):
        return next((held for known, held in dict.items(value) if known is key), MISSING)
    if not is_exactly(key, int, str):
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


def parts(value: Any) -> list[Part]:
    """What an object holds, and what leads to each part; nothing for unknown kinds."""
    kind = type(value)
    if is_plain(value) or is_a(value, (torch.Tensor, torch.nn.Module, type, *DATA)):
        return []
    if is_a(value, dict):
        return _dict_parts(value)
    if is_a(value, (list, tuple, collections.deque)):
        fields = class_dict(kind).get("_fields")
        names = [Link("attribute", name) for name in (fields if type(fields) is tuple else ())]
        held = list(_iterate(value))[:MAX_ITEMS]
        return [*zip((*names, *(Link("item", i) for i in range(len(names), len(held)))), held, strict=False)]
    if is_a(value, functools.partial):
        return _partial_parts(value)
    if kind is types.FunctionType:
        return [*closure_parts(value), *_default_parts(value)]
    if kind is types.MethodType:
        return [(Link("attribute", "__self__"), value.__self__)]
    if kind is types.SimpleNamespace or _is_user_class(kind):
        return [(Link("attribute", name), part) for name, part in namespace(value).items() if type(name) is str]
    return []


def _partial_parts(value: Any) -> list[Part]:
    args, function, keywords = (vars(functools.partial)[name].__get__(value) for name in ("args", "func", "keywords"))
    given = [*((".args", *pair) for pair in enumerate(args)), *((".keywords", *pair) for pair in keywords.items())]
    own = [(Link("code", f"{held}{Link('item', key)}"), part) for held, key, part in given]
    return [*own, (Link("attribute", "func"), function)]


def _default_parts(function: types.FunctionType) -> list[Part]:
    """Default values, by the argument's name."""
    defaults, code = function.__defaults__ or (), function.__code__
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    given = [*zip(names, defaults, strict=False), *(function.__kwdefaults__ or {}).items()]
    return [(Link("variable", name), part) for name, part in given]


def _dict_parts(value: dict[Any, Any]) -> list[Part]:
    # Lightning's hyper-parameters
    dotted = type.__getattribute__(type(value), "__name__") == "AttributeDict"
    kind: Any = "attribute" if dotted else "item"
    held = [(k, part) for k, part in dict.items(value) if is_exactly(k, str, int)][:MAX_ITEMS]
    return [(Link(kind, k), part) for k, part in held]


def closure_parts(function: types.FunctionType) -> list[Part]:
    """The variables that a function has captured."""
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found.append((Link("variable", name), cell.cell_contents))
        except ValueError:  # not assigned yet
            continue
    return found


def _is_user_class(kind: type) -> bool:
    if any(cls is holder for cls in bases_of(kind) for holder in HOLDERS):
        return True
    module = class_dict(kind).get("__module__")
    return type(module) is str and module.partition(".")[0] not in SKIPPED


def inside(value: Any, name: str, depth: int = 4, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Tensors, modules and generators in an object, each once, with their names; modules are not entered."""
    seen = set() if seen is None else seen
    if is_plain(value) or id(value) in seen:
        return
    seen.add(id(value))
    if is_a(value, (torch.Tensor, torch.nn.Module, GENERATOR)):
        yield name, value
    elif depth:
        for link, part in parts(value):
            if not is_plain(part):
                yield from inside(part, f"{name}{link}", depth - 1, seen)


def is_metric(value: Any) -> bool:
    """Whether something is a torchmetrics metric or collection; torchmetrics need not be imported to know."""
    return any(str(class_dict(cls).get("__module__")).startswith("torchmetrics") for cls in bases_of(type(value)))
