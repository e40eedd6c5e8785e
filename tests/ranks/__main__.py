"""Run each launcher many times with a mistake on some ranks, and print how often all stopped together.

A run is good where every process ended by itself within 10 s of the mistake and all printed the same report. The time
until all ended includes the launcher's and Python's own end, which is nearly all of it: `--wrong error`, an exception
of the ranks' own without a check, is the limit. Times are the median and, in brackets, the slowest.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from tests.ranks._measure import LAUNCHERS, watch

LIMIT_S = 10.0
HEADER = """\
| launcher | ranks | wrong | same report, all ended | in 10 s | all said, s | all ended, s |
|---|---|---|---|---|---|---|"""
WRONG = {
    "first": lambda world: "0",
    "last": lambda world: f"{world - 1}",
    "all": lambda world: ",".join(map(str, range(world))),
    "error": lambda world: "error",
}


def main() -> None:
    """Print a row for each launcher, number of ranks and choice of wrong ranks; exit 1 where a run was not good."""
    args = _parser().parse_args()
    print(HEADER, flush=True)
    good = True
    for launcher in LAUNCHERS if args.launcher == "all" else [args.launcher]:
        for world in args.world:
            for wrong in args.wrong:
                good &= _row(launcher, world, wrong, args.times)
    sys.exit(not good)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.ranks", description=__doc__)
    parser.add_argument("--launcher", choices=(*LAUNCHERS, "all"), default="all")
    parser.add_argument("--world", type=int, nargs="*", default=[2, 4], help="numbers of ranks")
    parser.add_argument(
        "--wrong", choices=WRONG, nargs="*", default=list(WRONG), help="the ranks with the mistake; error: the limit"
    )
    parser.add_argument("--times", type=int, default=20, help="runs of each kind")
    return parser


def _row(launcher: str, world: int, wrong: str, times: int) -> bool:
    endings = [watch(launcher, world, WRONG[wrong](world)) for _ in range(times)]
    together = [ending for ending in endings if ending.is_together or (wrong == "error" and not ending.left)]
    good = [ending for ending in together if ending.seconds <= LIMIT_S]
    spreads = " | ".join(_spread([getattr(ending, name) for ending in endings]) for name in ("said", "seconds"))
    counts = f"{len(together)} of {len(endings)} | {len(good)} of {len(endings)}"
    print(f"| {launcher} | {world} | {wrong} | {counts} | {spreads} |", flush=True)
    for ending in endings:
        if ending not in together:
            print(ending, file=sys.stderr, flush=True)
    return len(good) == len(endings)


def _spread(seconds: list[float]) -> str:
    """The median, and the slowest."""
    return f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"


if __name__ == "__main__":
    main()
