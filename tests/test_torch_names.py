"""torch's functions by other names: the same cause and the same fix."""

from __future__ import annotations

import functools
import sys

import pytest
import torch
from torch import nn

from lightning_devcheck import explain, scan, simulate_cuda
from lightning_devcheck._source.queries import statements_of
from lightning_devcheck._source.statements import puts_on_host
from lightning_devcheck._source.torch_names import meaning_of
from tests.helpers.source import load

WHY = "torch.zeros makes its tensor on the CPU unless it is given a device."
# what stands at the top of a file, what stands in its function, the call
SPELLINGS = [
    ("import torch", "", "torch.zeros(4)"),
    ("import torch as T", "", "T.zeros(4)"),
    ("import torch.nn, torch", "", "torch.zeros(4)"),
    ("from torch import zeros", "", "zeros(4)"),
    ("from torch import zeros as z", "", "z(4)"),
    ("import torch\nmake = torch.zeros", "", "make(4)"),
    ("import torch as T\nmake = T.zeros\nagain = make", "", "again(4)"),
    ("import functools, torch\nmake = functools.partial(torch.zeros, 4)", "", "make()"),
    ("from functools import partial\nfrom torch import zeros", "make = partial(zeros, 4)", "make()"),
    ("import torch", "make = torch.zeros", "make(4)"),
    ("import torch", "make: object = torch.zeros", "make(4)"),
    ("", "import torch as T", "T.zeros(4)"),
    ("", "from torch import zeros", "zeros(4)"),
    ("from helper_of_torch_names import make", "", "make(4)"),
    ("from helper_of_torch_names import filled", "", "filled()"),
    ("import helper_of_torch_names as helper", "", "helper.make(4)"),
    ("from torch import *", "", "zeros(4)"),
]
OTHER = [
    ("from numpy import zeros", "", "zeros(4)"),
    ("import torch, functools", "make = functools.partial(torch.zeros, 4, device='cpu')", "make()"),
    ("import torch\nmake = torch.zeros\ndef other(make): make = None", "", "make(4)"),
    ("import torch as T\ndef zeros(n): return n", "", "zeros(4)"),
]
IDS = [f"{top}; {inside}; {call}".replace("\n", "; ") for top, inside, call in SPELLINGS]


@pytest.fixture(autouse=True)
def helper(tmp_path, monkeypatch):
    """A module of the user's with factories of its own."""
    (tmp_path / "helper_of_torch_names.py").write_text(
        "import functools, torch\nmake = torch.zeros\nfilled = functools.partial(torch.zeros, 4)\n", encoding="utf-8"
    )
    load(tmp_path / "helper_of_torch_names.py")
    yield
    for name in ("helper_of_torch_names", "named"):
        sys.modules.pop(name, None)


def written(folder, top, inside, call):
    """A module with a function that fails, one that is made by a helper, and a class that keeps what it makes."""
    first = inside or "pass"
    text = f"""{top}
import torch as _t
def step(x):
    {first}
    mask = {call}
    return x * mask
def helped():
    {first}
    return {call}
def outer(x):
    return x * helped()
class Model(_t.nn.Module):
    def __init__(self):
        super().__init__()
        {first}
        self.mask = {call}
"""
    path = folder / "named.py"
    path.write_text(text, encoding="utf-8")
    return load(path)


def explained(step):
    """What `explain` says of a step that gets a tensor on a device."""
    with simulate_cuda(devices=1):
        try:
            step(torch.ones(2, 4, device="cuda"))
        except RuntimeError as error:
            return explain(error).findings[0]
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(("top", "inside", "call"), SPELLINGS, ids=IDS)
def test_factory_by_another_name(tmp_path, top, inside, call):
    """A factory has torch's cause and a fix in the user's own spelling, whatever it is called."""
    finding = explained(written(tmp_path, top, inside, call).step)
    fixed = call.replace("()", "(device=x.device)").replace("(4)", "(4, device=x.device)")
    assert (finding.name, finding.why, finding.fix) == ("mask", WHY, f"mask = {fixed}")


@pytest.mark.parametrize(("top", "inside", "call"), SPELLINGS, ids=IDS)
def test_factory_in_a_function_that_has_returned(tmp_path, top, inside, call):
    """The line in the function that made the tensor is found, with torch's cause."""
    finding = explained(written(tmp_path, top, inside, call).outer)
    assert finding.origin.line == f"return {call}"
    assert finding.why == WHY


@pytest.mark.parametrize(("top", "inside", "call"), SPELLINGS, ids=IDS)
def test_attribute_by_another_name(tmp_path, top, inside, call):
    """`scan` tells an attribute that a factory made to be a buffer."""
    (finding,) = scan(written(tmp_path, top, inside, call).Model()).findings
    assert finding.fix == f'self.register_buffer("mask", {call}, persistent=False)'


@pytest.mark.parametrize(("top", "inside", "call"), OTHER, ids=[case[0] + case[1] for case in OTHER])
def test_what_is_no_factory(tmp_path, top, inside, call):
    """A function of another library, one with a device, and a name with two meanings are not torch's factories."""
    module = written(tmp_path, top, inside, call)
    statements = list(statements_of(module.Model))
    assert statements
    assert not any(puts_on_host(statement.node) for statement in statements)


def test_factory_handed_in():
    """A factory that came in as an argument is told by what it is."""

    def multiply(x, factory):
        mask = factory(4)
        return x * mask

    finding = explained(lambda x: multiply(x, torch.zeros))
    assert (finding.name, finding.why, finding.fix) == ("mask", WHY, "mask = factory(4, device=x.device)")


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (torch, "torch"),
        (torch.zeros, "torch.zeros"),
        (functools.partial(functools.partial(torch.zeros), 1), "torch.zeros"),
        (functools.partial(torch.zeros, device="cpu"), ""),
        (len, ""),
        (nn.Linear, ""),
        (None, ""),
    ],
)
def test_what_a_value_is(value, meaning):
    """A value is told by identity, not by its name."""
    assert meaning_of(value) == meaning
