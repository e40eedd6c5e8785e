"""Start a run with a mistake in it, and watch how its processes end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "helpers" / "ranks.py"
ROOT = SCRIPT.parents[2]
LAUNCHERS = ("ddp", "ddp_fork", "ddp_spawn", "torchrun")
# torchmetrics 1.4 brings a package that has Python put a new line before an exception's message
REPORT = re.compile(r"DeviceMismatchError:\s+(.*?Rule: [^\n]*)", re.DOTALL)
# torch puts it before each line of a traceback
PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
POLL_S = 0.02


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        reports: What each rank printed, in the order of the ranks; empty where it printed no report.
        said: Seconds from the first mistake until the last report was printed.
        seconds: Seconds from the first mistake until no process was left.
        left: Processes that had to be ended from outside.
        output: The end of what was printed beside the reports.
    """

    reports: tuple[frozenset[str], ...]
    said: float
    seconds: float
    left: int
    output: str

    @property
    def is_together(self) -> bool:
        """Whether every process printed the one same report, and all ended by themselves."""
        return len(frozenset().union(*self.reports)) == 1 and all(self.reports) and not self.left


def command(launcher: str, world: int, wrong: str, batch: int, folder: str) -> list[str]:
    """The command that starts the small run of ``tests/helpers/ranks.py``."""
    torchrun = launcher == "torchrun"
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)] if torchrun else []
    strategy = "ddp" if torchrun else launcher
    return [sys.executable, *start, str(SCRIPT), strategy, str(world), wrong, str(batch), folder]


def watch(launcher: str, world: int, wrong: str, *, batch: int = 0, patience_s: float = 300.0) -> Ending:
    """Run once, and see how all processes end.

    Args:
        launcher: One of `LAUNCHERS`.
        world: How many ranks.
        wrong: The ranks with the mistake, such as ``"0,1"``.
        batch: The batch, counted from 0, in which the mistake is made.
        patience_s: Seconds until what is left is ended from outside.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name, (Path(name) / "output").open("w") as output:
        folder = Path(name)
        process = subprocess.Popen(
            command(launcher, world, wrong, batch, name), env=environment, stdout=output, stderr=output
        )
        limit = time.monotonic() + patience_s
        while (process.poll() is None or _alive(folder)) and time.monotonic() < limit:
            time.sleep(POLL_S)
        end = time.time()
        left = _end(folder, process)
        mistake = min((float(path.read_text()) for path in folder.glob("mistake-*")), default=end)
        return Ending(
            tuple(_reports(folder / f"rank-{rank}") for rank in range(world)),
            max(path.stat().st_mtime for path in folder.glob("rank-*")) - mistake,
            end - mistake,
            left,
            (folder / "output").read_text()[-2000:],
        )


def _alive(folder: Path) -> list[int]:
    """The ranks' processes that have not ended."""
    started = [int(path.read_text() or 0) for path in folder.glob("pid-*")]
    return [pid for pid in started if pid and _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end(folder: Path, process: subprocess.Popen[bytes]) -> int:
    """End what is left, and count it."""
    left = {*_alive(folder), *([process.pid] if process.poll() is None else [])}
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    return len(left)


def _reports(path: Path) -> frozenset[str]:
    return frozenset(REPORT.findall(PREFIX.sub("", path.read_text()))) if path.exists() else frozenset()
