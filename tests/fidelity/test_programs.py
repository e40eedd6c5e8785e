"""Small programs give on a simulated device what plain torch gives on the CPU, bit for bit."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import io
import itertools
import math
import pickle
import random
import re
import runpy
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import simulate_cuda
from tests.fidelity._programs import ERRORS, TENSORS
from tests.fidelity._programs_practice import PRACTICE
from tests.fidelity._programs_training import DIFFERENT, LISTED_FOR, OLDER, TRAINING

KINDS = {**TENSORS, **TRAINING, **PRACTICE}
PROGRAMS = {program: kind for kind, text in KINDS.items() for program in text.split("\n") if program}
# a device in what is printed: what torch says of a tensor, of its type and of a list of parameters
DEVICE = re.compile(r",\s+device='cuda:\d'| \(cuda:\d\)")
FOLDER = Path(__file__).parents[3] / "shared" / "corpus" / "simulation"
# those that print the same values twice, for the CPU and for a simulated device; and how they call the two
SCRIPTS = [path for name in ("as_tensor", "list_index") if (path := FOLDER / f"{name}.py").exists()]
CPU, SIMULATED = ("cpu",), ("cuda", "simulated")


def saved(value: Any, **options: Any) -> Any:
    """The value through `torch.save` and `torch.load`."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **{"weights_only": False, **options})


def pickled(value: Any) -> Any:
    """The value through pickle."""
    return pickle.loads(pickle.dumps(value))


def fitted(module: nn.Module, make: Any, x: torch.Tensor, steps: int = 3) -> list[Any]:
    """A module and its optimizer after some steps on one batch, and the losses."""
    optimizer = make(module.parameters())
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        losses.append(loss.detach())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return [module, optimizer, losses]


def backward(out: Any, *leaves: Any) -> list[Any]:
    """The result after a backward of its sum, and the leaves with their gradients."""
    tensor = out[0] if isinstance(out, tuple) else out
    (tensor.abs() if tensor.is_complex() else tensor).sum().backward()
    return [out, *leaves]


def within(context: Any, call: Any) -> Any:
    """What a call gives inside a context."""
    with context:
        return call()


NAMES = {"torch": torch, "nn": nn, "F": F, "np": np, "copy": copy, "io": io, "math": math, "pickle": pickle}
NAMES |= {"contextlib": contextlib, "functools": functools, "itertools": itertools, "threading": threading}
NAMES |= {"saved": saved, "pickled": pickled, "fitted": fitted, "backward": backward, "within": within}


def evaluate(program: str, device: str) -> Any:
    """What the program's last expression gives, each random stream seeded before."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    *first, last = ast.parse(program).body
    assert isinstance(last, ast.Expr), "a program ends with its result"
    names = {**NAMES, "device": device}
    exec(compile(ast.Module(first, []), "<program>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<program>", "eval"), names)


def outcome(program: str, device: str) -> Any:
    """The program's result in a form that compares exactly, or what it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return described(evaluate(program, device))
        except Exception as error:
            return ("raised", type(error).__name__, described(str(error)))


def simulated(program: str, device: str) -> Any:
    """The same on a simulated device."""
    with simulate_cuda(devices=2):
        return outcome(program, device)


@functools.singledispatch
def described(value: Any) -> Any:
    """A result in a form that compares exactly, without the name of its device."""
    if value is None or isinstance(value, (bool, int, range, torch.dtype, torch.layout)):
        return (type(value).__name__, repr(value))
    raise TypeError(f"a program gives a {type(value).__name__}, which has no form to compare")


@described.register
def _(value: float) -> Any:
    return ("float", value.hex())


@described.register
def _(value: complex) -> Any:
    return ("complex", value.real.hex(), value.imag.hex())


@described.register
def _(value: torch.device) -> Any:
    return "device"


@described.register
def _(value: str) -> Any:
    return re.sub(r"cuda:\d", "cpu", DEVICE.sub("", value)).replace("torch.cuda.", "torch.")


@described.register
def _(value: dict) -> Any:
    return (type(value).__name__, [(described(key), described(item)) for key, item in value.items()])


@described.register(list)
@described.register(tuple)
def _(value: Any) -> Any:
    return (type(value).__name__, [described(item) for item in value])


@described.register
def _(value: np.ndarray) -> Any:
    return ("array", str(value.dtype), value.shape, value.strides, value.tobytes())


@described.register
def _(value: np.generic) -> Any:
    return (type(value).__name__, value.tobytes())


@described.register
def _(value: nn.Module) -> Any:
    tensors = itertools.chain(value.named_parameters(), value.named_buffers())
    held = [(name, described(tensor)) for name, tensor in tensors]
    return (type(value).__name__, value.training, described(repr(value)), held)


@described.register
def _(value: torch.optim.Optimizer) -> Any:
    return (type(value).__name__, described(value.state_dict()))


@described.register
def _(value: torch.Tensor) -> Any:
    kind = "Parameter" if isinstance(value, nn.Parameter) else "Tensor"
    graph = None if value.grad_fn is None else value.grad_fn.name()
    form = (value.dtype, value.layout, tuple(value.shape), value.requires_grad, value.is_leaf, value.is_inference())
    grad = described(value.grad) if value.is_leaf and value.grad is not None else None
    return (kind, form, graph, grad, _values(value.detach()))


def _values(value: torch.Tensor) -> Any:
    if value.layout is torch.sparse_coo:
        return (value.is_coalesced(), described(value._indices()), described(value._values()))
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return (described(value.crow_indices()), described(value.col_indices()), described(value.values()))
    memory = (value.stride(), value.storage_offset(), value.is_conj(), value.is_neg())
    plain = value.resolve_conj().resolve_neg().cpu().contiguous()
    return (memory, bytes(plain.flatten().view(torch.uint8).numpy()))


def skip_on_older_torch(program):
    """Skip what torch 2.6 cannot run, or runs in another way."""
    if torch.__version__ < "2.7" and program in OLDER:
        pytest.skip(f"before torch 2.7 {OLDER[program]}")


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program not in DIFFERENT])
def test_a_program_gives_what_the_cpu_gives(program):
    """Values, types, shapes, strides, gradients and graphs are those of plain torch on the CPU."""
    skip_on_older_torch(program)
    expected = outcome(program, "cpu")
    assert expected[0] != "raised", expected
    assert simulated(program, "cuda:1") == expected


@pytest.mark.parametrize("program", [next(p for p in PROGRAMS if PROGRAMS[p] == k) for k in KINDS])
def test_a_kind_on_the_first_device(program):
    """One program of each kind gives the same on the first device, asked for with and without its number."""
    if program in DIFFERENT:
        program = next(p for p in PROGRAMS if PROGRAMS[p] == PROGRAMS[program] and p not in DIFFERENT)
    expected = outcome(program, "cpu")
    assert [simulated(program, device) for device in ("cuda:0", "cuda")] == [expected, expected]


@pytest.mark.parametrize("program", DIFFERENT)
def test_a_program_that_differs_still_does(program):
    """What the list excuses is not equal yet; a program that has become equal leaves the list."""
    assert program in PROGRAMS
    if not str(torch.__version__).startswith(LISTED_FOR):
        pytest.skip(f"the list is of torch {LISTED_FOR}")
    expected = outcome(program, "cpu")
    assert expected[0] != "raised", expected
    assert simulated(program, "cuda:1") != expected, f"equal by now: {DIFFERENT[program]}"


@pytest.mark.parametrize("program", [program for program in ERRORS.split("\n") if program])
def test_an_error_is_the_cpu_s(program):
    """What plain torch refuses is refused in the same words."""
    expected = outcome(program, "cpu")
    assert expected[0] == "raised"
    assert simulated(program, "cuda:1") == expected


def test_there_are_programs_of_every_kind():
    """The list is as long as it is meant to be, and no program stands in it twice."""
    lines = [line for text in KINDS.values() for line in text.split("\n") if line]
    assert len(lines) == len(set(lines)) >= 220
    assert len(DIFFERENT) < len(PROGRAMS) / 20


@pytest.mark.skipif(not SCRIPTS, reason="the corpus is not at hand")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_of_the_corpus(path, capsys):
    """A script that names a value names the CPU's on a simulated device."""
    runpy.run_path(str(path), run_name="__main__")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    cpu = [rest for who, *rest in lines if who in CPU]
    assert cpu
    assert [rest for who, *rest in lines if who in SIMULATED] == cpu
