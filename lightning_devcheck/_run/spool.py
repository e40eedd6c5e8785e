"""Reports on their way from the processes of a run to the one that sums up: ranks have no way back but files."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

from lightning_devcheck._report.report import Report

_numbers = itertools.count()


def save(report: Report, folder: Path, name: str = "") -> str:
    """Save a report; a half-written file is never seen.

    Args:
        report: The report.
        folder: Where to.
        name: The name of an older report that it replaces; empty for a name of its own.

    Returns:
        Its name.
    """
    name = name or f"{os.getpid()}-{next(_numbers)}.json"
    # a name that no encoding has becomes JSON's own escape
    (folder / f".{name}").write_text(report.to_json(), encoding="utf-8", errors="backslashreplace")
    (folder / f".{name}").rename(folder / name)
    return name


def saved(folder: Path) -> list[Report]:
    """All reports in a folder, each process's in order."""
    paths = sorted(folder.glob("[0-9]*.json"), key=lambda path: [int(part) for part in path.stem.split("-")])
    return [Report.from_dict(json.loads(path.read_text(encoding="utf-8"))) for path in paths]
