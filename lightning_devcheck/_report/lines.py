"""The report as one line for each finding: for editors that jump to it, and for pull requests.

NOTE [Where a line leads]
To where the fix goes: the line that made the culprit, else the one where it met the others. Paths
are relative to the folder that the reader starts from; columns are characters, counted from 1.

Source of the workflow commands: GitHub's documentation, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

import linecache
import os
from dataclasses import dataclass

from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.text import ReportLike, escape_control, group_by_cause

# GitHub's words for the severities
LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
NOWHERE = "(no line)"


@dataclass(frozen=True, slots=True)
class Spot:
    """A piece of a file as editors count it.

    Attributes:
        path: The file, relative to a folder where it is below that, with slashes.
        line: The first line, counted from 1.
        column: The first character's column, counted from 1.
        end_line: The last line.
        end_column: The column behind the last character; None where no columns are known.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int | None


def spot_of(place: Origin, folder: str) -> Spot:
    """Write a place as editors count it.

    Args:
        place: The place.
        folder: What paths are relative to.
    """
    path = _relative(place.filename, folder)
    last = place.end_lineno or place.lineno
    if place.column is None or place.end_column is None:
        return Spot(path, place.lineno, 1, last, None)
    start = _characters(place.filename, place.lineno, place.column)
    end = _characters(place.filename, last, place.end_column)
    return Spot(path, place.lineno, start + 1, last, end + 1)


def place_of(finding: Finding) -> Origin | None:
    """Choose the line that a reader is led to."""
    return finding.origin or finding.used


def render_concise(report: ReportLike, folder: str) -> str:
    """Return a line for each cause, as compilers write them.

    Args:
        report: The report.
        folder: What paths are relative to.
    """
    lines = []
    for group in group_by_cause(report.findings):
        finding = group[0]
        place = place_of(finding)
        where = NOWHERE
        if place is not None:
            spot = spot_of(place, folder)
            where = f"{spot.path}:{spot.line}:{spot.column}"
        what = _in_one_line(finding.what)
        lines.append(f"{where}: {finding.severity} {finding.rule} {what}")
    return "\n".join(lines)


def render_github(report: ReportLike, folder: str) -> str:
    """Return a workflow command of GitHub Actions for each cause: it annotates a pull request.

    Args:
        report: The report.
        folder: What paths are relative to: the checkout.
    """
    commands = []
    for group in group_by_cause(report.findings):
        finding = group[0]
        properties = _properties(finding, folder)
        written = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
        message = "\n".join((finding.what, finding.why, finding.fix))
        commands.append(f"::{LEVELS[finding.severity]} {written}::{_escaped(message)}")
    return "\n".join(commands)


def _properties(finding: Finding, folder: str) -> dict[str, str]:
    """Say where a finding is, in the words of a workflow command."""
    properties: dict[str, str] = {}
    place = place_of(finding)
    if place is not None:
        spot = spot_of(place, folder)
        properties["file"] = spot.path
        properties["line"] = str(spot.line)
        properties["endLine"] = str(spot.end_line)
        # GitHub takes columns only within one line
        if spot.end_column is not None and spot.end_line == spot.line:
            properties["col"] = str(spot.column)
            properties["endColumn"] = str(spot.end_column)
    properties["title"] = finding.rule
    return properties


def _escaped(text: str, more: str = "") -> str:
    """Escape what ends a value in a workflow command."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _in_one_line(text: str) -> str:
    return escape_control(" ".join(text.split()))


def _characters(filename: str, lineno: int, column: int) -> int:
    """Count the characters before a column, which Python counts in bytes of UTF-8."""
    before = linecache.getline(filename, lineno).encode()[:column]
    if len(before) < column:
        return column  # the file is not at hand
    return len(before.decode(errors="ignore"))


def _relative(filename: str, folder: str) -> str:
    """Write a file relative to a folder where it is below that; a notebook's cell as it is."""
    if filename.startswith("<"):
        return filename
    path = os.path.abspath(filename)
    below = os.path.relpath(path, folder)
    if below.startswith(os.pardir):
        below = path
    return below.replace(os.sep, "/")
