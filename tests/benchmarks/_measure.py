"""Interleaved timings: contenders alternate in shuffled rounds, and figures are ratios within a round."""

from __future__ import annotations

import contextlib
import gc
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.multiprocessing as mp


@dataclass(frozen=True)
class Table:
    """One table of figures.

    Attributes:
        title: What it is about.
        columns: Heads of the columns, the row's name first.
        rows: The rows, as text.
        command: The command that gives it again.
        goals: Each goal, the figure it was met or missed with, and why where missed.
        notes: What the figures mean: the limit, and how far from it they are.
        bars: What the chart shows of it: label and number.
        unit: What the bars count.
        marks: The goal of each bar, None where it has none.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    command: str
    goals: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())
    bars: tuple[tuple[str, float], ...] = field(default=())
    unit: str = ""
    marks: tuple[float | None, ...] = field(default=())

    def markdown(self) -> str:
        """The table, its notes, its goals and its command as Markdown."""
        lines = [f"### {self.title}", "", f"`{self.command}`", ""]
        lines += ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        lines += ["", *(f"- {goal}" for goal in self.goals)] if self.goals else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Ratio:
    """A contender against the baseline: median of the ratios within rounds, with quartiles; seconds of its median."""

    median: float
    low: float
    high: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def compare(contenders: Mapping[str, Callable[[Any], Any]], **options: Any) -> dict[str, Ratio]:
    """Time contenders against the first of them; options as of `measure`."""
    times = measure(contenders, **options)
    base = times[next(iter(contenders))]
    return {name: ratio(times[name], base) for name in contenders}


def measure(
    contenders: Mapping[str, Callable[[Any], Any]],
    *,
    setup: Callable[[], Any] = lambda: None,
    setups: Mapping[str, Callable[[], Any]] | None = None,
    contexts: Mapping[str, Callable[[], Any]] | None = None,
    rounds: int = 30,
    warm: int = 1,
    tidy: int | None = None,
) -> dict[str, list[float]]:
    """Time contenders in shuffled rounds, in seconds.

    Args:
        contenders: Name → function; each call gets what ``setup`` made for it alone and is timed without it.
        setup: Makes the argument, anew for every call.
        setups: Those that make it for one contender in another way.
        contexts: Inside what a contender is set up and runs; entering and leaving it is not timed.
        rounds: How many times each contender runs.
        warm: Rounds before that, which do not count.
        tidy: The oldest generation of garbage that is collected before each call, so that nobody pays for another's.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = random.Random(0)
    for round_ in range(rounds + warm):
        names = list(contenders)
        order.shuffle(names)
        for name in names:
            with (contexts or {}).get(name, contextlib.nullcontext)():
                argument = (setups or {}).get(name, setup)()
                if tidy is not None:
                    gc.collect(tidy)
                seconds = clock(contenders[name], argument)
            if round_ >= warm:
                times[name].append(seconds)
            del argument
    return times


def clock(call: Callable[[Any], Any], argument: Any) -> float:
    """Seconds of one call: of the wall, or of this thread's processor time where others had the processor meanwhile.

    Asking for processor time costs a few microseconds itself, so the smaller of the two is right in both cases.
    """
    used = time.thread_time()
    start = time.perf_counter()
    call(argument)
    wall = time.perf_counter() - start
    return min(wall, time.thread_time() - used)


def ratio(times: Sequence[float], base: Sequence[float]) -> Ratio:
    """The ratios of two contenders' times, round by round."""
    ratios = [mine / theirs for mine, theirs in zip(times, base, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (ratios[0],) * 3
    return Ratio(statistics.median(ratios), low, high, statistics.median(times))


def extra(times: Sequence[float], without: Sequence[float], base: Sequence[float]) -> Ratio:
    """What something adds to a run that has it, round by round, as a ratio to a third contender."""
    return ratio([mine - plain for mine, plain in zip(times, without, strict=True)], base)


def goal(text: str, value: float, limit: float, *, least: bool = False, form: str = ".2f", why: str = "") -> str:
    """A goal, the figure, and whether it is met; where it is not, why."""
    met = value >= limit if least else value <= limit
    return f"{text}: {value:{form}}, {'met' if met else 'missed'}{'' if met or not why else '; ' + why}"


def goal_of_all(
    text: str,
    values: Mapping[str, float],
    limits: Mapping[str, float],
    *,
    least: bool = False,
    form: str = ".2f",
    why: Mapping[str, str] | None = None,
) -> str:
    """A goal over many cases: how many meet it, and each that does not with its reason, or else the nearest to it."""
    share = {name: value / limits[name] if not least else limits[name] / value for name, value in values.items()}
    missed = [name for name in values if share[name] > 1]
    if not missed:
        tightest = max(share, key=lambda name: share[name])
        return f"{text}: met by all {len(values)}; the nearest to it, {tightest}: {values[tightest]:{form}}"
    cases = (f"{name}: {values[name]:{form}}" + (f" ({why[name]})" if why else "") for name in missed)
    return f"{text}: met by {len(values) - len(missed)} of {len(values)}; missed by {'; '.join(cases)}"


def in_deep_thread(call: Callable[[], Any], stack: int = 1 << 30) -> Any:
    """Run in a thread with a stack of so many bytes: walked graphs of a million nodes are freed by recursion."""
    found: list[Any] = []
    before = threading.stack_size(stack)
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    threading.stack_size(before)
    thread.join()
    if not found:
        raise RuntimeError("the benchmark failed in its thread; its traceback is above")
    return found[0]


def start_ranks(call: Callable[..., None], arguments: tuple[Any, ...], world: int, quick: bool) -> None:
    """Run ``call(rank, *arguments)`` in so many processes: fresh ones, or forked where that it runs is enough."""
    mp.start_processes(call, arguments, world, start_method="fork" if quick else "spawn")
