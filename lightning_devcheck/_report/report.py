"""The report: everything one run found, checked and could not check."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lightning_devcheck._report.dot import render_dot
from lightning_devcheck._report.edits import unified_diff
from lightning_devcheck._report.html import render_fragment, render_html
from lightning_devcheck._report.records import Edit, Finding
from lightning_devcheck._report.text import render_text, supports_color

FORMAT_NAME = "lightning-devcheck-report"
FORMAT_VERSION = 1
SEVERITIES = ("error", "warning", "note")
UNTRIED = "# not tried: no second run was made with these changes\n"


@dataclass(frozen=True, slots=True)
class Report:
    """What one run found.

    A report holds text and numbers only: it keeps no tensor, graph or exception alive, and can be pickled, saved
    and sent between processes. It is on no device and costs nothing to keep.

    Attributes:
        findings: What is wrong, in the order it was found.
        checked: How much was looked at: counts of ``tensors``, ``graph_nodes``, ``steps``, and ``seconds``.
        not_checked: What was seen and not judged, each with the reason.
        world_size: The number of processes of the run.

    Example:
        >>> from lightning_devcheck import Report
        >>> report = Report(checked={"tensors": 12})
        >>> report.ok
        True
        >>> print(report)
        no findings (checked: 12 tensors)
    """

    findings: tuple[Finding, ...] = ()
    checked: Mapping[str, float] = field(default_factory=dict)
    not_checked: tuple[str, ...] = ()
    world_size: int = 1

    @property
    def ok(self) -> bool:
        """Whether there is no error and no warning; notes are fine."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def __str__(self) -> str:
        return render_text(self)

    def show(self, file: TextIO | None = None) -> None:
        """Print the report, in colour where ``file`` is a terminal and ``NO_COLOR`` is not set.

        Args:
            file: Where to; ``sys.stderr`` when None.
        """
        file = sys.stderr if file is None else file
        write_text(render_text(self, color=supports_color(file)), file)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as one HTML page, and write it to a file if asked to.

        The page needs no network and no script; it is light or dark as the reader's system is, and every string that
        comes from the checked code is escaped. A notebook shows the same by itself.

        Args:
            path: The file to write, in UTF-8; None for none.

        Raises:
            OSError: If ``path`` cannot be written.
        """
        page = render_html(self)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
        return page

    def diff(self) -> str:
        """Return what the findings' edits change in the sources, as a unified diff for ``patch -p1``.

        Nobody has tried the changes unless ``lightning-devcheck run --diff`` or ``--fix`` did: the first line says so.
        It reads the files as they are now; what no longer fits them is left out. Empty where nothing is to change.
        """
        edits: list[Edit] = []
        is_proven = True
        for finding in self.findings:
            if finding.verified is not False:
                edits += finding.edits
                is_proven &= finding.verified is True or not finding.edits
        text = unified_diff(edits)
        return text if is_proven or not text else f"{UNTRIED}{text}"

    def to_dot(self) -> str:
        """Return the findings as a picture in Graphviz' DOT language: devices as boxes, tensors in them.

        Only what a finding names is drawn, not the graph of the whole model. ``dot -Tsvg`` or
        ``graphviz.Source(report.to_dot())`` draws it.
        """
        return render_dot(self)

    def _repr_html_(self) -> str:
        return render_fragment(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types, with the format's name and version."""
        return {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "ok": self.ok,
            "world_size": self.world_size,
            "findings": [finding.to_dict() for finding in self.findings],
            "checked": dict(self.checked),
            "not_checked": list(self.not_checked),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return the report as JSON text.

        Args:
            indent: Spaces per level; None for one line.
        """
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Build a report from what `to_dict` gave (or `to_json`, through ``json.loads``).

        Args:
            data: The dictionary.

        Raises:
            ValueError: If ``data`` is not such a report, or of another format version.
        """
        if data.get("format") != FORMAT_NAME or data.get("version") != FORMAT_VERSION:
            found = f"format={data.get('format')!r}, version={data.get('version')!r}"
            raise ValueError(f"not a report this version reads: {found}; expected {FORMAT_NAME!r}, {FORMAT_VERSION}.")
        return cls(
            findings=tuple(Finding.from_dict(finding) for finding in data["findings"]),
            checked=dict(data["checked"]),
            not_checked=tuple(data["not_checked"]),
            world_size=data["world_size"],
        )


def write_text(text: str, file: TextIO) -> None:
    """Write a text and a line's end, in one piece; what the file's encoding has not is escaped."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    safe = text.encode(encoding, "backslashreplace").decode(encoding)
    file.write(f"{safe}\n")
    file.flush()


def merge_reports(reports: Iterable[Report]) -> Report:
    """Put several reports into one: errors first, what has one cause once, counts added up."""
    findings: dict[Finding, None] = {}
    checked: dict[str, float] = {}
    not_checked: dict[str, None] = {}
    world_size = 1
    for report in reports:
        findings.update(dict.fromkeys(report.findings))
        not_checked.update(dict.fromkeys(report.not_checked))
        world_size = max(world_size, report.world_size)
        for key, value in report.checked.items():
            checked[key] = checked.get(key, 0) + value
    return Report(tuple(_one_for_each_cause(findings)), checked, tuple(not_checked), world_size)


def _one_for_each_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out what follows from another finding; errors come first."""
    told: list[Finding] = []
    # thousands of ranks tell of few causes: no finding is compared with those of all ranks
    causes: dict[Hashable, Finding] = {}
    seen: dict[Hashable, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        thing = finding.rule, finding.name, finding.device, finding.global_rank
        same = seen.setdefault(thing, [])
        is_again = any(_is_again(finding, other) for other in same)
        if is_again or any(_follows(finding, cause) for cause in causes.values()):
            continue
        told.append(finding)
        same.append(finding)
        if finding.decided is not None:
            place = finding.decided, finding.decided.column
            causes.setdefault((finding.rule, finding.name, place, finding.origin, finding.fix), finding)
    return told


def _follows(finding: Finding, cause: Finding) -> bool:
    """Whether a finding follows from another one, whose cause was seen; of one name both are told, with their ranks."""
    if cause.decided is None or (finding.rule, finding.name) == (cause.rule, cause.name):
        return False
    if finding.severity == "note" and finding.name == cause.name:
        return True
    if finding.origin == cause.origin and finding.fix == cause.fix:
        return True
    return cause.decided.meets(finding.decided or finding.origin)


def _is_again(finding: Finding, other: Finding) -> bool:
    """Whether two findings of one name are of one thing, which two have seen."""
    made, known = finding.decided or finding.origin, other.decided or other.origin
    return made is not None and made.meets(known)
