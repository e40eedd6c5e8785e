"""The report as a person reads it in a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TextIO

from lightning_devcheck._report.edits import fix_label, fix_words, small_diff
from lightning_devcheck._report.records import Finding, Operand, Origin

DOCS = "docs/rules.md"
COLORS = {"error": "31", "warning": "33", "note": "36", "dim": "2", "bold": "1"}


class ReportLike(Protocol):
    """What a renderer reads of a report."""

    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def checked(self) -> Mapping[str, float]: ...
    @property
    def not_checked(self) -> tuple[str, ...]: ...
    @property
    def world_size(self) -> int: ...


def supports_color(stream: TextIO) -> bool:
    """Whether the stream is a terminal that wants colour (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(getattr(stream, "isatty", lambda: False)())


def render_text(report: ReportLike, *, color: bool = False) -> str:
    """Return the report as text: per cause what, evidence, why, fix and rule."""
    paint = _Paint(color)
    groups = group_by_cause(report.findings)
    if not groups:
        blocks = [f"no findings{spell_checked(report.checked)}"]
    elif len(groups) == 1:
        severity = groups[0][0].severity
        label = "" if severity == "error" else f"{severity}: "
        blocks = [_block(groups[0], report.world_size, paint, label=label)]
    else:
        title = paint("bold", f"{len(groups)} findings{spell_checked(report.checked)}")
        numbers = range(1, len(groups) + 1)
        blocks = [title]
        for number, group in zip(numbers, groups, strict=True):
            blocks.append(_block(group, report.world_size, paint, label=f"{number}. {group[0].severity}: "))
    if report.not_checked:
        blocks.append("\n".join(["Not checked:", *(f"  - {escape_control(reason)}" for reason in report.not_checked)]))
    return "\n\n".join(blocks)


def group_by_cause(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Put the findings of one cause (same rule, name and lines) together, whatever rank or step saw them."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.severity, finding.name, _spot(finding.origin), _spot(finding.used))
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _spot(place: Origin | None) -> tuple[object, ...]:
    """What tells lines apart: not the folder, which rank 0 of ``python train.py`` writes in another way than others."""
    return () if place is None else (os.path.basename(place.filename), place.lineno, place.line, place.function)


def spell_ranks(ranks: Iterable[int]) -> str:
    """Write ranks as ``0, 2-5``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


class _Paint:
    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{COLORS[style]}m{text}\x1b[0m" if self._color else text


def _block(group: Sequence[Finding], world_size: int, paint: _Paint, *, label: str) -> str:
    first = group[0]
    lines = [paint(first.severity, label + escape_control(first.what)) + spell_where(group, world_size), ""]
    lines += [f"  {row}" for row in _evidence(group, paint)]
    lines.append("")
    lines += [f"  {line}" for line in escape_control(first.why).splitlines()]
    repaired = told_of(group)
    lines += [f"  {line}" for line in _hang(f"{fix_label(repaired)}: ", escape_control(fix_words(repaired)))]
    lines += [f"    {line}" for line in escape_control(small_diff(repaired)).splitlines()]
    lines.append("  " + paint("dim", f"Rule: {first.rule} ({DOCS}#{first.rule})"))
    return "\n".join(lines)


def told_of(group: Sequence[Finding]) -> Finding:
    """Choose the finding of a group whose repair is told: one that has edits, where there is one."""
    return next((finding for finding in group if finding.edits), group[0])


def spell_where(group: Sequence[Finding], world_size: int) -> str:
    """Write the step, the ranks and how often, as `` (step 0, global rank 1 of 2)``; empty where none is known."""
    parts = []
    steps = [finding.step for finding in group if finding.step is not None]
    if steps:
        parts.append(f"step {min(steps)}")
    if world_size > 1 or any(finding.global_rank for finding in group):
        ranks = {finding.global_rank for finding in group}
        plural = "s" if len(ranks) > 1 else ""
        parts.append(f"global rank{plural} {spell_ranks(ranks)} of {max(world_size, max(ranks) + 1)}")
    times = sum(finding.count for finding in group)
    if times > len(group):
        parts.append(f"{times} times")
    return f" ({', '.join(parts)})" if parts else ""


def _evidence(group: Sequence[Finding], paint: _Paint) -> list[str]:
    first = group[0]
    devices = list(dict.fromkeys(finding.device for finding in group))
    rows = [Operand(first.name, ", ".join(devices), first.detail), *first.others]
    cells = [(escape_control(row.name), escape_control(row.device), escape_control(row.detail)) for row in rows]
    places = [(word, place) for word, place in (("made", first.origin), ("used", first.used)) if place is not None]
    widths = [max(len(cell[column]) for cell in cells) for column in range(2)]
    width = max(len(cells[0][2]), 0)
    room = max((len(location(place)) for _, place in places), default=0)
    lines = []
    for index, (name, device, detail) in enumerate(cells):
        start = f"{name:<{widths[0]}}  {device:<{widths[1]}}  "
        if index or not places:
            lines.append((start + detail).rstrip())
            continue
        margin = " " * (len(start) + width)
        for number, (word, place) in enumerate(places):
            left = margin if number else start + f"{detail:<{width}}"
            code = paint("bold", escape_control(place.line))
            lines.append(f"{left}  {word}  {location(place):<{room}}  {code}".rstrip())
    return lines


def location(place: Origin) -> str:
    """Write a line's place as ``train.py:42``."""
    return f"{escape_control(short_filename(place.filename))}:{place.lineno}"


def short_filename(filename: str) -> str:
    """The path from the working directory for what lies below it, else as it is."""
    prefix = os.getcwd() + os.sep
    return filename.removeprefix(prefix)


def _hang(label: str, text: str) -> list[str]:
    first, *rest = text.splitlines() or [""]
    return [label + first, *(" " * len(label) + line for line in rest)] if text else []


def spell_checked(checked: Mapping[str, float]) -> str:
    """Write how much was looked at, as `` (checked: 12 tensors)``; empty where nothing was counted."""
    units = {"backwards": "calls of backward", "tensors": "tensors", "graph_nodes": "graph nodes"}
    units |= {"steps": "steps", "seconds": "s"}
    parts = [f"{_number(checked[key])} {unit}" for key, unit in units.items() if key in checked]
    return f" (checked: {', '.join(parts)})" if parts else ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def escape_control(text: str) -> str:
    """Escape what could move the cursor: names and source lines come from the user's code."""
    return "".join(ch if ch.isprintable() or ch == "\n" else ch.encode("unicode_escape").decode() for ch in text)
