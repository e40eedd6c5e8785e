"""One `compute` of `LossAccumulator` with its sync, over one, two and four gloo processes, beside its peers."""

from __future__ import annotations

import contextlib
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

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import MeanMetric, MetricCollection

from lightning_devcheck import LossAccumulator
from tests.benchmarks._losses import Named, make_losses
from tests.benchmarks._measure import Table, goal, start_ranks

COMMAND = "python -m tests.benchmarks sync"
FIRST, OURS = "K MeanMetric.compute", "LossAccumulator"
COLLECTIVES = ("all_gather", "all_reduce", "barrier", "broadcast", "gather", "reduce", "all_gather_into_tensor")


def sizes_of(quick: bool) -> tuple[int, ...]:
    """How many terms a loss has."""
    return (3, 6) if quick else (1, 3, 6, 20, 100)


def rounds_of(size: int) -> int:
    """Fewer rounds where each takes hundreds of collectives."""
    return max(10, min(60, 600 // size))


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
        FIRST: (
            lambda losses: [metric.update(loss.detach()) for metric, loss in zip(many, losses, strict=True)],
            lambda: [metric.compute() for metric in many],
        ),
        "MetricCollection of K MeanMetrics": (collection.update, collection.compute),
        "one MeanMetric over the stack (mean of all K only)": (
            lambda losses: stacked.update(torch.stack(losses).detach()),
            stacked.compute,
        ),
        "self.log(sync_dist=True), K values": (add, logged),
        OURS: (ours.update, ours.compute),
    }


def _sync_rank(rank: int, world: int, folder: str, quick: bool) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=world)
    results = {size: _time_sync(size, 2 if quick else rounds_of(size)) for size in sizes_of(quick)}
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
    sizes = sizes_of(quick)
    with tempfile.TemporaryDirectory() as folder:
        start_ranks(_sync_rank, (world, folder, quick), world, quick)
        results = pickle.loads(Path(folder, "results").read_bytes())
    cells: dict[str, list[str]] = {}
    speed: dict[int, float] = {}
    for size in sizes:
        base, _ = results[size][FIRST]
        for name, (times, collectives) in results[size].items():
            faster = statistics.median(theirs / mine for mine, theirs in zip(times, base, strict=True))
            cells.setdefault(name, []).append(f"{faster:.1f} ({1e3 * statistics.median(times):.2f} ms, {collectives})")
            if name == OURS:
                speed[size] = faster
    counts = [results[size][OURS][1] for size in sizes]
    goals = [f"one collective for any K: {', '.join(map(str, counts))}, {'met' if set(counts) == {1} else 'missed'}"]
    if world > 1:
        goals.append(goal("at least 10 times faster than six MeanMetrics", speed[6], 10, least=True, form=".1f"))
    columns = ("compute with its sync: times faster (time, collectives)", *(f"K = {size}" for size in sizes))
    bars = tuple((f"K = {size}", value) for size, value in speed.items())
    rows = tuple((name, *values) for name, values in cells.items())
    title = f"One sync over {world} gloo process{'es' if world > 1 else ''}"
    note = ("The limit is one all-reduce of the packed sums; nothing less than one collective can sum over processes.",)
    marks = tuple(10.0 if size == 6 else None for size in speed)
    shown = bars if world > 1 else ()
    return Table(title, columns, rows, COMMAND, tuple(goals), note, shown, "times faster than K MeanMetrics", marks)


def tables(quick: bool = False) -> list[Table]:
    """One, two and four processes."""
    return [sync_table(world, quick) for world in ((2,) if quick else (1, 2, 4))]
