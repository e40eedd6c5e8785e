"""Run pytorch-lightning's own tests with and without `DeviceCheck`: ``python tests/run_lightning_suite.py CHECKOUT``.

``CHECKOUT`` is a checkout of pytorch-lightning of the installed version. Its files under
``tests/tests_pytorch/{callbacks,trainer,loops,strategies,core}`` run three times: without the variable, with
``LIGHTNING_DEVCHECK=raise``, and with ``warn``. Tests that fail only with it run once more by themselves, since many of
them wait for processes or clocks; those that fail again are listed. The entry points of this package have to be
installed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

FOLDERS = ("callbacks", "trainer", "loops", "strategies", "core")


def failures(checkout: Path, action: str, paths: list[str], timeout: int) -> set[str]:
    """The tests that fail, and the last line of pytest's output."""
    environment = {**os.environ, "LIGHTNING_DEVCHECK": action, "PL_RUN_CPU_TESTS": "1"}
    options = ["-q", "-p", "no:cacheprovider", "--no-header", "-rfE", "--tb=no", "--color=no"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--timeout={timeout}", *paths],
        cwd=checkout / "tests" / "tests_pytorch",
        env=environment,
        capture_output=True,
        text=True,
    )
    print(f"LIGHTNING_DEVCHECK={action or '(none)'}: {run.stdout.strip().splitlines()[-1]}", flush=True)
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, flags=re.MULTILINE))


def main() -> None:
    """Compare the three runs; exit 1 where one with the check fails a test that passes without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("paths", nargs="*", default=list(FOLDERS), help="files or folders below tests/tests_pytorch")
    parser.add_argument("--timeout", type=int, default=90, help="seconds per test")
    args = parser.parse_args()
    before = failures(args.checkout, "", args.paths, args.timeout)
    new = {action: failures(args.checkout, action, args.paths, args.timeout) - before for action in ("raise", "warn")}
    for action, tests in new.items():
        tests &= failures(args.checkout, action, sorted(tests), 4 * args.timeout) if tests else set()
        print(f"{len(tests)} fail only with {action}", *sorted(tests), sep="\n  ")
    sys.exit(any(new.values()))


if __name__ == "__main__":
    main()
