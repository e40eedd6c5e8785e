"""`LossAccumulator` beside what people use: cost of a step, cost of a sync, precision."""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import MeanMetric, MetricCollection

from lightning_devcheck import LossAccumulator
from tests.benchmarks._measure import Ratio, Table, compare

COMMAND = "python -m tests.benchmarks accumulator"
SIZES = (3, 6, 20)
STEP_GOALS = {3: 5.0, 6: 9.0, 20: 18.0}
COLLECTIVES = ("all_gather", "all_reduce", "barrier", "broadcast", "gather", "reduce", "all_gather_into_tensor")


class Named(MeanMetric):
    """An entry of a MetricCollection that picks its own loss."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def update(self, losses: list[Tensor]) -> None:
        super().update(losses[self.index].detach())


class Operators(TorchDispatchMode):
    """Names of the operators that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def make_losses(size: int) -> list[Tensor]:
    """0-dim losses with a graph."""
    return list((torch.rand(size, requires_grad=True) * 1.0).unbind())


def contenders(size: int) -> dict[str, Callable[[list[Tensor]], Any]]:
    """One step: every term is accumulated and a differentiable weighted total made."""
    weights = [1 / 2 ** (i + 1) for i in range(size)]
    many = [MeanMetric() for _ in range(size)]
    disabled = [MeanMetric(nan_strategy="disable") for _ in range(size)]
    collection = MetricCollection({f"{i:02}": Named(i) for i in range(size)}, compute_groups=False)
    stacked = MeanMetric()
    ours = {nan: LossAccumulator(weights, nan=nan) for nan in ("propagate", "skip", "raise")}
    floats = [0.0] * size

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
    }


def step_table(quick: bool) -> Table:
    """Time, operators and host reads of one step."""
    rounds = 20 if quick else 1000
    cells: dict[str, list[str]] = {}
    goals = []
    for size in SIZES:
        functions = contenders(size)
        ratios = compare(functions, setup=lambda size=size: make_losses(size), rounds=rounds)
        for name, function in functions.items():
            cells.setdefault(name, []).extend(_step_cells(ratios[name], *count_operators(function, size)))
        speed = 1 / ratios["LossAccumulator"].median
        met = "met" if speed >= STEP_GOALS[size] else "missed"
        goals.append(f"K = {size}: at least {STEP_GOALS[size]:.0f} times faster: {speed:.1f}, {met}")
    columns = ["one step"]
    for size in SIZES:
        columns += [f"K = {size}: times faster", "µs", "operators", "host reads"]
    rows = tuple((name, *values) for name, values in cells.items())
    title = "One step: accumulate K losses and make the weighted total"
    return Table(title, tuple(columns), rows, COMMAND, tuple(goals))


def _step_cells(ratio: Ratio, operators: int, reads: int) -> list[str]:
    faster = f"{1 / ratio.median:.2f} ({1 / ratio.high:.2f}-{1 / ratio.low:.2f})"
    return [faster, f"{ratio.seconds * 1e6:.1f}", str(operators), str(reads)]


def count_operators(function: Callable[[list[Tensor]], Any], size: int) -> tuple[int, int]:
    """Operators of a step after the first, and how many of them read a value on the host."""
    function(make_losses(size))
    losses = make_losses(size)
    with Operators() as seen:
        function(losses)
    return len(seen.names), sum("_local_scalar_dense" in name for name in seen.names)


def lightning_table(quick: bool) -> Table:
    """Inside a Trainer, where logging is part of the cost: one call in `training_step`."""
    cells: dict[str, list[str]] = {}
    for size in SIZES:
        times = _fit(size, 30 if quick else 400)
        base = times["self.log_dict(K losses)"]
        for name, values in times.items():
            ratio = statistics.median(theirs / mine for mine, theirs in zip(values, base, strict=True))
            cells.setdefault(name, []).append(f"{ratio:.2f} ({statistics.median(values) * 1e6:.0f} µs)")
    rows = tuple((name, *values) for name, values in cells.items())
    columns = ("one call in training_step, on_epoch", *(f"K = {size}: times faster" for size in SIZES))
    return Table("In a Trainer, one process", columns, rows, COMMAND)


def _fit(size: int, steps: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, size)
            self.ours, self.quiet = LossAccumulator(size), LossAccumulator(size)
            self.ways = {
                "self.log_dict(K losses)": lambda losses: self._log(losses, sync_dist=False),
                "self.log_dict(K losses, sync_dist=True)": lambda losses: self._log(losses, sync_dist=True),
                "LossAccumulator and self.log_dict": self._accumulate,
                "LossAccumulator, compute() at the epoch's end": lambda losses: self.quiet(losses),
            }

        def _log(self, losses: list[Tensor], sync_dist: bool) -> None:
            names = (f"{sync_dist}_{i}" for i in range(size))
            values = dict(zip(names, losses, strict=True))
            self.log_dict(values, on_step=False, on_epoch=True, sync_dist=sync_dist)

        def _accumulate(self, losses: list[Tensor]) -> None:
            self.ours(losses)
            self.log_dict(self.ours, on_step=False, on_epoch=True)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            losses = list(self.layer(torch.ones(1)).square().unbind())
            names = list(self.ways)
            random.Random(batch_idx).shuffle(names)
            for name in names:
                start = time.perf_counter()
                self.ways[name](losses)
                times.setdefault(name, []).append(time.perf_counter() - start)
            return sum(losses)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        options: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_checkpointing"), False)
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **options)
        trainer.fit(Model(), torch.utils.data.DataLoader(range(steps)))  # type: ignore[arg-type]
    return {name: values[len(values) // 10 :] for name, values in times.items()}


@contextlib.contextmanager
def counting() -> Iterator[dict[str, int]]:
    """How often each collective is called."""
    counts: dict[str, int] = {}

    def wrap(name: str) -> Callable[..., Any]:
        original = getattr(dist, name)

        def collective(*args: Any, **kwargs: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return original(*args, **kwargs)

        return collective

    with contextlib.ExitStack() as stack:
        for name in COLLECTIVES:
            stack.enter_context(mock.patch.object(dist, name, wrap(name)))
        yield counts


def sync_contenders(size: int) -> dict[str, tuple[Callable[[list[Tensor]], Any], Callable[[], Any]]]:
    """Name → what is updated before the clock starts, and the computation with its sync."""
    many = [MeanMetric() for _ in range(size)]
    collection = MetricCollection({f"{i:02}": Named(i) for i in range(size)}, compute_groups=False)
    stacked, ours = MeanMetric(), LossAccumulator(size)
    sums, samples = torch.zeros(size), torch.zeros(())

    def logged() -> list[Tensor]:
        """What ``self.log(…, sync_dist=True)`` does at the end of an epoch: the value and the batch size of each."""
        means = []
        for i in range(size):
            value, count = sums[i].clone(), samples.clone()
            dist.barrier()
            dist.all_reduce(value)
            dist.barrier()
            dist.all_reduce(count)
            means.append(value / count)
        return means

    def add(losses: list[Tensor]) -> None:
        sums.add_(torch.stack(losses).detach())
        samples.add_(1)

    return {
        "K MeanMetric.compute": (
            lambda losses: [metric.update(loss.detach()) for metric, loss in zip(many, losses, strict=True)],
            lambda: [metric.compute() for metric in many],
        ),
        "MetricCollection of K MeanMetrics": (collection.update, collection.compute),
        "one MeanMetric over the stack (mean of all K only)": (
            lambda losses: stacked.update(torch.stack(losses).detach()),
            stacked.compute,
        ),
        "self.log(sync_dist=True), K values": (add, logged),
        "LossAccumulator": (ours.update, ours.compute),
    }


def _sync_rank(rank: int, world: int, folder: str, rounds: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=world)
    results = {size: _time_sync(size, rounds) for size in SIZES}
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        Path(folder, "results").write_bytes(pickle.dumps(results))


def _time_sync(size: int, rounds: int) -> dict[str, tuple[list[float], int]]:
    ways, counts = sync_contenders(size), {}
    times: dict[str, list[float]] = {name: [] for name in ways}
    names, order = list(ways), random.Random(size)
    for name, (update, compute) in ways.items():
        update(make_losses(size))
        with counting() as seen:
            compute()
        counts[name] = sum(seen.values())
    for _ in range(rounds):
        order.shuffle(names)
        for name in names:
            update, compute = ways[name]
            update(make_losses(size))
            dist.barrier()
            start = time.perf_counter()
            compute()
            times[name].append(time.perf_counter() - start)
    return {name: (times[name], counts[name]) for name in ways}


def sync_table(world: int, quick: bool) -> Table:
    """Time and collectives of one `compute` over ``world`` gloo processes."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_sync_rank, args=(world, folder, 3 if quick else 60), nprocs=world)
        results = pickle.loads(Path(folder, "results").read_bytes())
    cells: dict[str, list[str]] = {}
    for size in SIZES:
        base, _ = results[size]["K MeanMetric.compute"]
        for name, (times, collectives) in results[size].items():
            faster = statistics.median(theirs / mine for mine, theirs in zip(times, base, strict=True))
            median = 1e3 * statistics.median(times)
            cells.setdefault(name, []).extend([f"{faster:.1f}", f"{median:.2f}", str(collectives)])
    columns = ["compute with its sync"]
    for size in SIZES:
        columns += [f"K = {size}: times faster", "ms", "collectives"]
    six = float(cells["LossAccumulator"][3])
    goals = (
        f"at least 10 times faster than six MeanMetrics: {six:.1f}, {'met' if six >= 10 else 'missed'}",
        f"one collective for any K: {', '.join(cells['LossAccumulator'][2::3])}",
    )
    rows = tuple((name, *values) for name, values in cells.items())
    return Table(f"One sync over {world} gloo processes", tuple(columns), rows, COMMAND, goals)


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
    """Steps, steps in a Trainer, syncs over 2 and 4 processes, precision."""
    return [
        step_table(quick),
        lightning_table(quick),
        sync_table(2, quick),
        sync_table(4, quick),
        precision_table(quick),
    ]
