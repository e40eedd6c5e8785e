"""Torch's warnings in a simulation name the line that they would name without it."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F

from lightning_devcheck import simulate_cuda

PROGRAM = """
import sys
import torch
import torch.nn.functional as F
from lightning_devcheck import simulate_cuda

def work(device):
    values = torch.arange(3.0, device=device)
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8, device=device)
    values[mask]
    for _ in range(2):
        values[mask]
    values[[[0, 1]]]
    torch.tensor(values)
    F.mse_loss(values, values[None])
    F.softmax(values)
    torch.add(values, values, out=torch.empty(2, device=device))
    leaf = torch.ones(2, 2, device=device, requires_grad=True)
    (leaf * 1).grad
    torch.ones(2, 2, 3, device=device).T
    torch.meshgrid(values, values)
    (values * 1j).float()
    torch.nn.LSTM(2, 2, dropout=0.5)
    leaf.sum().backward(create_graph=True)

torch.set_warn_always(True)
if sys.argv[1] == "cpu":
    work("cpu")
else:
    with simulate_cuda(devices=2):
        work("cuda:1")
"""


def shown(device, *options):
    """What a process that runs the program prints of warnings."""
    command = [sys.executable, *options, "-c", PROGRAM, device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    return done.returncode, [line for line in lines if "Warning" in line and "[W" not in line]


@pytest.mark.parametrize("options", [(), ("-Wonce",)], ids=str)
def test_warnings_name_the_lines_that_they_name_on_the_cpu(options):
    """Each warning is shown as often, and at the same line, as by the same program on the CPU."""
    expected = shown("cpu", *options)
    assert expected[0] == 0
    assert shown("cuda:1", *options) == expected


def test_a_warning_may_be_an_error():
    """Where warnings are errors, the first one ends the program as it does on the CPU."""
    expected = shown("cpu", "-Werror")
    assert expected[0] == 1
    assert shown("cuda:1", "-Werror") == expected


def warn():
    """One warning of torch's, at this line."""
    values = torch.arange(3.0, device="cuda")
    values[torch.tensor([1, 0, 1], dtype=torch.uint8, device="cuda")]


def test_a_filter_by_module_goes_by_the_user_s():
    """A filter for the user's own module holds for what torch warns of there."""
    with warnings.catch_warnings(record=True) as caught, simulate_cuda(devices=1):
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__)
        warn()
    assert caught == []


def test_a_raised_warning_is_caught_as_one():
    """A filter that raises does so in the user's statement."""
    with warnings.catch_warnings(), simulate_cuda(devices=1):
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="uint8"):
            warn()
        with pytest.raises(UserWarning, match="Implicit dimension choice"):
            F.softmax(torch.ones(2, device="cuda"))


def test_other_warnings_are_left_alone():
    """What a program warns of by itself is shown as before."""
    with warnings.catch_warnings(record=True) as caught, simulate_cuda(devices=1):
        warnings.simplefilter("always")
        warnings.warn("a program's own", stacklevel=1)
        warn()
    assert [(w.filename, str(w.message)[:15]) for w in caught] == [
        (__file__, "a program's own"),
        (__file__, "indexing with d"),
    ]


def test_nothing_is_left_behind():
    """Filters, what Python has shown, and its way to show are as before, also after an exception."""
    before = list(warnings.filters), vars(torch._ops).get("__warningregistry__"), warnings._showwarnmsg
    with pytest.raises(ZeroDivisionError), simulate_cuda(devices=1):
        1 / 0
    assert (list(warnings.filters), vars(torch._ops).get("__warningregistry__"), warnings._showwarnmsg) == before
