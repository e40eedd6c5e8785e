"""Sizes beyond this machine: thousands of ranks on paper, and what can be run of the rest.

NOTE [What a collective over gloo costs]
An all-reduce is a ring: 2 (W - 1) messages one after the other, whatever their size. `all_gather_object` gathers the
sizes, then the pickled objects padded to the largest: each a ring of W - 1. A tree would take 2 log2 W.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchmetrics import MeanMetric

from lightning_devcheck import LossAccumulator, Report, check_devices, simulate_cuda
from lightning_devcheck._observe.graph import walk
from lightning_devcheck._report.report import merge_reports
from tests.benchmarks._losses import make_losses
from tests.benchmarks._measure import Table, clock, in_deep_thread, measure, ratio, start_ranks
from tests.benchmarks.check import ALL, bare

COMMAND = "python -m tests.benchmarks scale"
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # ten million nodes take 9 GB
WORLDS = (2, 8, 64, 512, 4096)


def wrong_report() -> dict[str, Any]:
    """A report of a loss on the CPU, as it travels."""
    with simulate_cuda(devices=1):
        model = nn.Linear(2, 1).to("cuda")
        loss = model(torch.ones(4, 2, device="cuda")).mean().cpu()
        return check_devices(loss, model).to_dict()


def of_rank(data: dict[str, Any], rank: int) -> dict[str, Any]:
    """The same report from another rank, so that no two are equal."""
    return {**data, "findings": [{**finding, "global_rank": rank} for finding in data["findings"]]}


def _message_rank(rank: int, world: int, folder: str, rounds: int) -> None:
    """Seconds of one all-reduce of one number, each process in its turn."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=world)
    times = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(torch.tensor(0), op=dist.ReduceOp.MAX)
        times.append(time.perf_counter() - start)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        Path(folder, "results").write_bytes(pickle.dumps(statistics.median(times)))


def message_seconds(quick: bool) -> float:
    """Seconds of one message between two processes here: half of an all-reduce over two."""
    with tempfile.TemporaryDirectory() as folder:
        start_ranks(_message_rank, (2, folder, 20 if quick else 500), 2, quick)
        return float(pickle.loads(Path(folder, "results").read_bytes())) / 2


def _merge(reports: list[dict[str, Any]]) -> Report:
    return merge_reports(map(Report.from_dict, reports))


def ranks_table(quick: bool) -> Table:
    """What the agreement and the gather of reports send, and what merging the reports takes."""
    data = wrong_report()
    size = len(pickle.dumps(data))
    message = message_seconds(quick)
    rows = []
    for world in WORLDS[:2] if quick else WORLDS:
        merging = clock(_merge, [of_rank(data, rank) for rank in range(world)])
        ring, tree = 2 * (world - 1), 2 * math.ceil(math.log2(world))
        cells = (f"{ring:,} x 8 B", f"{1e3 * ring * message:.1f}", str(tree), f"{1e3 * tree * message:.1f}")
        gather = f"{world * size / 1e6:.3f}"
        rows.append((f"{world:,}", *cells, gather, f"{2 * (world - 1):,}", f"{1e3 * merging:.1f}"))
    columns = (
        "ranks",
        "agreement: messages",
        "ms",
        "by a tree: messages",
        "ms",
        "gather: MB a rank receives",
        "messages",
        "merging the reports, ms",
    )
    last = WORLDS[-1]
    ring, tree = 2 * (last - 1) * message, 2 * math.ceil(math.log2(last))
    note = (
        f"Computed with {1e6 * message:.0f} µs a message, as measured between two processes here, and a report of "
        f"{size:,} bytes. Every full check costs one agreement (ten in 1,000 steps); the gather happens once, when a "
        f"run stops. gloo passes both on in a ring, which grows with the ranks: at {last:,} an agreement takes "
        f"{ring:.2f} s, {10 * ring:.1f} ms a step over the first 1,000 steps and half of that over 2,000. The limit is "
        f"a tree, {tree} messages deep."
    )
    return Table("Agreement of the ranks, on paper", columns, tuple(rows), COMMAND, notes=(note,))


def wide(nodes: int) -> tuple[torch.Tensor, Any]:
    """A loss over a graph of so many nodes that is nowhere deep: many short branches of a hundred."""
    weight = torch.ones((), requires_grad=True)
    branches = []
    for _ in range(nodes // 100):
        value = weight * 1
        for _ in range(98):
            value = value + 1
        branches.append(value)
    return torch.stack(branches).sum(), weight


def nodes_table(quick: bool) -> Table:
    """The walk without its budget over graphs of up to ten million nodes."""
    rows = []
    sizes = (1_000_000, 10_000_000) if MEMORY >= 16e9 else (1_000_000,)
    for size in (10_000,) if quick else sizes:
        contenders: dict[str, Callable[[Any], Any]] = {
            "bare": lambda pair: bare(pair[0]),
            "walk": lambda pair: walk(pair[0].grad_fn, ALL),
        }
        rounds = 1 if quick or size > 1_000_000 else 3
        times = measure(
            contenders, setup=functools.partial(wide, size), rounds=rounds, warm=0 if size > 1_000_000 else 1, tidy=2
        )
        found = {name: ratio(values, times["bare"]) for name, values in times.items()}
        seconds = found["walk"].seconds
        cells = (f"{found['bare'].seconds:.2f}", f"{seconds:.2f}", f"{found['walk'].median:.2f}")
        rows.append((f"{size:,}", *cells, f"{1e9 * seconds / size:.0f}"))
    columns = ("nodes", "bare, s", "walk, s", "times bare", "ns a node")
    note = "In branches of a hundred nodes, which torch frees without a deep recursion. DeviceCheck stops at 10,000."
    return Table("The walk at ten million nodes", columns, tuple(rows), COMMAND, notes=(note,))


@contextlib.contextmanager
def alone() -> Any:
    """A process group of this process, so that `compute` syncs."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def terms_table(quick: bool) -> Table:
    """Ten thousand terms: a step, a compute with its sync, and the state."""
    size = 100 if quick else 10_000
    metric, means = LossAccumulator(size), [MeanMetric(nan_strategy="disable") for _ in range(size)]

    def update(losses: list[torch.Tensor]) -> None:
        for mean, loss in zip(means, losses, strict=True):
            mean.update(loss.detach())

    contenders: dict[str, Callable[[Any], Any]] = {"means": update, "ours": lambda losses: metric(losses, n=4)}
    steps = measure(contenders, setup=lambda: make_losses(size), rounds=2 if quick else 15)
    with alone():
        computes = measure(
            {"means": lambda _: [mean.compute() for mean in means], "ours": lambda _: metric.compute()},
            setup=lambda: (update(make_losses(size)), metric(make_losses(size))),
            rounds=1 if quick else 3,
        )
    rows = []
    for name, times in (("one step", steps), ("one compute with its sync, one process", computes)):
        ours, theirs = statistics.median(times["ours"]), statistics.median(times["means"])
        rows.append((name, f"{1e3 * ours:.2f}", f"{1e3 * theirs:.1f}", f"{theirs / ours:.0f}"))
    state = metric.packed.numel() * metric.packed.element_size() / 1024
    note = f"The state is {state:.0f} KiB, one all-reduce; {size:,} MeanMetrics make {4 * size:,} collectives."
    columns = (f"K = {size:,}", "LossAccumulator, ms", "K MeanMetrics, ms", "times faster")
    return Table("Ten thousand terms", columns, tuple(rows), COMMAND, notes=(note,))


def tables(quick: bool = False) -> list[Table]:
    """Ranks, nodes, terms."""
    return [ranks_table(quick), in_deep_thread(lambda: nodes_table(quick)), terms_table(quick)]
