"""Objects that raise, or hang, whatever is asked of them: ``python -m tests.helpers.hostile`` lets all of them hang."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

from lightning_devcheck import explain, scan, simulate_cuda

armed = False
hanging = False
DUNDERS = (
    *("__repr__", "__str__", "__format__", "__dir__", "__eq__", "__ne__", "__hash__", "__bool__", "__len__"),
    *("__iter__", "__next__", "__getitem__", "__contains__", "__call__", "__getattr__", "__setattr__"),
    *("__getattribute__", "__instancecheck__", "__subclasscheck__", "__index__", "__int__", "__float__"),
)


def refuse(*args: Any, **kwargs: Any) -> Any:
    """What all of them do once they are armed."""
    if hanging:
        time.sleep(3600)
    raise SystemExit("user code ran")


def refusing(base: type, *names: str) -> dict[str, Any]:
    """Methods that refuse when armed, and do what the base does before that."""

    def method(name: str) -> Any:
        original = getattr(base, name, None)
        return lambda *args, **kwargs: refuse() if armed or original is None else original(*args, **kwargs)

    return {name: method(name) for name in names}


Meta = type("Meta", (type,), refusing(type, *DUNDERS, "mro"))
AlwaysMeta: Any = Meta


class Hostile:
    """Every way of looking at it raises."""

    def __init__(self) -> None:
        object.__setattr__(self, "hidden", torch.ones(4))

    value = property(refuse)


for _name in DUNDERS:
    if _name not in ("__setattr__", "__instancecheck__", "__subclasscheck__"):
        setattr(Hostile, _name, refuse)


class Masked:
    """Its class and its dictionary are properties that raise."""

    __class__ = property(refuse)  # type: ignore[assignment]
    __dict__ = property(refuse)  # type: ignore[assignment]


class OfHostileClass(metaclass=AlwaysMeta):
    """Its class cannot be compared, hashed, called or asked for an attribute."""


HostileDict = type("HostileDict", (dict,), refusing(dict, *DUNDERS, "items", "keys", "values", "get", "copy"))
HostileList = type("HostileList", (list,), refusing(list, *DUNDERS, "index", "copy"))
HostileText = type("HostileText", (str,), refusing(str, *DUNDERS, "partition", "startswith"))
OWN = ("device", "dtype", "shape", "grad_fn", "requires_grad", "is_meta", "grad", "__class__", "_local_tensor")


class HostileModule(nn.Module):
    """A module whose look-ups raise."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 2)
        self.kept = torch.ones(2)

    device = property(refuse)


for _name, _method in refusing(nn.Module, *DUNDERS, "modules", "parameters", "named_modules", "state_dict").items():
    if _name not in ("__getattribute__", "__instancecheck__", "__subclasscheck__", "__eq__", "__ne__", "__hash__"):
        setattr(HostileModule, _name, _method)


class HostileTensor(torch.Tensor):
    """A tensor class whose functions and attributes raise."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return refuse() if armed else super().__torch_function__(func, types, args, kwargs or {})


for _name, _method in refusing(torch.Tensor, *DUNDERS, "dim", "size", "to", "cpu", "numpy", "element_size").items():
    if _name not in ("__instancecheck__", "__subclasscheck__"):
        setattr(HostileTensor, _name, _method)


class HostileError(RuntimeError):
    """An exception whose attributes raise."""

    __str__ = __repr__ = __getattr__ = refuse

    def __getattribute__(self, name: str) -> Any:
        return refuse() if armed else super().__getattribute__(name)


MAKERS = {
    "object": Hostile,
    "masked": Masked,
    "class": OfHostileClass,
    "type": lambda: OfHostileClass,
    "dict": lambda: HostileDict(a=torch.ones(4)),
    "list": lambda: HostileList([torch.ones(4)]),
    "keys": lambda: {HostileText("key"): torch.ones(4)},
    "module": HostileModule,
    "tensor": lambda: HostileTensor([1.0, 2.0]),
}


def failing_with(things: list[Any], error: type[Exception] | None = None) -> Exception:
    """A device error from a line that mentions the things."""
    with simulate_cuda(devices=1):
        x = torch.ones(4, device="cuda:0")
        try:
            try:
                (lambda mask, *others: x * mask)(torch.ones(4), things, things[0])
            except RuntimeError as inner:
                if error is None:
                    raise
                raise error(str(inner)) from inner
        except Exception as caught:
            return caught
    raise AssertionError("nothing was raised")


def examine(name: str) -> tuple[Any, Any]:
    """Explain a line that mentions an object, and scan a module that keeps it, with the object armed."""
    global armed
    make = MAKERS[name]
    thing = make()
    error = failing_with([thing], HostileError)
    module = nn.Linear(2, 2)
    module.__dict__["kept"] = make()
    module.__dict__["several"] = [make(), {"key": make()}]
    module._modules["part"] = HostileModule()
    armed = True
    try:
        return explain(error, module), scan(module)
    finally:
        armed = False


if __name__ == "__main__":
    hanging = True
    for each in MAKERS:
        examine(each)
        sys.stdout.write(f"{each} looked at\n")
