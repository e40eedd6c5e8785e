"""The command line: ``lightning-devcheck run``, ``scan`` and ``explain``."""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from lightning_devcheck._report.report import Report, merge_reports
from lightning_devcheck._run.baseline import BaselineError, read_baseline, without_known
from lightning_devcheck._run.output import (
    FORMATS,
    open_missing_streams,
    output_for_machines,
    output_problem,
    say,
    write_report,
)
from lightning_devcheck._run.parent import Settings, TimeLimitError, command, flush_or_drop, has_failed, run_group
from lightning_devcheck._run.spool import saved
from lightning_devcheck._run.target import TargetError, build, in_one_line
from lightning_devcheck._version import __version__

CLEAN, FINDINGS, USAGE, FAILED, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES = """\
exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 the script failed for another reason or did not end in time
"""
# how much of a file is looked at to tell a script from other things
HEAD_BYTES = 8192
RUN_USAGE = """\
lightning-devcheck run [options] script.py [args...]
       lightning-devcheck run [options] -m package.module [args...]"""
RUN_EXAMPLES = """\
examples:
  lightning-devcheck run train.py --lr 0.1
  lightning-devcheck run --devices 4 --steps 3 train.py
  lightning-devcheck run --format html --output report.html -m package.train
  lightning-devcheck run -m torch.distributed.run --nproc-per-node 2 train.py

The options of `run` stand before the script; what follows the script goes to it.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments; None takes those of the process.

    Returns:
        The exit code.
    """
    open_missing_streams()
    try:
        args = _parser().parse_args(argv)
        return int(args.command(args))
    except KeyboardInterrupt:
        say("interrupted: all processes were ended")
        return INTERRUPTED
    except OSError as error:
        # such as a full disk where temporary files are
        say(f"stopped: {error}")
        return FAILED
    finally:
        # else Python fails at its end, with an exit code of its own
        flush_or_drop(sys.stdout)
        flush_or_drop(sys.stderr)


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="lightning-devcheck",
        description="Find tensors on the wrong device in PyTorch Lightning training.",
        epilog="example: lightning-devcheck run train.py\n\n" + EXIT_CODES,
        formatter_class=layout,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a training script on simulated GPUs for a few steps",
        usage=RUN_USAGE,
        description="Run an unmodified training script for a few steps on simulated CUDA devices. No GPU is needed.\n"
        "Its Trainer does not log, saves no checkpoint, and starts its processes on simulated devices too.",
        epilog=RUN_EXAMPLES + "\n" + EXIT_CODES,
        formatter_class=layout,
    )
    run.add_argument("--devices", type=_positive, default=2, metavar="N", help="simulated devices (default: 2)")
    run.add_argument("--steps", type=_positive, default=2, metavar="N", help="steps of each stage (default: 2)")
    run.add_argument("--timeout", type=_positive, default=600, metavar="S", help="time limit, seconds (default: 600)")
    run.add_argument("--no-values", action="store_true", help="shapes only: for a model larger than memory")
    run.add_argument("--stop-at-first", action="store_true", help="end at the first device error, as CUDA does")
    run.add_argument("--diff", action="store_true", help="print a diff of the fixes that a second run proves")
    run.add_argument("--fix", action="store_true", help="write the fixes that a second run has proven")
    run.add_argument("--all", action="store_true", help="with --fix: also what changes a state_dict")
    _add_output(run)
    _add_baseline(run)
    run.add_argument("-m", dest="as_module", action="store_true", help="run a module, as python -m does")
    run.add_argument("target", nargs=argparse.REMAINDER, metavar="script.py [args...]", help="what to run")
    run.set_defaults(command=_run)

    scan = commands.add_parser(
        "scan",
        help="list what Lightning will not move with a module",
        description="Build a module on the CPU and list the tensors, modules and metrics in it that Lightning will\n"
        "not move. Each is harmless until it meets a tensor on a device.",
        epilog=EXIT_CODES,
        formatter_class=layout,
    )
    scan.add_argument("target", metavar="MODULE:CLASS", help="a class, or a function, that needs no arguments")
    _add_output(scan)
    _add_baseline(scan)
    scan.set_defaults(command=_scan)

    explain = commands.add_parser(
        "explain",
        help="explain a device error from a pasted traceback or log",
        description="Read a traceback or a log from standard input, and say what its last device\n"
        "error means.\n"
        "Example: lightning-devcheck explain < train.log",
        epilog=EXIT_CODES,
        formatter_class=layout,
    )
    _add_output(explain)
    explain.set_defaults(command=_explain)
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="(default: text)")
    parser.add_argument("--output", metavar="FILE", help="write the report to a file, not to standard output")


def _add_baseline(parser: argparse.ArgumentParser) -> None:
    helped = "report in JSON whose findings are known: new ones fail"
    parser.add_argument("--baseline", type=_report_in, metavar="FILE", help=helped)


def _report_in(text: str) -> Report:
    try:
        return read_baseline(Path(text))
    except BaselineError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def _run(args: argparse.Namespace) -> int:
    problem = _fix_problem(args) or _problem(args) or output_problem(args)
    if problem:
        say(problem)
        return USAGE
    with tempfile.TemporaryDirectory(prefix="lightning-devcheck-") as folder:
        if args.diff or args.fix:
            return _fix(Path(folder), args)
        return _run_in(Path(folder), args)


def _fix_problem(args: argparse.Namespace) -> str:
    """What does not go together; empty where all does."""
    if args.all and not args.fix:
        return "--all goes with --fix"
    if args.diff and args.fix:
        return "--diff shows and --fix writes: choose one"
    if args.baseline is not None and (args.diff or args.fix):
        return "--baseline goes with neither --diff nor --fix, which try the fix of every finding"
    if args.diff and args.format != "text" and args.output is None:
        return f"--diff prints the diff: name a file for the {args.format} report with --output"
    return ""


def _fix(folder: Path, args: argparse.Namespace) -> int:
    """Try the fixes; what cannot be tried ends as any other run does."""
    from lightning_devcheck._run.fixing import Fixing  # imports torch, which --help need not

    fixing = Fixing(folder, args)
    first = fixing.run({})
    outcome = fixing.outcome
    if outcome.overdue or not first.report.findings:
        return _conclude(outcome.folder, args, outcome.status, overdue=outcome.overdue)
    return fixing.conclude(first)


def _problem(args: argparse.Namespace) -> str:
    """What is wrong with what the user asked to run; empty where nothing is."""
    if not args.target:
        return "name a script: lightning-devcheck run [options] script.py [args...]"
    name = args.target[0]
    if args.as_module:
        with output_for_machines(args):
            exists = _module_exists(name)
        return "" if exists else f"no module named {name} (for {sys.executable})"
    if not name:
        return "the script's name is empty; name a script, or a module with -m"
    path = Path(name)
    if not path.exists():
        return f"{name}: no such file in {os.getcwd()}"
    if path.is_dir():
        return f"{name} is a folder; name a script, or a module with -m"
    if not path.is_file():
        return f"{name} is no regular file; write the script to one"
    return _script_problem(path)


def _script_problem(path: Path) -> str:
    """Why Python cannot run a file; empty where it may."""
    if path.suffix.lower() == ".ipynb":
        return (
            f"{path} is a notebook: convert it (jupyter nbconvert --to script {path}) and run the script, or use "
            "DeviceCheck or preflight in a cell of it"
        )
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    runnable = head.startswith(importlib.util.MAGIC_NUMBER) or zipfile.is_zipfile(path)
    if b"\0" in head and not runnable:
        return f"{path} is no Python script: it is binary"
    return ""


def _module_exists(name: str) -> bool:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
    except (Exception, SystemExit):
        # a package above it fails when it is imported; the run shows that as the script's failure
        return True


def _run_in(folder: Path, args: argparse.Namespace) -> int:
    settings = Settings(str(folder), args.devices, args.steps, not args.no_values, args.stop_at_first)
    # a report for a machine is not mixed with what the script prints
    redirected = sys.stderr.fileno() if args.format != "text" and args.output is None else None
    overdue, status = False, 0
    flush_or_drop(sys.stdout)
    try:
        status = run_group(
            command(args.target, as_module=args.as_module),
            {**os.environ, **settings.to_environment()},
            timeout_s=args.timeout,
            failed=lambda: has_failed(folder),
            stdout=redirected,
        )
    except TimeLimitError:
        overdue = True
    return _conclude(folder, args, status, overdue=overdue)


def _conclude(folder: Path, args: argparse.Namespace, status: int, *, overdue: bool) -> int:
    """Show the findings, and choose the exit code."""
    reports = saved(folder)
    report = _new_in(merge_reports(reports), args)
    script = args.target[0]
    if overdue:
        say(f"{script} did not end within {args.timeout} s, or a process hung after another failed: all were ended")
    if report.errors or (not overdue and status == 0 and reports):
        write_report(report, args)
        return CLEAN if report.ok else FINDINGS
    if report.findings:
        write_report(report, args)
    if overdue or status:
        if not overdue:
            say(f"{script} failed; its error was not recognized as a device error")
        return FAILED
    say(f"{script} ended without calling Trainer.fit: nothing was checked, and no backward() ran either")
    return USAGE


def _new_in(report: Report, args: argparse.Namespace) -> Report:
    """Leave out what the baseline has, and say how much that is."""
    if args.baseline is None:
        return report
    new, count = without_known(report, args.baseline)
    say(f"{count} known findings left out, {len(new.findings)} new ones")
    return new


def _scan(args: argparse.Namespace) -> int:
    from lightning_devcheck._judge.scan import scan  # imports torch, which --help need not

    problem = output_problem(args)
    if problem:
        say(problem)
        return USAGE
    try:
        with output_for_machines(args):
            report = _new_in(scan(build(args.target)), args)
    except TargetError as error:
        say(f"scan {args.target}: {error}")
        return USAGE
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        say(f"scan {args.target}: {in_one_line(error)}")
        return FAILED
    write_report(report, args)
    return FINDINGS if report.findings else CLEAN


def _explain(args: argparse.Namespace) -> int:
    from lightning_devcheck._explain import explain_log
    from lightning_devcheck._explain.decode import read_log

    problem = output_problem(args)
    if problem:
        say(problem)
        return USAGE
    if sys.stdin is None:
        say("there is no standard input: lightning-devcheck explain < train.log")
        return USAGE
    if sys.stdin.isatty():
        say("paste the traceback, then press Ctrl-D")
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:  # consoles of editors put a stream of text in its place
        stream = io.BytesIO(sys.stdin.read().encode("utf-8", "replace"))
    report = explain_log(read_log(stream))
    if report is None:
        say("no device error that is known was found in the text")
        return CLEAN
    write_report(report, args)
    return FINDINGS
