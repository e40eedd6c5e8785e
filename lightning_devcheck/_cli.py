"""The command line: run a script on simulated devices, or scan a class."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_devcheck._report import Report
from lightning_devcheck._script import ScriptError, run_rank, run_script

CLEAN, FINDINGS, USAGE, FAILED = range(4)
EPILOG = """exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 the script failed for another reason

examples:
  lightning-devcheck run train.py --config my.yaml
  lightning-devcheck run --devices 4 --format html --output report.html -m package.train
  lightning-devcheck scan package.models:Net
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    args = _parser().parse_args(argv)
    try:
        return int(args.command(args))
    except ScriptError as error:
        print(f"lightning-devcheck: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("lightning-devcheck: interrupted", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lightning-devcheck",
        description="Find tensors on the wrong device in PyTorch Lightning training, with or without a GPU.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run an unmodified training script on simulated CUDA devices")
    run.add_argument("--devices", type=_positive, default=2, help="how many devices to pretend (default: 2)")
    run.add_argument("--steps", type=_positive, default=2, help="training and validation steps per fit (default: 2)")
    _add_output(run)
    run.add_argument("-m", dest="is_module", action="store_true", help="the script is a module, as in python -m")
    run.add_argument("--rank-reports", type=Path, help=argparse.SUPPRESS)  # a rank that the script's launcher started
    run.add_argument("script", help="the script, or with -m the module")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    run.set_defaults(command=_run)
    scan = commands.add_parser("scan", help="list what Lightning will not move with a module")
    scan.add_argument("target", metavar="MODULE:CLASS", help="a class that can be made without arguments")
    _add_output(scan)
    scan.set_defaults(command=_scan)
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=["text", "json", "html"], default="text", help="form of the report")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the report goes (default: standard output)")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _run(args: argparse.Namespace) -> int:
    if args.rank_reports is not None:
        return run_rank(args)
    report, failure = run_script(args)
    if failure is not None:
        print(failure, file=sys.stderr, end="")
        return FAILED
    _write(report, args.format, args.output)
    return CLEAN if report.ok else FINDINGS


def _scan(args: argparse.Namespace) -> int:
    from lightning_devcheck._scan import scan  # --help needs no torch

    name, colon, attribute = args.target.partition(":")
    if not colon:
        raise ScriptError(f"scan {args.target}: write MODULE:CLASS, such as package.models:Net")
    sys.path.insert(0, "")
    try:
        made = getattr(importlib.import_module(name), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ScriptError(f"scan {args.target}: {error}") from error
    report = scan(made)
    _write(report, args.format, args.output)
    return CLEAN if not report.findings else FINDINGS


def _write(report: Report, form: str, output: Path | None) -> None:
    if form == "text" and output is None:
        report.show(sys.stdout)
        return
    text = {"text": report.__str__, "json": report.to_json, "html": report.to_html}[form]()
    if output is None:
        print(text)
    else:
        output.write_text(f"{text}\n", encoding="utf-8")
        print(f"lightning-devcheck: report written to {output}", file=sys.stderr)
