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
    labels, values = zip(*table.bars, strict=True)
    goals = [(row, goal) for row, goal in enumerate(table.marks) if goal is not None]
    bars = axes.barh(labels, values, color="#3b6ea5")
    axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
    if goals:
        rows, limits = zip(*goals, strict=True)
        axes.plot(limits, rows, "|", color="black", markersize=18, markeredgewidth=2, label="goal")
        axes.legend(fontsize=8, frameon=False)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(table.title.partition(":")[0], fontsize=9)
    axes.set_xlabel(table.unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
