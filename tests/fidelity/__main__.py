"""The whole comparison: ``python -m tests.fidelity``; see ``--help``."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.fidelity import _crash
from tests.fidelity._compare import Tally, part
from tests.fidelity._reasons import REASONS
from tests.fidelity._record import record
from tests.fidelity._samples import operators


def main() -> int:
    """Run what the command line asks for; the exit code is 1 where something is unexplained."""
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=__doc__)
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator (2)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="on a machine with a GPU: write what it does")
    parser.add_argument("--crash", action="store_true", help="run samples with gradients and errors, in one process")
    asked = parser.parse_args()
    if asked.crash:
        return _crash.main(asked.samples)
    if asked.record:
        asked.record.write_text(
            json.dumps(record(operators(), asked.samples), indent=0, sort_keys=True), encoding="utf-8"
        )
        return 0
    tally = _in_parallel(asked.samples, asked.jobs)
    print(table_of(tally))
    return 1 if tally.unexplained else 0


def _in_parallel(limit: int, jobs: int) -> Tally:
    total = Tally()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for tally in pool.map(part, [(i, jobs * 8, limit) for i in range(jobs * 8)]):
            total.add(tally)
            print(f"{total.counts['probes']} probes", file=sys.stderr, flush=True)
    return total


def table_of(tally: Tally) -> str:
    """The counts as text."""
    lines = [f"{tally.counts['probes']} probes"]
    for whose, name in (("table", "torch's operator table"), ("fake", "FakeTensorMode")):
        answers, agrees = tally.counts[f"{whose} answers"], tally.counts[f"{whose} agrees"]
        lines.append(f"agreement with {name}: {agrees} of {answers} ({tally.share(whose):.2%})")
        for place, reason in enumerate(REASONS):
            if reason.whose == whose:
                lines.append(f"  {tally.explained[place]:6d} {reason.text}")
    lines.append(f"{len(tally.unexplained)} unexplained")
    return "\n".join([*lines, *(f"  {text}" for text in sorted(tally.unexplained))])


if __name__ == "__main__":
    sys.exit(main())
