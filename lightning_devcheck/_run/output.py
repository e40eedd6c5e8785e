"""Where the command line writes: streams that may be closed or full, a file, each format."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lightning_devcheck._report.lines import render_concise, render_github
from lightning_devcheck._report.report import Report, write_text
from lightning_devcheck._report.sarif import render_sarif
from lightning_devcheck._run.parent import flush_or_drop


def open_missing_streams() -> None:
    """Have closed standard streams lead nowhere, so that no file takes their number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is not None:
            continue
        descriptor = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(descriptor, True)
        if name != "stdin":  # None says that there is nothing to read
            setattr(sys, name, os.fdopen(descriptor, "w"))


def say(text: str) -> None:
    try:
        write_text(f"lightning-devcheck: {text}", sys.stderr)
    except OSError:
        flush_or_drop(sys.stderr)  # there is no other place to say it


def output_problem(args: argparse.Namespace) -> str:
    """Say why the file for the report cannot be written; empty where it may. It is not changed."""
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
    if is_new or os.access(path, os.W_OK):
        return ""
    return f"--output {args.output}: Permission denied"


def write_report(report: Report, args: argparse.Namespace) -> None:
    """Write the report to where the user wants it; else to the next best place, with a word."""
    if args.output is not None:
        try:
            text = FORMATS[args.format](report, "utf-8")
            Path(args.output).write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            say(f"--output {args.output}: {error.strerror}; the report goes to standard output")
        else:
            say(f"report written to {args.output}")
            return
    try:
        _show(report, args.format, sys.stdout)
    except BrokenPipeError:
        flush_or_drop(sys.stdout)  # the reader has seen enough
    except OSError as error:
        flush_or_drop(sys.stdout)
        say(f"standard output: {error.strerror}; the report goes to standard error")
        with contextlib.suppress(OSError):
            _show(report, args.format, sys.stderr)


def _show(report: Report, form: str, stream: Any) -> None:
    if form == "text":
        report.show(stream)
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = FORMATS[form](report, encoding)
    # no finding, no line
    if text:
        write_text(text, stream)


def _as_text(report: Report, encoding: str) -> str:
    return str(report)


def _as_html(report: Report, encoding: str) -> str:
    """Write a page; what an encoding has not is a character reference."""
    page = report.to_html().encode(encoding, "xmlcharrefreplace")
    return page.decode(encoding)


def _as_json(report: Report, encoding: str) -> str:
    """Write JSON; what an encoding has not is JSON's own escape."""
    text = report.to_json()
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(report.to_dict(), indent=2)
    return text


def _as_lines(report: Report, encoding: str) -> str:
    return render_concise(report, os.getcwd())


def _as_annotations(report: Report, encoding: str) -> str:
    """Write workflow commands; GitHub wants paths below its checkout."""
    checkout = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
    return render_github(report, checkout)


def _as_sarif(report: Report, encoding: str) -> str:
    return render_sarif(report, os.getcwd())


# each way to write a report, by its name on the command line
FORMATS: dict[str, Callable[[Report, str], str]] = {}
FORMATS["text"] = _as_text
FORMATS["json"] = _as_json
FORMATS["html"] = _as_html
FORMATS["concise"] = _as_lines
FORMATS["github"] = _as_annotations
FORMATS["sarif"] = _as_sarif


@contextlib.contextmanager
def output_for_machines(args: argparse.Namespace) -> Iterator[None]:
    """Send what other code prints to standard error, where a machine reads standard output."""
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
