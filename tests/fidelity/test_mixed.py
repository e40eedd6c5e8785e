"""A simulation that goes on from a device mistake gives the CPU's values, bit for bit, and notes the mistake once."""

from __future__ import annotations

import ast
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.going_on import going_on
from tests.fidelity._programs_mixed import CLEAN, LIKE_TWIN, MIXED

PROGRAMS = {program: kind for kind, text in MIXED.items() for program in text.split("\n") if program}

# what is refused before an operator runs, among others
COMPARED = ("layers and losses", "host", "generators")


def backward(out: Any, *leaves: Any) -> list[Any]:
    """The result after a backward of its sum, and the leaves with their gradients."""
    tensor = out[0] if isinstance(out, tuple) else out
    (tensor.abs() if tensor.is_complex() else tensor).sum().backward()
    return [out, *leaves]


def run(program: str, device: str) -> Any:
    """What a program's last expression gives."""
    torch.manual_seed(0)
    tree = ast.parse(program)
    last = ast.Expression(tree.body.pop().value)
    scope = {"torch": torch, "F": F, "nn": nn, "np": np, "backward": backward, "device": device}
    exec(compile(tree, "program", "exec"), scope)
    return eval(compile(last, "program", "eval"), scope)


def exact(value: Any) -> Any:
    """The bytes of all values and gradients."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu()
        plain = plain if plain.layout is torch.strided else plain.to_dense()
        gradient = value.grad if value.is_leaf else None
        return plain.dtype, plain.shape, plain.contiguous().numpy().tobytes(), exact(gradient)
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, nn.Module):
        return exact([*value.parameters(), *value.buffers()])
    if isinstance(value, dict):
        return exact(list(value.values()))
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    return repr(value)


def gone_on(program: str, device: str = "cuda:0") -> tuple[Any, list[str], set[Any]]:
    """What a program gives in a simulation that goes on, the messages, and their causes as `run` counts them."""
    messages, causes = [], set()

    def note(refusal):
        messages.append(str(refusal.error))
        causes.update(((place or refusal.here)[:2], refusal.expected) for place in refusal.decided or (None,))

    with simulate_cuda(devices=2):
        with going_on(note):
            value = run(program, device)
        return exact(value), messages, causes


@pytest.fixture(autouse=True)
def quiet():
    """What torch deprecates is not what these tests are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_mistake_is_gone_on_from(program):
    """Values and gradients are those of the CPU, and the mistake is one cause."""
    plain = exact(run(program, "cpu"))
    value, messages, causes = gone_on(program)
    assert value == plain
    assert messages
    assert len(causes) == 1
    assert not any("meta" in message for message in messages)


@pytest.mark.parametrize("program", [program for program, kind in PROGRAMS.items() if kind in COMPARED])
def test_without_going_on_it_is_refused(program):
    """The same programs end with CUDA's error in a plain simulation, which never says `meta`."""
    with simulate_cuda(devices=2), pytest.raises((RuntimeError, TypeError)) as caught:
        run(program, "cuda:0")
    assert "meta" not in str(caught.value)


@pytest.mark.parametrize("program", [line for line in LIKE_TWIN.split("\n") if line])
def test_a_recurrent_layer_is_gone_on_from_as_its_corrected_twin(program):
    """LSTM, GRU and RNN round on a simulated device in their own way: the corrected twin's."""
    with simulate_cuda(devices=2):
        twin = exact(run(program.replace("away", "device"), "cuda:0"))
    value, messages, causes = gone_on(program.replace("away", "'cpu'"))
    assert value == twin
    assert len(messages) == len(causes) == 1
    assert messages[0].startswith(("Input and hidden tensors", "Input and parameter tensors"))


@pytest.mark.parametrize("program", [line for line in CLEAN.split("\n") if line])
def test_what_cuda_takes_is_not_noted(program):
    """Clean look-alikes note nothing, and give the CPU's values."""
    plain = exact(run(program, "cpu"))
    value, messages, _ = gone_on(program)
    assert value == plain
    assert messages == []
