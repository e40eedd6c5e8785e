"""The command line: ``lightning-devcheck run``, ``scan`` and ``explain``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import os
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning_devcheck._launch import Settings, TimeLimitError, command, flush_or_drop, has_failed, run_group
from lightning_devcheck._render._text import location
from lightning_devcheck._report import Report, merge_reports, write_text
from lightning_devcheck._saved import saved
from lightning_devcheck._source import user_lines
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
    _open_missing_streams()
    try:
        args = _parser().parse_args(argv)
        return int(args.command(args))
    except KeyboardInterrupt:
        _say("interrupted: all processes were ended")
        return INTERRUPTED
    except OSError as error:
        # such as a full disk where temporary files are
        _say(f"stopped: {error}")
        return FAILED
    finally:
        # else Python fails at its end, with an exit code of its own
        flush_or_drop(sys.stdout)
        flush_or_drop(sys.stderr)


def _open_missing_streams() -> None:
    """Have standard streams that are closed lead nowhere, in started processes too: no file takes their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


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
    try:
        write_text(f"lightning-devcheck: {text}", sys.stderr)
    except OSError:
        flush_or_drop(sys.stderr)  # there is no other place to say it


def _run(args: argparse.Namespace) -> int:
    problem = _problem(args) or _output_problem(args)
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
        with _output_for_machines(args):
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


def _output_problem(args: argparse.Namespace) -> str:
    """Why the file for the report cannot be written; empty where it may. Nothing in it is changed."""
    if args.output is None:
        return ""
    path = Path(args.output)
    try:
        if path.is_dir():
            return f"--output {args.output}: is a folder; name a file"
        is_new = not path.exists()
        if is_new or path.is_file():
            path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        return f"--output {args.output}: {error.strerror}"
    # a pipe or a device is only opened to write the report
    return "" if is_new or os.access(path, os.W_OK) else f"--output {args.output}: Permission denied"


def _run_in(folder: Path, args: argparse.Namespace) -> int:
    settings = Settings(str(folder), args.devices, args.steps, not args.no_values)
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
    """Write the report to where the user wants it; where that fails to the next best place, with a word."""
    if args.output is not None:
        try:
            text = _rendered(report, args.format, "utf-8")
            Path(args.output).write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            _say(f"--output {args.output}: {error.strerror}; the report goes to standard output")
        else:
            _say(f"report written to {args.output}")
            return
    try:
        _show(report, args.format, sys.stdout)
    except BrokenPipeError:
        flush_or_drop(sys.stdout)  # the reader has seen enough
    except OSError as error:
        flush_or_drop(sys.stdout)
        _say(f"standard output: {error.strerror}; the report goes to standard error")
        with contextlib.suppress(OSError):
            _show(report, args.format, sys.stderr)


def _show(report: Report, form: str, stream: Any) -> None:
    if form == "text":
        report.show(stream)
    else:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        write_text(_rendered(report, form, encoding), stream)


def _rendered(report: Report, form: str, encoding: str) -> str:
    """The report in a format; what an encoding has not is escaped as the format does."""
    if form == "html":
        return report.to_html().encode(encoding, "xmlcharrefreplace").decode(encoding)
    if form == "text":
        return str(report)
    text = report.to_json()
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(report.to_dict(), indent=2)
    return text


@contextlib.contextmanager
def _output_for_machines(args: argparse.Namespace) -> Iterator[None]:
    """Send what other code prints to standard error, where standard output is for a report in a machine's format."""
    if args.format == "text" or args.output is not None:
        yield
        return
    flush_or_drop(sys.stdout)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        # what was printed through a name for it that the redirection does not reach
        flush_or_drop(sys.stdout)
        os.dup2(kept, 1)
        os.close(kept)


class TargetError(Exception):
    """What the user asked to scan is not there, or no module."""


def _scan(args: argparse.Namespace) -> int:
    from lightning_devcheck._scan import scan  # imports torch, which --help need not

    problem = _output_problem(args)
    if problem:
        _say(problem)
        return USAGE
    try:
        with _output_for_machines(args):
            report = scan(_build(args.target))
    except TargetError as error:
        _say(f"scan {args.target}: {error}")
        return USAGE
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _say(f"scan {args.target}: {_in_one_line(error)}")
        return FAILED
    _write(report, args)
    return FINDINGS if report.findings else CLEAN


def _in_one_line(error: BaseException) -> str:
    """What was raised by code that is scanned, and where."""
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = "(its message cannot be shown)"
    lines = user_lines(traceback.format_tb(error.__traceback__))
    place = f" ({location(lines[0])}  {lines[0].line})" if lines else ""
    return f"importing or making it raised {type(error).__name__}: {said}{place}"


def _build(target: str) -> Any:
    """Make the module that ``package.module:Class`` names.

    Raises:
        TargetError: If there is none of that name, or it is no module and makes none without arguments.
    """
    import torch

    name, colon, attribute = target.partition(":")
    if not (name and colon and attribute) or name.startswith("."):
        raise TargetError("write MODULE:CLASS, such as package.models:Net")
    sys.path.insert(0, os.getcwd())
    value = _imported(name)
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise TargetError(str(error)) from error
    if isinstance(value, type) or not isinstance(value, torch.nn.Module):
        value = _made(value)
    if not isinstance(value, torch.nn.Module):
        raise TargetError(f"a torch.nn.Module is needed, this is a {type(value).__name__}")
    return value


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        own = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if not own:
            raise
        raise TargetError(f"{error} in {os.getcwd()}, nor installed") from error


def _made(value: Any) -> Any:
    """What a class or a function makes without arguments; another value as it is."""
    if not callable(value):
        return value
    try:
        wanted = inspect.signature(value)
    except (TypeError, ValueError):
        return value()  # it does not tell what it needs
    try:
        wanted.bind()
    except TypeError as error:
        raise TargetError(f"{error}; name a function that makes it") from error
    make: Callable[[], Any] = value
    return make()


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
    _write(report, argparse.Namespace(format="text", output=None))
    return FINDINGS
