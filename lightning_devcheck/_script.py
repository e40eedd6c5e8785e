"""Run somebody's training script on simulated devices: its own Trainer, a few steps, every rank."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import multiprocessing
import os
import runpy
import shlex
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lightning_devcheck._activation import REPORTS
from lightning_devcheck._launched import STEPS
from lightning_devcheck._report import Report, merge_reports
from lightning_devcheck._simulate import simulate_cuda
from lightning_devcheck._simulate._patch import Patches


class ScriptError(Exception):
    """The script cannot be run, or did not train; the message is for the user."""


def run_script(args: argparse.Namespace) -> tuple[Report, str | None]:
    """Run a script; its reports, and its traceback where it failed for a reason of its own."""
    _check_script(args)
    with tempfile.TemporaryDirectory(prefix="lightning-devcheck-") as folder:
        args.rank_reports = Path(folder)
        failure = _run_here(args)
        reports = [Report.from_dict(json.loads(path.read_text())) for path in sorted(Path(folder).glob("*.json"))]
        explained = any(Path(folder).glob("*-exception.json"))
    if failure is None and not reports:
        raise ScriptError(f"{args.script} ended without calling Trainer.fit: nothing was checked")
    return merge_reports(reports), None if explained else failure


def run_rank(args: argparse.Namespace) -> int:
    """Run a script as one of the ranks that the launcher of the first one starts."""
    failure = _run_here(args)
    if failure is not None:
        print(failure, file=sys.stderr, end="")
    return int(failure is not None)


def _check_script(args: argparse.Namespace) -> None:
    if args.is_module:
        try:
            found = importlib.util.find_spec(args.script) is not None
        except ImportError:
            found = False
        if not found:
            raise ScriptError(f"no module named {args.script}")
    elif not Path(args.script).is_file():
        raise ScriptError(f"{args.script}: no such file")


def _run_here(args: argparse.Namespace) -> str | None:
    """Run the script in this process; None, or the traceback of its failure without our own frames."""
    with (
        _as_script(args),
        simulate_cuda(args.devices),
        Patches([(torch.multiprocessing, "start_processes", _forking())]),
    ):
        try:
            if args.is_module:
                runpy.run_module(args.script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(args.script, run_name="__main__")
        except SystemExit as error:
            return None if error.code in (None, 0) else f"{args.script}: sys.exit({error.code!r})\n"
        except Exception as error:
            return "".join(traceback.format_exception(type(error), error, _below_us(error)))
    return None


def _below_us(error: BaseException) -> Any:
    """The traceback from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") != "__main__":
        trace = trace.tb_next
    return trace or error.__traceback__


@contextlib.contextmanager
def _as_script(args: argparse.Namespace) -> Iterator[None]:
    """Let arguments, path and environment look as if Python had been started with the script."""
    before = sys.argv, list(sys.path), sys.executable, dict(os.environ)
    try:
        sys.argv = [args.script, *args.arguments]
        sys.path.insert(0, "" if args.is_module else str(Path(args.script).resolve().parent))
        os.environ[REPORTS], os.environ[STEPS] = str(args.rank_reports), str(args.steps)
        multiprocessing.set_executable(before[2])
        sys.executable = _interpreter(args, before[2])
        yield
    finally:
        sys.argv, sys.path[:], sys.executable = before[0], before[1], before[2]
        os.environ.clear()
        os.environ.update(before[3])


def _interpreter(args: argparse.Namespace, python: str) -> str:
    """A Python for Lightning's subprocess launcher, which starts the other ranks with ``sys.executable``."""
    options = ["run", f"--devices={args.devices}", f"--steps={args.steps}", f"--rank-reports={args.rank_reports}"]
    command = shlex.join([python, "-m", "lightning_devcheck", *options])
    path = Path(args.rank_reports) / "python"
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def _forking() -> Any:
    """Processes that would be spawned are forked: what is simulated here is simulated there."""
    original = torch.multiprocessing.start_processes

    def start_processes(*args: Any, **kwargs: Any) -> Any:
        kwargs["start_method"] = "fork"
        return original(*args, **kwargs)

    return start_processes
