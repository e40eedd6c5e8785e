"""Operators and backwards that go wrong: each may raise, none may take the interpreter down."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from lightning_devcheck import simulate_cuda
from tests.fidelity._samples import is_tensor, operators, run, samples
from tests.fidelity._trials import name_of


class Misbehaving(torch.autograd.Function):
    """A custom Function whose backward does what it is told."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, how: Callable[[torch.Tensor], Any]) -> torch.Tensor:
        """Double; keep what backward is to do."""
        ctx.how = how
        return tensor * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, None]:
        """Do it."""
        return ctx.how(grad), None


def _raise(grad: torch.Tensor) -> Any:
    raise ValueError("a backward that raises")


BACKWARDS: list[Callable[[torch.Tensor], Any]] = [
    _raise,
    lambda grad: None,
    lambda grad: grad.cpu(),
    lambda grad: grad.to("cuda:0"),
    lambda grad: grad.sum().cpu(),
    lambda grad: grad.flatten()[:1].repeat(3),
    lambda grad: "no tensor",
    lambda grad: grad.long(),
    lambda grad: grad.to("meta"),
    lambda grad: grad + torch.ones(7, 7),
]


def main(limit: int) -> int:
    """Run every operator's samples; print how often each kind of attempt succeeded and raised."""
    counts = attempts(operators(), limit)
    for name, count in sorted(counts.items()):
        print(f"{count:7d} {name}")
    return 0


def attempts(chosen: Iterable[Any], limit: int) -> Counter[str]:
    """Forward and backward of samples in many wrong ways, in this process."""
    counts: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operator in chosen:
            print(name_of(operator), file=sys.stderr, flush=True)  # the last line names the culprit of a crash
            with contextlib.suppress(ImportError):  # samples that need SciPy
                for sample in samples(operator, limit, requires_grad=True):
                    with simulate_cuda(devices=2):
                        _attempt(counts, operator, sample)
    return counts


def _attempt(counts: Counter[str], operator: Any, sample: Any) -> None:
    moves: dict[str, Callable[[], Callable[[torch.Tensor], torch.Tensor]]] = {
        "on the device": lambda: lambda tensor: tensor.to("cuda:1"),
        "first on the device": lambda: _alternating("cuda:1", "cpu"),
        "first on the CPU": lambda: _alternating("cpu", "cuda:1"),
        "two devices": lambda: _alternating("cuda:0", "cuda:1"),
    }
    for name, move in moves.items():
        _count(counts, name, lambda move=move: run(operator, sample, move()))
    for name, backward in (("wrong gradients", _wrong_gradients), ("twice", _twice), ("custom Function", _custom)):
        _count(counts, name, lambda backward=backward: backward(operator, sample))


def _alternating(first: str, second: str) -> Callable[[torch.Tensor], torch.Tensor]:
    devices = iter([first])
    return lambda tensor: tensor.to(next(devices, second))


def _count(counts: Counter[str], name: str, attempt: Callable[[], Any]) -> None:
    try:
        attempt()
    except Exception:  # any exception will do: what is looked for ends the process
        counts[f"{name}: raised"] += 1
    else:
        counts[f"{name}: ran"] += 1


def _result(operator: Any, sample: Any, wrap: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """The results of a sample on the device that want a gradient."""

    def move(value: Any) -> Any:
        return wrap(value.detach().to("cuda:1").requires_grad_(value.requires_grad)) if is_tensor(value) else value

    args, kwargs = tree_map(move, ((sample.input, *sample.args), sample.kwargs))
    out = operator.op(*args, **kwargs)
    return [value for value in tree_leaves(out) if is_tensor(value) and value.requires_grad]


def _wrong_gradients(operator: Any, sample: Any) -> None:
    """Each gradient on the CPU, on another device, of another shape and type."""
    raised = None
    for make in (torch.ones_like, *WRONG):
        for result in _result(operator, sample, lambda tensor: tensor):
            try:
                result.backward(make(result))
            except Exception as error:
                raised = error
    if raised is not None:
        raise raised


WRONG: list[Callable[[torch.Tensor], Any]] = [
    lambda out: torch.ones(out.shape),
    lambda out: torch.ones(out.shape, device="cuda:0"),
    lambda out: torch.ones((*out.shape, 2), device="cuda:1"),
    lambda out: torch.ones(out.shape, device="cuda:1", dtype=torch.int64),
]


def _twice(operator: Any, sample: Any) -> None:
    """A backward of the backward, and a second one over a freed graph."""
    leaves: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.requires_grad:
            leaves.append(tensor)
        return tensor

    total = sum(result.abs().sum() for result in _result(operator, sample, keep))
    grads = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    more = sum(grad.abs().sum() for grad in grads if grad is not None and grad.requires_grad)
    if is_tensor(more):
        more.backward()
    total.backward()
    total.backward()


def _custom(operator: Any, sample: Any) -> None:
    """Each input through a custom Function with a bad backward."""
    raised = None
    for how in BACKWARDS:
        try:
            wrap = lambda tensor, how=how: Misbehaving.apply(tensor, how) if tensor.requires_grad else tensor  # noqa: E731
            for result in _result(operator, sample, wrap):
                result.sum().backward()
        except Exception as error:
            raised = error
    if raised is not None:
        raise raised


if __name__ == "__main__":
    sys.exit(0 if attempts(operators()[:: int(sys.argv[1])], 1) else 1)
