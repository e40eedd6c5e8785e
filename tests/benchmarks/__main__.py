"""Run every benchmark, print the tables and save them: ``python -m tests.benchmarks [--quick] [NAME …]``.

`docs/benchmarks.md` holds the tables, `docs/benchmarks.json` the same as data, `docs/benchmarks.png` a chart. Every
module beside this file has a function ``tables(quick: bool) -> list[Table]``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning
import torch
import torchmetrics

import tests.benchmarks as package
from tests.benchmarks._chart import draw
from tests.benchmarks._measure import Table

DOCS = Path(__file__).parents[2] / "docs"
INTRO = """# Benchmarks

Ratios of medians from interleaved, shuffled rounds in one process (or one pair of process groups); in brackets the
quartiles. Trust ratios, not times: a shared two-core machine without a GPU made them. Where other programs took the
processor in the middle of a measurement, this thread's own processor time stands for it.

All of it again: `python -m tests.benchmarks`; one part: `python -m tests.benchmarks NAME`.

![The same figures as bars](benchmarks.png)
"""


def benchmarks() -> list[str]:
    """Names of the modules that hold benchmarks."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return [name for name in names if not name.startswith("_") and name != "gpu"]  # that one needs a real device


def environment() -> str:
    """The versions, and how busy the machine is."""
    return (
        f"torch {torch.__version__}, pytorch-lightning {pytorch_lightning.__version__}, "
        f"torchmetrics {torchmetrics.__version__}, Python {platform.python_version()}; {os.cpu_count()} cores, "
        f"{os.getloadavg()[0]:.0f} runnable processes beside, priority {os.getpriority(os.PRIO_PROCESS, 0)}."
    )


def save(parts: dict[str, Any]) -> None:
    """Write the tables as Markdown, as JSON and as a chart; parts that did not run keep what they had."""
    path = DOCS / "benchmarks.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    data = {name: data[name] for name in benchmarks() if name in data} | parts
    path.write_text(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    sections = [INTRO]
    for name, part in sorted(data.items()):
        sections.append(f"## {name}\n\n{part['environment']}\n")
        sections += [Table(**table).markdown() + "\n" for table in part["tables"]]
    (DOCS / "benchmarks.md").write_text("\n".join(sections), encoding="utf-8")
    draw({name: [Table(**table) for table in part["tables"]] for name, part in sorted(data.items())}, DOCS)


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run; all when none is named")
    parser.add_argument("--quick", action="store_true", help="a few rounds, nothing saved: only checks that it runs")
    args = parser.parse_args()
    known = benchmarks()
    unknown = sorted(set(args.names) - set(known))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(known)}")
    torch.set_num_threads(1)
    for name in args.names or known:
        beside = environment()
        tables = importlib.import_module(f"tests.benchmarks.{name}").tables(quick=args.quick)
        print("\n\n".join(table.markdown() for table in tables), end="\n\n", flush=True)
        if not args.quick:
            save({name: {"environment": beside, "tables": [asdict(table) for table in tables]}})


if __name__ == "__main__":
    main()
