"""Interleaved timings: contenders alternate in shuffled rounds, and figures are ratios within a round."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """One table of figures.

    Attributes:
        title: What it is about.
        columns: Heads of the columns, the row's name first.
        rows: The rows, as text.
        command: The command that gives it again.
        goals: Each goal, the figure it was met or missed with, and why where missed.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    command: str
    goals: tuple[str, ...] = field(default=())

    def markdown(self) -> str:
        """The table, its goals and its command as Markdown."""
        lines = [f"### {self.title}", "", f"`{self.command}`", ""]
        lines += ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
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


def compare(
    contenders: Mapping[str, Callable[[Any], Any]],
    *,
    setup: Callable[[], Any] = lambda: None,
    rounds: int = 30,
    number: int = 1,
) -> dict[str, Ratio]:
    """Time contenders against the first of them.

    Args:
        contenders: Name → function; each call gets what ``setup`` made for it alone and is timed without it.
        setup: Makes the argument, anew for every call.
        rounds: How many times each contender runs; one more round warms up.
        number: Calls per timing, all with one argument.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = random.Random(0)
    for round_ in range(rounds + 1):
        names = list(contenders)
        order.shuffle(names)
        for name in names:
            argument, call = setup(), contenders[name]
            start = time.perf_counter()
            for _ in range(number):
                call(argument)
            seconds = (time.perf_counter() - start) / number
            if round_:
                times[name].append(seconds)
    return {name: _ratio(times[name], times[next(iter(contenders))]) for name in contenders}


def _ratio(times: list[float], base: list[float]) -> Ratio:
    ratios = [mine / theirs for mine, theirs in zip(times, base, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Ratio(statistics.median(ratios), low, high, statistics.median(times))
