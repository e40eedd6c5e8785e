"""What an explanation costs: a traceback of sixty frames, module trees of several sizes."""

from __future__ import annotations

import torch
from torch import nn

from lightning_devcheck import explain, scan, simulate_cuda
from tests.benchmarks._measure import Table, compare

COMMAND = "python -m tests.benchmarks explain"
GOAL_MS = 50.0
SIZES = (50, 500, 5_000)


def fail(x: torch.Tensor, depth: int = 58) -> torch.Tensor:
    """Raise a device error at the end of so many frames."""
    if depth:
        return fail(x, depth - 1)
    mask = torch.ones(4)
    return x * mask


def raised() -> RuntimeError:
    """A device error with its traceback."""
    with simulate_cuda(devices=1):
        try:
            fail(torch.ones(4, device="cuda:0"))
        except RuntimeError as error:
            return error
    raise AssertionError("nothing was raised")


def tables(quick: bool = False) -> list[Table]:
    """Milliseconds of ``explain`` and ``scan``, by the number of modules."""
    error, rows, slowest = raised(), [], 0.0
    for size in SIZES:
        module = nn.ModuleList(nn.Linear(1, 1) for _ in range(size))
        contenders = {"explain": lambda module: explain(error, module), "scan": scan}
        found = compare(contenders, setup=lambda module=module: module, rounds=2 if quick else 20)
        slowest = max(slowest, 1e3 * found["explain"].seconds)
        rows.append((f"{size:,}", *(f"{1e3 * found[name].seconds:.1f}" for name in contenders)))
    met = "met" if slowest < GOAL_MS else "missed"
    goal = f"explain under {GOAL_MS:g} ms for 60 frames and 5,000 modules: {slowest:.1f} ms, {met}"
    columns = ("nn.Linear modules", "explain, ms", "scan, ms")
    return [Table("Explaining a traceback of 60 frames; scanning", columns, tuple(rows), COMMAND, (goal,))]
