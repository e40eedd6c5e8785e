"""How long until there is something to read: the imports, and the first report of ``lightning-devcheck run``."""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks._measure import Table, goal

COMMAND = "python -m tests.benchmarks startup"
ROOT = Path(__file__).parents[2]
IMPORTS = """
import json, time
marks = [time.process_time()]
def mark(): marks.append(time.process_time())
import torch; mark()
import pytorch_lightning, torchmetrics; mark()
import lightning_devcheck; mark()
for name in lightning_devcheck.__all__: getattr(lightning_devcheck, name)
mark()
print(json.dumps(marks))
"""
PARTS = ("torch", "Lightning and torchmetrics", "the package", "all its public names")
RUN = ["-m", "lightning_devcheck", "run", "examples/multiscale.py", "--mistake", "cpu"]


def used(arguments: list[str]) -> tuple[float, float, str]:
    """Wall seconds, processor seconds and output of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-W", "ignore", *arguments], cwd=ROOT, capture_output=True, text=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def import_table(quick: bool) -> Table:
    """Processor seconds of each import on top of the one before."""
    runs = []
    for _ in range(1 if quick else 9):
        marks = json.loads(used(["-c", IMPORTS])[2].splitlines()[-1])
        runs.append([b - a for a, b in itertools.pairwise(marks)])
    medians = [statistics.median(column) for column in zip(*runs, strict=True)]
    rows = tuple((name, f"{seconds:.3f}") for name, seconds in zip(PARTS, medians, strict=True))
    text = "the package and all its names under 0.3 s beyond torch and Lightning"
    bars = tuple(zip(PARTS, medians, strict=True))
    met = goal(text, sum(medians[2:]), 0.3, form=".3f")
    return Table("Imports, each on top of those above", ("import", "s"), rows, COMMAND, (met,), (), bars, "s")


def report_table(quick: bool) -> Table:
    """Seconds from the command of the README to its report."""
    runs = [used(RUN) for _ in range(1 if quick else 5)]
    broken = [output for *_, output in runs if "the loss is on cpu, the model is on cuda:1" not in output]
    if broken:
        raise RuntimeError(f"the example gave no report: {broken[0]}")
    wall, processor = (statistics.median(run[i] for run in runs) for i in (0, 1))
    bare = "pass" if quick else "import torch, pytorch_lightning, torchmetrics"
    base = statistics.median(used(["-c", bare])[1] for _ in runs)
    rows = (
        ("wall", f"{wall:.1f}"),
        ("processor, all of it", f"{processor:.1f}"),
        ("of that: importing torch, Lightning and torchmetrics", f"{base:.1f}"),
        ("of that: the simulation, the script and its Trainer, the report", f"{processor - base:.1f}"),
    )
    command = "lightning-devcheck run examples/multiscale.py --mistake cpu"
    own = min(wall, processor)
    met = goal("the first report in under 15 s of its own time, imports included", own, 15, form=".1f")
    note = (
        "Its processes run one after the other, so on an idle machine the wall shows the processor's time, beside "
        "other programs theirs too. The limit is the imports: no report comes before them."
    )
    return Table(f"Time to the first report: `{command}`", ("time", "s"), rows, COMMAND, (met,), (note,))


def tables(quick: bool = False) -> list[Table]:
    """Imports, and the first report."""
    return [import_table(quick), report_table(quick)]
