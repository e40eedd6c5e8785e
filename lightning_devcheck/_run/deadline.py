"""A time limit for the processes that a Trainer starts: all are ended, and what hangs is named with its line."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import linecache
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning_devcheck._report.text import location
from lightning_devcheck._run.parent import POLL_S
from lightning_devcheck._source.files import user_lines

# how a fault handler writes a frame, innermost first
FRAME = re.compile(r'^  File "(?P<filename>.+)", line (?P<lineno>\d+) in (?P<function>.+)$', re.MULTILINE)
# it writes the main thread last
THREAD = "(most recent call first):"
# how long the parent waits for what each process writes when time is up
DUMP_S = 5.0


def note_line_when_asked(step: Callable[[], object], rank: int, folder: Path) -> None:
    """Run a step; a process that its parent asks meanwhile writes down where it is.

    A timer of the fault handler would not do: one that runs in the parent makes a forked process wait for ever.
    """
    with _stack_file(folder, rank).open("w", encoding="utf-8") as file:
        faulthandler.register(signal.SIGUSR2, file=file)
        try:
            step()
        finally:
            faulthandler.unregister(signal.SIGUSR2)


def limit_join(context: Any, folder: Path, timeout_s: float) -> None:
    """Have the ``join`` of processes that torch started raise when time is up.

    Args:
        context: The ``ProcessContext``, each of whose processes runs `note_line_when_asked`.
        folder: Where they write.
        timeout_s: Seconds from now.
    """
    original: Callable[..., bool] = context.join
    limit = time.monotonic() + timeout_s

    @functools.wraps(original)
    def join(timeout: float | None = None, *rest: Any, **kwargs: Any) -> bool:
        left = max(limit - time.monotonic(), 0)
        done = original(left if timeout is None else min(left, timeout), *rest, **kwargs)
        if not done and time.monotonic() >= limit:
            raise TimeoutError(_end_all(context.processes, folder, timeout_s))
        return done

    context.join = join


def _end_all(processes: list[Any], folder: Path, timeout_s: float) -> str:
    """End the processes that still run, and say where each was."""
    late = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for rank in late:
        with contextlib.suppress(ProcessLookupError):
            os.kill(processes[rank].pid, signal.SIGUSR2)
    _wait_for([_stack_file(folder, rank) for rank in late])
    for process in processes:
        process.kill()
        process.join()
    places = sorted((_place(_stack_file(folder, rank).read_text(encoding="utf-8")), rank) for rank in late)
    lines = [f"  rank {rank} {text}" for (_, text), rank in places]
    many = f"{len(late)} of {len(processes)} ranks did not end within {timeout_s:g} s; all were ended."
    return "\n".join([many, *lines])


def _wait_for(files: list[Path]) -> None:
    """Wait until something stands in each file, but not for ever."""
    limit = time.monotonic() + DUMP_S
    while not all(path.exists() and path.stat().st_size for path in files) and time.monotonic() < limit:
        time.sleep(POLL_S)
    time.sleep(POLL_S)  # the first words are there; the others follow at once


def _stack_file(folder: Path, rank: int) -> Path:
    path = folder / f"stack-{rank}"
    path.touch()
    return path


def _place(dump: str) -> tuple[bool, str]:
    """Where a process was, in words, and whether no line of the user's tells it."""
    frames = list(FRAME.finditer(dump.rpartition(THREAD)[2]))
    lines = user_lines(map(_formatted, reversed(frames)))
    if lines:
        return False, f"was at {location(lines[0])}  {lines[0].line}"
    inner = (
        f"was in {frames[0]['function']}, {frames[0]['filename']}:{frames[0]['lineno']}" if frames else "did not say"
    )
    return True, f"{inner} (it may wait for another rank)"


def _formatted(frame: re.Match[str]) -> str:
    """A frame as `traceback.format_stack` writes it."""
    filename, lineno = frame["filename"], int(frame["lineno"])
    line = linecache.getline(filename, lineno).strip()
    return f'  File "{filename}", line {lineno}, in {frame["function"]}\n    {line}\n'
