"""The full check beside a bare loop over ``next_functions``, its peers and a compiled loop, on fresh graphs.

NOTE [Peers of the check]
`make_dot` draws the whole graph. `DistributedDataParallel(find_unused_parameters=True)` searches it in C++ in every
step: measured is ``prepare_for_backward`` of its reducer, one process, less the same call without the search. Anomaly
mode records a traceback for every node: measured is a step (forward and backward) with it, less a step without.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge
from torch.nn.parallel import DistributedDataParallel

from lightning_devcheck import check_devices
from lightning_devcheck._compat import AccumulateGrad, owned_tensors
from lightning_devcheck._observe.devices import devices_of
from lightning_devcheck._observe.graph import MAX_NODES, walk
from tests.benchmarks._measure import Ratio, Table, extra, goal_of_all, in_deep_thread, measure, ratio
from tests.benchmarks._models import MODELS, chain
from tests.benchmarks._native import compiled_walk

COMMAND = "python -m tests.benchmarks check"
ALL = sys.maxsize  # no budget
CHAINS = (100_000, 1_000_000)
FULL_CHECKS = 10 / 1000  # of 1,000 steps: at batches 1, 2, 4, ..., 512


def bare(loss: torch.Tensor) -> int:
    """The least that visits every node once."""
    root = loss.grad_fn
    seen, stack = {root}, [root]
    while stack:
        for child, _ in stack.pop().next_functions:  # type: ignore[union-attr]
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)
    return len(seen)


def walk_past(root: Any, held: set[Any]) -> tuple[list[Any], list[Any]]:
    """The walk where the parameters' nodes are held beforehand: the inner nodes, and foreign leaves only."""
    seen = {None, root, *held}
    nodes, leaves = [root], []
    for node in nodes:
        for child, _ in node.next_functions:
            if child not in seen:
                seen.add(child)
                (leaves if type(child) is AccumulateGrad else nodes).append(child)
    return nodes, leaves


def read(module: torch.nn.Module) -> bool:
    """The least that compares every parameter and buffer of a module."""
    parameters, buffers = owned_tensors(module)
    return devices_of(parameters) == devices_of(buffers)


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """A process group of this process alone, for DDP's reducer."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def step(loss: Callable[[int], torch.Tensor], record: bool) -> None:
    """Forward and backward, with anomaly mode or without."""
    with torch.autograd.set_detect_anomaly(record, check_nan=False):
        loss(1).backward()


def drawing(loss: torch.Tensor) -> Callable[[torch.Tensor], Any] | None:
    """`make_dot`, where it is installed and the graph is not too deep for its recursion."""
    if importlib.util.find_spec("torchviz") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_dot: Callable[[torch.Tensor], Any] = importlib.import_module("torchviz").make_dot
    try:
        make_dot(loss)
    except RecursionError:
        return None
    return make_dot


def times_of(build: Any, compiled: Any, rounds: int) -> dict[str, list[float]]:
    """Seconds of every contender on one model's graphs."""
    module, loss = build()
    held_module, held_loss = build()
    held = {get_gradient_edge(parameter).node for parameter in held_module.parameters()}
    searched = {search: build() for search in (False, True)}
    reducers = {
        search: DistributedDataParallel(net, find_unused_parameters=search).reducer  # type: ignore[attr-defined]
        for search, (net, _) in searched.items()
    }
    contenders: dict[str, Callable[[Any], Any]] = {
        "bare": bare,
        "walk": lambda value: walk(value.grad_fn, ALL),
        "held": lambda value: walk_past(value.grad_fn, held),
        "check": lambda value: check_devices(value, module),
        "module": lambda _: read(module),
        "step": lambda _: step(loss, record=False),
        "anomaly": lambda _: step(loss, record=True),
        "search": lambda value: reducers[True].prepare_for_backward([value]),
        "no search": lambda value: reducers[False].prepare_for_backward([]),
    }
    contenders |= {name: call for name, call in (("C++", compiled), ("make_dot", drawing(loss(1)))) if call}
    setups = {"step": lambda: None, "anomaly": lambda: None, "held": lambda: held_loss(1)}
    setups |= {"search": lambda: searched[True][1](1), "no search": lambda: None}
    return measure(contenders, setup=lambda: loss(1), setups=setups, rounds=rounds, tidy=1)


def ratios_of(times: dict[str, list[float]]) -> dict[str, Ratio]:
    """Each contender against the bare loop; what DDP and anomaly mode add, against it."""
    ratios = {name: ratio(values, times["bare"]) for name, values in times.items()}
    ratios["DDP"] = extra(times["search"], times["no search"], times["bare"])
    ratios["anomaly"] = extra(times["anomaly"], times["step"], times["bare"])
    return ratios


COLUMNS = {
    "walk": "walk",
    "held": "walk, parameters' nodes held",
    "check": "full check",
    "module": "reading the module alone",
    "C++": "C++ loop",
    "make_dot": "`make_dot`",
    "DDP": "DDP's search",
    "anomaly": "anomaly mode",
}


def peers_table(quick: bool, compiled: Any) -> Table:
    """Every contender as times the bare loop, model by model."""
    rows, found, limits = [], {}, {}
    with one_process():
        for name, build in list(MODELS.items())[: 2 if quick else None]:
            ratios = found[name] = ratios_of(times_of(build, compiled, 1 if quick else 40))
            nodes, leaves, _ = walk(build()[1](1).grad_fn, ALL)
            share = len(leaves) / (len(leaves) + len(nodes))
            cells = [str(ratios[key]) if key in ratios else "-" for key in COLUMNS]
            total = f"{len(nodes) + len(leaves):,}"
            rows.append((name, total, f"{share:.0%}", f"{1e6 * ratios['bare'].seconds:.0f}", *cells))
            limits[name] = 1.6 if share > 0.4 else 1.3
    columns = ("graph", "nodes", "leaves", "bare, µs", *COLUMNS.values())
    title = "The full check and its parts, its peers and its limit: times a bare loop over the graph"
    notes = (_explained(found), _route(found)) if compiled else (_explained(found),)
    bars, unit = tuple((name, ratios["walk"].median) for name, ratios in found.items()), "walk / bare loop"
    return Table(title, columns, tuple(rows), COMMAND, _goals(found, limits), notes, bars, unit, tuple(limits.values()))


def _goals(found: dict[str, dict[str, Ratio]], limits: dict[str, float]) -> tuple[str, ...]:
    medians = {name: {key: value.median for key, value in ratios.items()} for name, ratios in found.items()}
    walks, checks = ({name: m[key] for name, m in medians.items()} for key in ("walk", "check"))
    floors = {name: f"the walk and reading the module {m['walk'] + m['module']:.2f}" for name, m in medians.items()}
    drawn = {name: m for name, m in medians.items() if "make_dot" in m}
    faster = {name: m["make_dot"] / m["walk"] for name, m in drawn.items()}
    bare_faster = {name: f"the bare loop: {m['make_dot']:.0f}" for name, m in drawn.items()}
    whole = [m["make_dot"] / m["check"] for m in drawn.values()]
    text = "at most 1.3 of the bare loop, 1.6 where more than 40 % are leaves"
    goals = [
        goal_of_all(f"walk {text}", walks, limits),
        goal_of_all(
            "with the parameters' nodes held at most 1.0 of the bare loop",
            {name: m["held"] for name, m in medians.items()},
            dict.fromkeys(medians, 1.0),
        ),
        goal_of_all(f"full check {text}", checks, limits, why=floors),
    ]
    if drawn:
        least = dict.fromkeys(drawn, 25.0)
        text = "walk at least 25 times faster than `make_dot`"
        goals.append(goal_of_all(text, faster, least, least=True, form=".0f", why=bare_faster))
        goals.append(f"full check {min(whole):.0f} to {max(whole):.0f} times faster than `make_dot`")
    return tuple(goals)


def _explained(found: dict[str, dict[str, Ratio]]) -> str:
    low, high = (pick(r["walk"].median for r in found.values()) for pick in (min, max))
    return (
        f"The walk itself stands at {low:.2f} to {high:.2f} of the loop that does nothing but visit. The full check "
        "also compares every parameter and buffer of the module, in the graph or not, each leaf with the module's own, "
        "and the kinds of all nodes: that half grows with the module. Its limit is the column that does no more than "
        "read where each parameter and buffer is, mostly waits for memory that the step has driven out of the caches; "
        "a list kept from the last check would have to be compared with the same memory to know that it still holds. "
        f"DeviceCheck walks {MAX_NODES:,} inner nodes at most (see How it works); here the budget is lifted for the "
        "columns of the walk. A dash: the graph is too deep for `make_dot` (RecursionError), or a tool is missing."
    )


def _route(found: dict[str, dict[str, Ratio]]) -> str:
    """Whether a compiled walk would be worth having, from the figures."""
    of_bare = [1 / ratios["C++"].median for ratios in found.values()]
    saved = {name: (r["walk"].median - r["C++"].median) * r["bare"].seconds for name, r in found.items()}
    share = max(saved[name] * FULL_CHECKS / ratios["step"].seconds for name, ratios in found.items())
    return (
        f"The limit is the C++ loop, which makes no Python object of a node: the bare loop takes {min(of_bare):.1f} to "
        f"{max(of_bare):.1f} times as long. An optional compiled route is not worth having: it would save "
        f"{1e6 * min(saved.values()):.0f} to {1e6 * max(saved.values()):.0f} µs of a full check, and full checks are "
        f"ten in 1,000 steps: {share:.3%} of a step of the same model at most, for a compiler on every user's machine. "
        "Its one real gain would be graphs without a budget."
    )


def chains_table(quick: bool, compiled: Any) -> Table:
    """The deepest graphs, with the budget and without it."""
    rows = []
    for size in (1_000,) if quick else CHAINS:
        module, loss = chain(size)
        contenders: dict[str, Callable[[Any], Any]] = {
            "bare": bare,
            "walk": lambda value: walk(value.grad_fn, ALL),
            "check": functools.partial(check_devices, module=module),
            **({"C++": compiled} if compiled else {}),
        }
        rounds = 1 if quick else max(2, 600_000 // size)
        times = measure(contenders, setup=lambda loss=loss: loss(1), rounds=rounds, tidy=2)
        ratios = {name: ratio(values, times["bare"]) for name, values in times.items()}
        cells = [str(ratios[name]) if name in ratios else "-" for name in ("walk", "check", "C++")]
        rows.append((f"{size:,}", f"{1e3 * ratios['bare'].seconds:.0f}", *cells))
    columns = ("chain of", "bare, ms", "walk, no budget", f"full check, budget of {MAX_NODES:,}", "C++ loop")
    note = (
        "DeviceCheck stops at its budget, so the full check of these graphs costs no more than that of 10,000 nodes. "
        "Without it a walked chain of about 42,000 nodes would end the process when torch frees it by recursion (these "
        "runs have a stack of 1 GiB)."
    )
    return Table("Very deep graphs: times the bare loop", columns, tuple(rows), COMMAND, notes=(note,))


def growth_table(quick: bool) -> Table:
    """Cost against nodes, and the slope of it."""
    sizes = (100, 1_000) if quick else (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
    points = []
    for size in sizes:
        _, loss = chain(size)
        contenders = {"walk": lambda value: walk(value.grad_fn, ALL), "collector off": _walk_uncollected}
        rounds = 2 if quick else max(5, min(50, 1_000_000 // size))
        times = measure(contenders, setup=lambda loss=loss: loss(1), rounds=rounds, tidy=1)
        points.append((size, *(statistics.median(values) for values in times.values())))
    slopes = [_slope([(size, seconds[way]) for size, *seconds in points]) for way in (0, 1)]
    rows = tuple((f"{n:,}", *(f"{1e9 * t / n:.0f}" for t in seconds)) for n, *seconds in points)
    note = (
        f"Slope of log time over log nodes: {slopes[0]:.2f}, and {slopes[1]:.2f} with Python's collector off (1 is "
        "linear): what grows faster is the collector, which runs over the new objects again and again in a process "
        "that has few others, and the caches that the graph outgrows. The bare loop pays the same."
    )
    columns = ("nodes", "ns a node", "ns a node, collector off")
    return Table("Cost of the walk against nodes", columns, rows, COMMAND, notes=(note,))


def _walk_uncollected(loss: torch.Tensor) -> None:
    gc.disable()
    walk(loss.grad_fn, ALL)
    gc.enable()


def _slope(points: list[tuple[int, float]]) -> float:
    """Of the line through the logarithms."""
    sizes, times = zip(*((math.log(n), math.log(t)) for n, t in points), strict=True)
    return statistics.linear_regression(sizes, times).slope


def tables(quick: bool = False) -> list[Table]:
    """Peers, very deep graphs, growth."""
    compiled = None if quick else compiled_walk()
    return in_deep_thread(  # type: ignore[no-any-return]
        lambda: [peers_table(quick, compiled), chains_table(quick, compiled), growth_table(quick)]
    )
