"""Scripts with several marked mistakes: where they are, the same script with some corrected, and what a run says.

A statement with a mistake has ``# BUG number: name`` at the end of one of its lines, where the name is what a report
should call the culprit; ``# FIX number: statement`` on a line below it is what to write instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lightning_devcheck import Finding, Report
from tests.helpers.source import statement_lines

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "multi"
SCRIPTS = sorted(FOLDER.glob("[a-z]*.py"))
BUG = re.compile(r"# BUG (\d+)(?:: (.+))?$")
FIX = re.compile(r"^\s*# FIX (\d+): (.+)$", re.MULTILINE)
LIMIT_S = 200


@dataclass(frozen=True)
class Mistake:
    """One marked statement.

    Attributes:
        number: What it is marked with.
        name: What a report should call the culprit; empty where the marker does not say.
        lines: The lines of its statement.
        fix: The statement to write instead; empty where the script does not say.
    """

    number: int
    name: str
    lines: range
    fix: str


@dataclass(frozen=True)
class Run:
    """What ``lightning-devcheck run`` made of a script; the report is None where it wrote none."""

    status: int
    report: Report | None
    output: str
    errors: str

    @property
    def told(self) -> list[Finding]:
        """The findings that count: errors and warnings."""
        if self.report is None:
            return []
        return [finding for finding in self.report.findings if finding.severity != "note"]


def mistakes_in(text: str) -> list[Mistake]:
    """All marked statements of a script."""
    fixes = {int(number): fix for number, fix in FIX.findall(text)}
    found = []
    for lineno, line in enumerate(text.splitlines(), 1):
        marker = BUG.search(line)
        if marker:
            number, name = int(marker[1]), marker[2] or ""
            found.append(Mistake(number, name, statement_lines(text, lineno), fixes.get(number, "")))
    return found


def corrected(text: str, numbers: Collection[int] | None = None) -> str:
    """The script with some of its mistakes corrected, or with all."""
    lines = text.splitlines(keepends=True)
    for mistake in mistakes_in(text):
        if numbers is None or mistake.number in numbers:
            first, *rest = mistake.lines
            indent = re.match(r"\s*", lines[first - 1])[0]
            lines[first - 1] = f"{indent}{mistake.fix}\n"
            for lineno in rest:
                lines[lineno - 1] = "\n"
    return "".join(lines)


def mistakes_of(finding: Finding, mistakes: Iterable[Mistake]) -> list[Mistake]:
    """The marked statements that a finding shows as its origin or as its use."""
    shown = {place.lineno for place in (finding.origin, finding.used) if place is not None}
    return [mistake for mistake in mistakes if shown & set(mistake.lines)]


def is_called(name: str, culprit: str) -> bool:
    """Whether a name is one of a culprit's (``a | b``), or a part of it, or it of the name."""
    plain = _plain(name)
    others = [_plain(other) for other in culprit.split(" | ")]
    return any(_starts(plain, other) or _starts(other, plain) for other in others)


def _plain(name: str) -> str:
    return name.replace("'", '"').removeprefix("self.")


def _starts(name: str, other: str) -> bool:
    if not name.startswith(other):
        return False
    return name == other or name[len(other)] in ".[("


def environment() -> dict[str, str]:
    """The environment of a script; what a rank prints is written at once, so that lines stay whole."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def put(folder: Path, texts: Mapping[str, str]) -> str:
    """Put scripts into a folder, and one that runs them in turn in one process; returns its name."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    turns = f"""
import runpy
for name in {list(texts)}:
    print("script", name)
    runpy.run_path(name, run_name="__main__")
"""
    (folder / "in_turn.py").write_text(turns, encoding="utf-8")
    return "in_turn.py"


def run_script(folder: Path, name: str, *options: str) -> Run:
    """Let the command line run a script of a folder."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    tool = [sys.executable, "-m", "lightning_devcheck", "run"]
    output = ["--format", "json", "--output", str(report)]
    done = start([*tool, *output, *options, name], folder)
    read = None
    if report.exists():
        read = Report.from_dict(json.loads(report.read_bytes()))
    return Run(done.returncode, read, done.stdout, done.stderr)


def start(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder to its end."""
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=folder, env=environment())
