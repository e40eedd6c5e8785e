"""Run every benchmark, print the tables and save them: ``python -m tests.benchmarks [--quick] [NAME …]``.

`docs/benchmarks.md` holds the tables, `docs/benchmarks.json` the same as data, `docs/benchmarks.png` a chart. Every
module beside this file has a function ``tables(quick: bool) -> list[Table]``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import platform
from dataclasses import asdict
from pathlib import Path

import pytorch_lightning
import torch
import torchmetrics

import tests.benchmarks as package
from tests.benchmarks._measure import Table

DOCS = Path(__file__).parents[2] / "docs"
INTRO = """# Benchmarks

Ratios of medians from interleaved, shuffled rounds in one process (or one pair of process groups); in brackets the
quartiles. Trust ratios, not times: a shared two-core machine without a GPU made them. {versions}.

All of it again: `python -m tests.benchmarks`; one part: `python -m tests.benchmarks NAME`.
"""


def benchmarks() -> list[str]:
    """Names of the modules that hold benchmarks."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return [name for name in names if not name.startswith("_") and name != "gpu"]  # that one needs a real device


def save(parts: dict[str, list[Table]]) -> None:
    """Write the tables as Markdown and as JSON; parts that did not run keep what they had."""
    path = DOCS / "benchmarks.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    data.update({name: [asdict(table) for table in tables] for name, tables in parts.items()})
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    versions = (
        f"torch {torch.__version__}, pytorch-lightning {pytorch_lightning.__version__}, "
        f"torchmetrics {torchmetrics.__version__}, Python {platform.python_version()}"
    )
    sections = [INTRO.format(versions=versions)]
    for name, tables in sorted(data.items()):
        sections.append(f"## {name}\n")
        sections += [Table(**table).markdown() + "\n" for table in tables]
    (DOCS / "benchmarks.md").write_text("\n".join(sections), encoding="utf-8")


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
    parts: dict[str, list[Table]] = {}
    for name in args.names or known:
        parts[name] = importlib.import_module(f"tests.benchmarks.{name}").tables(quick=args.quick)
        print("\n\n".join(table.markdown() for table in parts[name]), end="\n\n", flush=True)
    if not args.quick:
        save(parts)


if __name__ == "__main__":
    main()
