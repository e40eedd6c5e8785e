"""The tables' bars as one picture, where matplotlib is installed."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks._measure import Table

COLUMNS = 2
WIDTH, ROW = 12.0, 3.2  # inches


def draw(parts: Mapping[str, Sequence[Table]], folder: Path) -> None:
    """Save ``benchmarks.png`` in a folder: one panel for each table that has bars."""
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: the chart is left as it is", file=sys.stderr)
        return
    from matplotlib.figure import Figure  # heavy, and needed here alone

    tables = [table for part in parts.values() for table in part if table.bars]
    rows = math.ceil(len(tables) / COLUMNS)
    figure = Figure(figsize=(WIDTH, ROW * rows), layout="constrained")
    for table, axes in zip(tables, figure.subplots(rows, COLUMNS, squeeze=False).flat, strict=False):
        _panel(axes, table)
    for axes in figure.axes[len(tables) :]:
        axes.set_visible(False)
    figure.savefig(folder / "benchmarks.png", dpi=110)


def _panel(axes: Any, table: Table) -> None:
    labels = [f"{label}: {value:.3g}" for label, value in table.bars]
    axes.barh(labels, [value for _, value in table.bars], color="#3b6ea5")
    goals = [(goal, row) for row, goal in enumerate(table.marks) if goal is not None]
    if goals:
        axes.plot(*zip(*goals, strict=True), "|", color="black", markersize=18, markeredgewidth=2)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_title(table.title.partition(":")[0], fontsize=9)
    axes.set_xlabel(f"{table.unit}; the black line is the goal" if goals else table.unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
