"""`LossAccumulator` beside what people use: cost of a step, compiled and not, and precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import MeanMetric, MetricCollection

from lightning_devcheck import LossAccumulator
from tests.benchmarks._losses import Named, make_losses
from tests.benchmarks._measure import Ratio, Table, compare, goal

COMMAND = "python -m tests.benchmarks accumulator"
SIZES = (1, 3, 6, 20, 100)
STEP_GOALS = {3: 5.0, 6: 9.0, 20: 18.0}
LIMIT = "the limit: four operators in an empty Module"


class Operators(TorchDispatchMode):
    """Names of the operators that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class FourOperators(torch.nn.Module):
    """The least that does it: stack, detach, add and dot, with nothing looked at."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.weights, self.one = torch.tensor([0.0, *weights]), torch.ones(())
        self.sums = torch.zeros(1 + len(weights), dtype=torch.float64)

    def forward(self, losses: list[Tensor], n: float = 1) -> Tensor:
        """Add the losses up, and give their weighted total."""
        stacked = torch.stack([self.one, *losses])
        self.sums.add_(stacked.detach(), alpha=n)
        return torch.dot(stacked, self.weights)


def contenders(size: int) -> dict[str, Callable[[list[Tensor]], Any]]:
    """One step: every term is accumulated and a differentiable weighted total made."""
    weights = [1 / 2 ** (i + 1) for i in range(size)]
    many = [MeanMetric() for _ in range(size)]
    disabled = [MeanMetric(nan_strategy="disable") for _ in range(size)]
    collection = MetricCollection({f"{i:02}": Named(i) for i in range(size)}, compute_groups=False)
    stacked = MeanMetric()
    ours = {nan: LossAccumulator(weights, nan=nan) for nan in ("propagate", "skip", "raise")}
    floats, four = [0.0] * size, FourOperators(weights)

    def total(losses: list[Tensor]) -> Any:
        return sum(weight * loss for weight, loss in zip(weights, losses, strict=True))

    def update_many(metrics: list[MeanMetric], losses: list[Tensor]) -> Any:
        for metric, loss in zip(metrics, losses, strict=True):
            metric.update(loss.detach())
        return total(losses)

    def update_floats(losses: list[Tensor]) -> Any:
        for i, loss in enumerate(losses):
            floats[i] += loss.item()
        return total(losses)

    return {
        "K MeanMetric.update, Python sum": lambda losses: update_many(many, losses),
        'K MeanMetric(nan_strategy="disable").update, Python sum': lambda losses: update_many(disabled, losses),
        "MetricCollection of K MeanMetrics, Python sum": lambda losses: (collection.update(losses), total(losses)),
        "one MeanMetric over the stack, Python sum": lambda losses: (
            stacked.update(torch.stack(losses).detach()),
            total(losses),
        ),
        "Python floats with .item(), Python sum": update_floats,
        "LossAccumulator": lambda losses: ours["propagate"](losses, n=4),
        'LossAccumulator(nan="skip")': lambda losses: ours["skip"](losses, n=4),
        'LossAccumulator(nan="raise")': lambda losses: ours["raise"](losses, n=4),
        LIMIT: lambda losses: four(losses, n=4),
    }


def step_table(quick: bool) -> Table:
    """Time, operators and host reads of one step."""
    cells: dict[str, list[str]] = {}
    counts: dict[str, list[str]] = {}
    goals, bars, limits = [], [], []
    for size in SIZES:
        functions = contenders(size)
        ratios = compare(
            functions, setup=lambda size=size: make_losses(size), rounds=5 if quick else 6000 // (5 + size)
        )
        for name, function in functions.items():
            cells.setdefault(name, []).append(_step_cell(ratios[name]))
            counts.setdefault(name, []).append("{} / {}".format(*count_operators(function, size)))
        speed, limit = (1 / ratios[name].median for name in ("LossAccumulator", LIMIT))
        limits.append(f"{speed / limit:.0%} at K = {size}")
        bars.append((f"K = {size}", speed))
        if size in STEP_GOALS:
            why = f"the limit is {limit:.1f}"
            wanted = STEP_GOALS[size]
            text = f"K = {size}: at least {wanted:.0f} times faster"
            goals.append(goal(text, speed, wanted, least=True, form=".1f", why=why))
    rows = tuple((name, *values, "; ".join(dict.fromkeys(counts[name]))) for name, values in cells.items())
    columns = ("one step: times faster (µs)", *(f"K = {size}" for size in SIZES), "operators / host reads, by K")
    note = (
        f"Of the speed of the limit LossAccumulator reaches {', '.join(limits)}: the rest is its checks of names, "
        "devices and types, which the limit leaves out."
    )
    title = "A step of LossAccumulator: accumulate K losses and make the weighted total"
    unit = "times faster than K MeanMetrics and a Python sum"
    marks = tuple(STEP_GOALS.get(size) for size in SIZES)
    return Table(title, columns, rows, COMMAND, tuple(goals), (note,), tuple(bars), unit, marks)


def _step_cell(ratio: Ratio) -> str:
    faster = f"{1 / ratio.median:.2f} ({1 / ratio.high:.2f}-{1 / ratio.low:.2f})"
    return f"{faster}, {ratio.seconds * 1e6:.1f} µs"


def count_operators(function: Callable[[list[Tensor]], Any], size: int) -> tuple[int, int]:
    """Operators of a step after the first, and how many of them read a value on the host."""
    function(make_losses(size))
    losses = make_losses(size)
    with Operators() as seen:
        function(losses)
    return len(seen.names), sum("_local_scalar_dense" in name for name in seen.names)


def compiled_table(quick: bool) -> Table:
    """A function that makes losses and accumulates them, as it is and compiled."""
    rows = []
    for size in (3,) if quick else (1, 3, 6, 20, 100):
        weights = [1 / 2 ** (i + 1) for i in range(size)]
        plain, metric, inside = torch.tensor(weights), LossAccumulator(weights), LossAccumulator(weights)
        means = [MeanMetric(nan_strategy="disable") for _ in range(size)]

        def total(x: Tensor, plain: Tensor = plain) -> Tensor:
            return torch.dot(x.square(), plain)

        def accumulate(x: Tensor, metric: LossAccumulator) -> Tensor:
            return metric(x.square().unbind(), n=4)  # type: ignore[no-any-return]

        def average(x: Tensor, means: list[MeanMetric] = means, plain: Tensor = plain) -> Tensor:
            losses = x.square()
            for mean, loss in zip(means, losses.unbind(), strict=True):
                mean.update(loss.detach())
            return torch.dot(losses, plain)

        torch._dynamo.reset()
        backend = "eager" if quick else "inductor"
        compiled = torch.compile(accumulate, fullgraph=True, backend=backend)
        compiled_total = torch.compile(total, fullgraph=True, backend=backend)
        ratios = compare(
            {
                "K MeanMetric.update": average,
                "LossAccumulator": lambda x, metric=metric: accumulate(x, metric),
                "compiled": lambda x, compiled=compiled, inside=inside: compiled(x, inside),
                "compiled, total alone": compiled_total,
            },
            setup=lambda size=size: torch.rand(size, requires_grad=True),
            rounds=3 if quick else 400,
            warm=3,
        )
        rows.append((str(size), *(_step_cell(ratio) for ratio in ratios.values())))
    columns = ("K", "K MeanMetric.update, off", "LossAccumulator, off", "on", "the total without accumulating, on")
    note = (
        "`fullgraph=True`: one graph, no break, one compilation. The limit is the last column: what compiled code that "
        "only makes the total takes, most of it the entry into compiled code."
    )
    title = "`torch.compile` off and on: times faster than K MeanMetric.update, off"
    return Table(title, columns, tuple(rows), COMMAND, notes=(note,))


def precision_table(quick: bool) -> Table:
    """Relative error of the mean after many updates, against exact arithmetic."""
    steps = 2_000 if quick else 1_000_000
    rows, worst = [], 0.0
    for dtype in (torch.float32, torch.bfloat16):
        values = torch.rand(steps, generator=torch.Generator().manual_seed(0)).to(dtype)
        exact = math.fsum(values.tolist()) / steps
        ours, theirs = LossAccumulator(1), torch.zeros(())
        for value in values.unbind():
            ours.update([value])
            theirs += value  # the float32 sum of a MeanMetric
        error = abs(ours.compute()["0"].item() - exact) / exact
        rows.append((str(dtype)[6:], f"{error:.1e}", f"{abs(theirs.item() / steps - exact) / exact:.1e}"))
        worst = max(worst, error)
    goal = f"right to 1e-9 after {steps:,} updates: {worst:.1e}, {'met' if worst <= 1e-9 else 'missed'}"
    columns = ("losses", "LossAccumulator", "float32 sum (MeanMetric's)")
    return Table(f"Relative error of the mean after {steps:,} updates", columns, tuple(rows), COMMAND, (goal,))


def tables(quick: bool = False) -> list[Table]:
    """Steps, compiled steps, precision."""
    return [step_table(quick), compiled_table(quick), precision_table(quick)]
