"""``run --diff`` and ``run --fix``: run again with edits, show what is proven, or write it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lightning_devcheck._fix.overlay import lay_over
from lightning_devcheck._fix.project import project_of, refusal, write_refusal, write_whole
from lightning_devcheck._fix.prove import Proof, Prover, edited_files, edits_of
from lightning_devcheck._fix.trial import Trial, read_trial
from lightning_devcheck._report.edits import SourceFile, diff_bytes, spell_path
from lightning_devcheck._report.report import merge_reports
from lightning_devcheck._report.text import location
from lightning_devcheck._run.output import say, write_report
from lightning_devcheck._run.parent import (
    Settings,
    TimeLimitError,
    command,
    flush_or_drop,
    has_failed,
    run_group,
)
from lightning_devcheck._run.spool import saved

OVERDUE = "did not end in time"
# the order of sets of texts differs from process to process without it
SAME_ORDER = {"PYTHONHASHSEED": "0"}


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        folder: What its processes left.
        status: Its exit status.
        overdue: Whether it had to be ended.
    """

    folder: Path
    status: int
    overdue: bool


class Fixing:
    """Runs a script with edits, shows what is proven, and writes it where that is asked for.

    Args:
        folder: An empty folder, for all runs.
        args: The command line.

    Attributes:
        outcome: How the last run ended.
    """

    outcome: Outcome

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self._folder = folder
        self._args = args
        self._count = 0

    def run(self, files: Mapping[Path, bytes]) -> Trial:
        """Run the script once, with other contents of some files."""
        args = self._args
        self._count += 1
        folder = self._folder / f"run-{self._count}"
        folder.mkdir()
        lay_over(folder, files)
        values = not args.no_values
        how = (args.devices, args.steps, values, args.stop_at_first)
        settings = Settings(str(folder), *how, compares=True)
        status, overdue = 0, False
        stdout, stderr = self._streams()
        flush_or_drop(sys.stdout)
        try:
            status = run_group(
                command(args.target, as_module=args.as_module),
                {**SAME_ORDER, **os.environ, **settings.to_environment()},
                timeout_s=args.timeout,
                failed=lambda: has_failed(folder),
                stdout=stdout,
                stderr=stderr,
            )
        except TimeLimitError:
            overdue = True
        self.outcome = Outcome(folder, status, overdue)
        reason = ""
        if overdue:
            reason = OVERDUE
        elif status:
            reason = f"exit status {status}"
        report = merge_reports(saved(folder))
        return read_trial(folder, report, reason)

    def _streams(self) -> tuple[int | None, int | None]:
        """Where the script prints to: the first run as ever, but a diff is alone on its stream."""
        if self._count > 1:
            say(f"run {self._count}, with fixes")
            return subprocess.DEVNULL, subprocess.DEVNULL
        args = self._args
        is_for_machines = args.format != "text" and args.output is None
        if args.diff or is_for_machines:
            return sys.stderr.fileno(), None
        return None, None

    def conclude(self, first: Trial) -> int:
        """Try the fixes, show or write them, and choose the exit code."""
        args = self._args
        root = project_of(_script(args))
        prover = Prover(self.run, root, keeps_structure=args.fix and not args.all)
        proof = prover.prove(first)
        if args.diff:
            self._report_beside(proof)
            _print_diff(proof)
            return int(not first.report.ok)
        write_report(proof.report(), args)
        written = self._write(proof, root)
        return int(not written or bool(proof.left))

    def _report_beside(self, proof: Proof) -> None:
        """Show the report where the diff is not."""
        if self._args.output is not None:
            write_report(proof.report(), self._args)
            return
        proof.report().show(sys.stderr)

    def _write(self, proof: Proof, root: Path) -> bool:
        """Write what is proven, and say what is left; False where a file was refused."""
        done = True
        paths = sorted({path for repair in proof.proven for path in repair.paths})
        for path in paths:
            problem = refusal(path, root, proof.base.ran) or write_refusal(path)
            if not problem:
                problem = _written(path, proof)
            if problem:
                say(f"not written: {problem}")
                done = False
            else:
                say(f"wrote {spell_path(path)}")
        if not paths:
            say("nothing was written: no fix was proven")
        _say_left(proof)
        return done


def _written(path: Path, proof: Proof) -> str:
    """Write a file; say why that failed."""
    edits = edits_of(proof.proven)
    edits = [edit for edit in edits if Path(edit.filename).resolve() == path]
    try:
        data = SourceFile.read(path).with_edits(edits)
        if data is None:
            return f"{path} has changed since the run"
        write_whole(path, data)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _say_left(proof: Proof) -> None:
    """Say of each finding that is left why it is."""
    held = {repair.key for repair in proof.held}
    for key, finding in proof.left_by_key().items():
        place = finding.used or finding.origin
        where = ""
        if place is not None:
            where = f"{location(place)}: "
        if key in held:
            why = "its fix changes what is saved or trained: --fix --all writes it"
        else:
            why = proof.failed.get(key) or proof.refused.get(key) or "no fix is known"
        say(f"left: {where}{finding.what}: {why}")


def _print_diff(proof: Proof) -> None:
    """Print one diff of what is proven, with the bytes that the files have."""
    files = edited_files([*proof.proven, *proof.held]) or {}
    parts = [diff_bytes(spell_path(path), path.read_bytes(), files[path]) for path in sorted(files)]
    data = "".join(parts).encode("utf-8", "surrogateescape")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        flush_or_drop(sys.stdout)


def _script(args: argparse.Namespace) -> Path | None:
    """The file that is run; None where it cannot be told."""
    if not args.as_module:
        return Path(args.target[0])
    spec = importlib.util.find_spec(args.target[0])
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin)
