"""The command line: ``lightning-devcheck run``, ``scan`` and ``explain``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_devcheck._launch import Settings, TimeLimitError, command, has_failed, run_group
from lightning_devcheck._report import Report, merge_reports
from lightning_devcheck._saved import saved
from lightning_devcheck._version import __version__

CLEAN, FINDINGS, USAGE, FAILED, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES = """\
exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 the script failed for another reason or did not end in time
"""
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
    args = _parser().parse_args(argv)
    try:
        return int(args.command(args))
    except KeyboardInterrupt:
        _say("interrupted: all processes were ended")
        return INTERRUPTED


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
    _add_output(run)
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
    explain.set_defaults(command=_explain)
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json", "html"), default="text", help="(default: text)")
    parser.add_argument("--output", metavar="FILE", help="write the report to a file, not to standard output")


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def _say(text: str) -> None:
    print(f"lightning-devcheck: {text}", file=sys.stderr, flush=True)


def _run(args: argparse.Namespace) -> int:
    problem = _problem(args)
    if problem:
        _say(problem)
        return USAGE
    with tempfile.TemporaryDirectory(prefix="lightning-devcheck-") as folder:
        return _run_in(Path(folder), args)


def _problem(args: argparse.Namespace) -> str:
    """What is wrong with what the user asked to run; empty where nothing is."""
    if not args.target:
        return "name a script: lightning-devcheck run [options] script.py [args...]"
    name = args.target[0]
    if args.as_module:
        return "" if _module_exists(name) else f"no module named {name} (for {sys.executable})"
    if not Path(name).exists():
        return f"{name}: no such file in {os.getcwd()}"
    return "" if Path(name).is_file() else f"{name} is a folder; name a script, or a module with -m"


def _module_exists(name: str) -> bool:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _run_in(folder: Path, args: argparse.Namespace) -> int:
    settings = Settings(str(folder), args.devices, args.steps, not args.no_values)
    # a report for a machine is not mixed with what the script prints
    redirected = sys.stderr.fileno() if args.format != "text" and args.output is None else None
    overdue, status = False, 0
    sys.stdout.flush()
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
    report = merge_reports(reports)
    script = args.target[0]
    if overdue:
        _say(f"{script} did not end within {args.timeout} s, or a process hung after another failed: all were ended")
    if report.errors or (not overdue and status == 0 and reports):
        _write(report, args)
        return CLEAN if report.ok else FINDINGS
    if report.findings:
        _write(report, args)
    if overdue or status:
        if not overdue:
            _say(f"{script} failed; its error was not recognized as a device error")
        return FAILED
    _say(f"{script} ended without calling Trainer.fit: nothing was checked")
    return USAGE


def _write(report: Report, args: argparse.Namespace) -> None:
    if args.format == "text" and args.output is None:
        report.show(sys.stdout)
        return
    text = {"text": report.__str__, "json": report.to_json, "html": report.to_html}[args.format]()
    if args.output is None:
        print(text, flush=True)
    else:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
        _say(f"report written to {args.output}")


def _scan(args: argparse.Namespace) -> int:
    from lightning_devcheck._scan import scan  # imports torch, which --help need not

    try:
        module = _build(args.target)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        _say(f"scan {args.target}: {error}")
        return USAGE
    report = scan(module)
    _write(report, args)
    return FINDINGS if report.findings else CLEAN


def _build(target: str) -> Any:
    """Make the module that ``package.module:Class`` names."""
    name, colon, attribute = target.partition(":")
    if not (name and colon and attribute):
        raise ValueError("write MODULE:CLASS, such as package.models:Net")
    sys.path.insert(0, os.getcwd())
    value = importlib.import_module(name)
    for part in attribute.split("."):
        value = getattr(value, part)
    return value() if (callable(value) and not hasattr(value, "forward")) or isinstance(value, type) else value


def _explain(args: argparse.Namespace) -> int:
    from lightning_devcheck._explain import explain_log
    from lightning_devcheck._explain._decode import read_log

    if sys.stdin is None:
        _say("there is no standard input: lightning-devcheck explain < train.log")
        return USAGE
    if sys.stdin.isatty():
        _say("paste the traceback, then press Ctrl-D")
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:  # consoles of editors put a stream of text in its place
        stream = io.BytesIO(sys.stdin.read().encode("utf-8", "replace"))
    report = explain_log(read_log(stream))
    if report is None:
        _say("no device error that is known was found in the text")
        return CLEAN
    report.show(sys.stdout)
    return FINDINGS
