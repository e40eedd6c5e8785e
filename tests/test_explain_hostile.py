"""`explain` and `scan` among hostile objects: nothing of the user's runs, nothing fails."""

from __future__ import annotations

import collections
import dataclasses
import functools
import linecache
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_devcheck import explain, scan, simulate_cuda
from tests.helpers.hostile import MAKERS, examine

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", MAKERS)
def test_hostile_objects_are_only_read(name):
    """Explaining a line that mentions an object, and scanning a module that keeps it, runs none of its code."""
    explained, scanned = examine(name)
    assert explained.findings[0].name == "torch.ones(4)"
    assert "self.part.kept" in [finding.name for finding in scanned.findings]


def test_hanging_objects_are_not_waited_for():
    """Objects whose every method never ends do not hold up anything."""
    command = [sys.executable, "-m", "tests.helpers.hostile"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    assert run.stdout.count("looked at") == len(MAKERS)


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


class Helper:
    def __init__(self):
        self.table = torch.ones(2)

    def look_up(self, index):
        return self.table[index]


def test_scan_looks_into_callables():
    """Partials of any class, bound methods, default values and distributions hold tensors too."""
    module = nn.Linear(2, 2)
    module.loss = type("Loss", (functools.partial,), {})(torch.mul, torch.ones(2), other=torch.ones(2))
    module.look_up = Helper().look_up
    module.scaled = lambda value, *, weight=torch.ones(2): value * weight  # noqa: B008
    module.prior = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    names = [finding.name for finding in scan(module).findings]
    assert names[:2] == ["self.loss.args[0]", 'self.loss.keywords["other"]']
    assert names[2:4] == ["self.look_up.__self__.table", "self.scaled(weight)"]
    assert names[4:] == ["self.prior.loc", "self.prior.scale"]


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
    error = raised_by("def step(x):\n    return x * torch.ones(4)\n", "<plain>")
    before = (error.args, error.__traceback__, error.__cause__, error.__context__, dict(vars(error)))
    explain(error)
    assert (error.args, error.__traceback__, error.__cause__, error.__context__, dict(vars(error))) == before
