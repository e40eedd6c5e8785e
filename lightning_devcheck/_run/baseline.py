"""Known findings: those of an earlier report are counted, not told again."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from lightning_devcheck._report.lines import place_of
from lightning_devcheck._report.records import Finding
from lightning_devcheck._report.report import Report

# what reading something else as a report raises
NO_REPORT = (ValueError, KeyError, TypeError, AttributeError)


class BaselineError(Exception):
    """A file is no report."""


def read_baseline(path: Path) -> Report:
    """Read the report of known findings, as ``--format json --output`` writes it.

    Raises:
        BaselineError: If the file cannot be read, or is no such report.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        return Report.from_dict(data)
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror}") from error
    except NO_REPORT as error:
        wanted = f"write one with --format json --output {path}"
        raise BaselineError(f"{path} is no report: {wanted}") from error


def without_known(report: Report, known: Report) -> tuple[Report, int]:
    """Leave the known findings out of a report.

    Returns:
        The report of the others, and how many findings are known.
    """
    keys = {_key(finding) for finding in known.findings}
    new = [finding for finding in report.findings if _key(finding) not in keys]
    count = len(report.findings) - len(new)
    return replace(report, findings=tuple(new)), count


def _key(finding: Finding) -> Hashable:
    """Tell what makes two findings the same in two versions of a program.

    Lines move when others are edited, and folders differ between machines: the text of the line and
    the file's own name stay.
    """
    place = place_of(finding)
    if place is None:
        return finding.rule, finding.name
    file = os.path.basename(place.filename)
    return finding.rule, finding.name, file, place.line
