"""Start a script in processes of its own, and end them all."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

# what carries the settings
SETTINGS = "LIGHTNING_DEVCHECK_RUN"
START = "from lightning_devcheck._run.child import main; main()"
# how long a process may take to end by itself
END_S = 5.0
# how long the others may go on once a process has failed; they often fail for the same reason
GRACE_S = 15.0
POLL_S = 0.05


@dataclass(frozen=True)
class Settings:
    """How to run a script; travels to every process in an environment variable.

    Attributes:
        folder: Where processes leave their reports, and word of failure.
        devices: How many devices to pretend.
        steps: After how many steps each stage of a Trainer ends.
        values: Whether tensors hold values.
        stop_at_first: Whether a script ends at the first device error, as it does with CUDA.
        compares: Whether the run is compared with another one: sources come from an overlay in the
            folder, and what is computed is written down there.
    """

    folder: str
    devices: int
    steps: int
    values: bool = True
    stop_at_first: bool = False
    compares: bool = False

    def to_environment(self) -> dict[str, str]:
        """The variable to set."""
        return {SETTINGS: json.dumps(asdict(self))}


def command(target: Sequence[str], *, as_module: bool) -> list[str]:
    """The command that runs a script, or a module, under the settings in the environment."""
    return [sys.executable, "-c", START, *(["-m"] if as_module else []), *target]


class TimeLimitError(Exception):
    """A script, or one of its processes, did not end."""


def run_group(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    timeout_s: float,
    failed: Callable[[], bool],
    stdout: int | None = None,
    stderr: int | None = None,
) -> int:
    """Run a command and what it starts as one group, of which nothing is left afterwards.

    Args:
        command: The command; it gets an empty standard input.
        env: Its environment.
        timeout_s: Seconds after which all are ended.
        failed: Tells whether a process of the group has failed; the others then have `GRACE_S`.
        stdout: The file descriptor that its output goes to; None for this process's own.
        stderr: Likewise for its errors.

    Returns:
        The command's exit status.

    Raises:
        TimeLimitError: If time is up.
        KeyboardInterrupt: After Ctrl-C.
    """
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    try:
        with _terminated_as_interrupt():
            return _wait(process, timeout_s, failed)
    finally:
        end_group(process)


def _wait(process: subprocess.Popen[bytes], timeout_s: float, failed: Callable[[], bool]) -> int:
    limit = time.monotonic() + timeout_s
    shortened = False
    while process.poll() is None:
        if time.monotonic() > limit:
            raise TimeLimitError
        if not shortened and failed():
            shortened, limit = True, min(limit, time.monotonic() + GRACE_S)
        time.sleep(POLL_S)
    return process.returncode


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all others of its group, kindly and then not."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        limit = time.monotonic() + END_S
        while _signal_group(process.pid, sign) and time.monotonic() < limit:
            process.poll()  # a dead leader that nobody waited for still counts as a member
            time.sleep(POLL_S)
    process.wait()


def _signal_group(group: int, sign: signal.Signals) -> bool:
    """Signal a process group; False where nobody is left."""
    try:
        os.killpg(group, sign)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """A polite request to end is handled as Ctrl-C is."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def flush_or_drop(stream: TextIO) -> None:
    """Write what a standard stream still holds; drop it, and what follows, where that fails."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def has_failed(folder: Path) -> bool:
    """Whether a process left word that it failed."""
    return any(folder.glob("failed-*"))
