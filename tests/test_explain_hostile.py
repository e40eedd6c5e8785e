"""`explain` and `scan` among hostile objects: nothing of the user's runs, nothing fails."""

from __future__ import annotations

import collections
import dataclasses
import linecache
from typing import Any

import pytest
import torch
from torch import nn

from lightning_devcheck import explain, scan, simulate_cuda


class Hostile:
    """Every way of looking at it raises."""

    def __init__(self):
        object.__setattr__(self, "hidden", torch.ones(4))

    def _refuse(self, *args):
        raise SystemExit("user code ran")

    __repr__ = __str__ = __eq__ = __ne__ = __len__ = __bool__ = __iter__ = __getitem__ = __contains__ = _refuse
    __getattr__ = __setattr__ = __dir__ = __format__ = __hash__ = __getattribute__ = _refuse
    value = property(_refuse)


class Masked:
    """Its class and its dictionary are properties that raise."""

    @property
    def __class__(self):
        raise SystemExit("user code ran")

    @property
    def __dict__(self):
        raise SystemExit("user code ran")


class HostileDict(dict):
    """A dict whose own look-ups raise."""

    def __getitem__(self, key):
        raise SystemExit("user code ran")

    __iter__ = items = keys = values = get = __contains__ = __getitem__


class HostileModule(nn.Module):
    """A module whose look-ups raise."""

    armed = False

    def __getattr__(self, name):
        if HostileModule.armed:
            raise SystemExit("user code ran")
        return super().__getattr__(name)

    def __len__(self):
        raise SystemExit("user code ran")

    @property
    def device(self):
        raise SystemExit("user code ran")


class HostileTensor(torch.Tensor):
    """A tensor class whose functions raise."""

    armed = False

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if cls.armed:
            raise SystemExit("user code ran")
        return super().__torch_function__(func, types, args, kwargs or {})


HOSTILE = [Hostile, Masked, lambda: HostileDict(a=torch.ones(4)), HostileModule, lambda: HostileTensor([1.0])]


def failing_with(things: list[Any]) -> RuntimeError:
    """A device error from a line that mentions the things."""
    with simulate_cuda(devices=1):
        x = torch.ones(4, device="cuda:0")
        try:
            (lambda mask, *others: x * mask)(torch.ones(4), things, things[0])
        except RuntimeError as error:
            return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("make", HOSTILE, ids=["object", "class", "dict", "module", "tensor"])
def test_hostile_objects_are_only_read(make):
    """Explaining a line that mentions an object runs none of its code."""
    things = [make()]
    error = failing_with(things)
    HostileModule.armed = HostileTensor.armed = True
    try:
        report = explain(error)
    finally:
        HostileModule.armed = HostileTensor.armed = False
    assert report.findings[0].name == "torch.ones(4)"


@pytest.mark.parametrize("make", HOSTILE, ids=["object", "class", "dict", "module", "tensor"])
def test_scan_runs_no_code(make):
    """Scanning a module that keeps an object runs none of its code."""
    module = nn.Linear(2, 2)
    module.__dict__["kept"] = make()
    module.__dict__["several"] = [make(), {"key": make()}]
    HostileModule.armed = HostileTensor.armed = True
    try:
        scan(module)
    finally:
        HostileModule.armed = HostileTensor.armed = False


def test_recursive_containers():
    """Containers that hold themselves end."""
    module = nn.Linear(2, 2)
    endless: list[Any] = [torch.ones(3)]
    endless.append(endless)
    module.endless = endless
    module.back = {"owner": module, "endless": endless}
    assert [finding.name for finding in scan(module).findings] == ["self.endless[0]"]


def test_cycle_of_modules_and_tied_parameters():
    """A module that is its own grandchild is visited once."""
    outer, inner = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    outer.add_module("inner", inner)
    inner.add_module("outer", outer)
    inner[0].weight = outer[0].weight
    assert scan(outer).ok


@dataclasses.dataclass
class Settings:
    weight: torch.Tensor


@dataclasses.dataclass(slots=True)
class SlottedSettings:
    weight: torch.Tensor


Pair = collections.namedtuple("Pair", ["left", "right"])


def test_scan_looks_into_plain_containers():
    """Dataclasses, slots, named tuples, queues and closures are looked into."""
    inside = torch.ones(2)
    module = nn.Linear(2, 2)
    module.settings = Settings(torch.ones(1))
    module.slotted = SlottedSettings(torch.ones(1))
    module.pair = Pair(torch.ones(1), 2)
    module.queue = collections.deque([torch.ones(1)])
    module.function = lambda value: value * inside
    names = [finding.name for finding in scan(module).findings]
    expected = ["self.settings.weight", "self.slotted.weight", "self.pair.left", "self.queue[0]"]
    assert names == [*expected, "self.function(inside)"]


def test_compiled_function():
    """An error in a compiled function is explained."""

    def step(x, mask):
        return (x * mask).mean()

    with simulate_cuda(devices=1):
        compiled = torch.compile(step, backend="eager")
        try:
            compiled(torch.ones(4, device="cuda:0"), torch.ones(4))
        except Exception as error:
            report = explain(error)
    assert report.findings[0].device == "cpu"


def test_long_function():
    """A function of ten thousand lines is explained."""
    body = "\n".join(f"    a{i} = {i}" for i in range(10_000))
    source = f"def step(x):\n    mask = torch.ones(4)\n{body}\n    return x * mask\n"
    error = raised_by(source, "<long>")
    finding = explain(error).findings[0]
    assert (finding.name, finding.origin.lineno) == ("mask", 2)


def raised_by(source: str, filename: str) -> RuntimeError:
    """What a function ``step`` of some source raises."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    names: dict[str, Any] = {"torch": torch}
    exec(compile(source, filename, "exec"), names)
    with simulate_cuda(devices=1):
        try:
            names["step"](torch.ones(4, device="cuda:0"))
        except RuntimeError as error:
            return error
    raise AssertionError("nothing was raised")


def test_changed_source():
    """Source that no longer fits the traceback does no harm."""
    error = raised_by("def step(x):\n    mask = torch.ones(4)\n    return x * mask\n", "<changed>")
    linecache.cache["<changed>"] = (3, None, ["def (:\n", "  ]]]\n", "'''\n"], "<changed>")
    assert explain(error).findings[0].device == "cpu"


def test_deep_recursion():
    """A traceback of a thousand frames is explained by its ends."""
    source = "def step(x, depth=700):\n    if depth:\n        return step(x, depth - 1)\n    return x * torch.ones(4)\n"
    assert explain(raised_by(source, "<deep>")).findings[0].name == "torch.ones(4)"


def test_extension_frames():
    """Callbacks that are called from C have a frame before and after."""

    def step(x):
        mask = torch.ones(4)
        return sorted([2, 1], key=lambda value: (x * mask).sum().item())

    with simulate_cuda(devices=1):
        try:
            step(torch.ones(4, device="cuda:0"))
        except RuntimeError as error:
            finding = explain(error).findings[0]
    assert finding.name == "mask"


def test_explaining_touches_nothing():
    """The exception, its traceback and its arguments are the same afterwards."""
    error = failing_with([1])
    before = (error.args, error.__traceback__, error.__cause__, error.__context__, dict(vars(error)))
    explain(error)
    assert (error.args, error.__traceback__, error.__cause__, error.__context__, dict(vars(error))) == before
