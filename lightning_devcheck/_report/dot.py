"""The report as a picture in Graphviz' DOT language: devices as boxes, and in them only what a finding is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lightning_devcheck._report.lanes import AFTER, Lane, lanes_of, meeting_of
from lightning_devcheck._report.records import Finding, Operand, Origin
from lightning_devcheck._report.text import ReportLike, escape_control, group_by_cause, location

COLORS = {"error": "#b3202c", "warning": "#855300", "note": "#0757ba"}


def render_dot(report: ReportLike) -> str:
    """Return a ``digraph`` with one box per device; the culprits and their ways across are coloured."""
    groups = group_by_cause(report.findings)
    boxes: dict[str, list[str]] = {}
    rest: list[str] = []
    for number, group in enumerate(groups):
        for lane in lanes_of(group):
            boxes.setdefault(lane.device, []).extend(_tensors(lane, number, group[0]))
        rest += _meeting(group, number)
    lines = ["digraph devcheck {", "  rankdir=TB", '  node [shape=box, fontname="monospace"]']
    for index, (device, nodes) in enumerate(boxes.items()):
        lines += [f"  subgraph cluster_{index} {{", f"    label={_quote(device)}"]
        lines += [f"    {node}" for node in nodes or [f"empty_{index} [style=invis]"]]
        lines.append("  }")
    return "\n".join([*lines, *(f"  {line}" for line in rest), "}"]) + "\n"


def _tensors(lane: Lane, number: int, finding: Finding) -> Iterator[str]:
    made = _line(finding.origin)
    for index, tensor in enumerate(lane.culprits):
        color = COLORS.get(finding.severity, "black")
        label = _label(tensor, made)
        yield f"{_node(number, lane, 'culprit', index)} [label={label}, color={_quote(color)}, penwidth=2]"
    for index, tensor in enumerate(lane.others):
        yield f"{_node(number, lane, 'other', index)} [label={_label(tensor)}]"
    for index, (name, _) in enumerate(lane.operators):
        yield f"{_node(number, lane, 'operator', index)} [label={_quote(name)}, shape=ellipse]"


def _meeting(group: Sequence[Finding], number: int) -> Iterator[str]:
    finding = group[0]
    used = finding.used
    name, does = meeting_of(finding)
    label = "\n".join(line for line in (f"{does} {name}".strip(), finding.rule, _line(used)) if line)
    yield f"meet_{number} [label={_quote(label)}, shape=ellipse]"
    for lane in lanes_of(group):
        for index in range(len(lane.culprits)):
            color = _quote(COLORS.get(finding.severity, "black"))
            yield f"{_node(number, lane, 'culprit', index)} -> meet_{number} [color={color}, penwidth=2]"
        for index in range(len(lane.others)):
            yield f"{_node(number, lane, 'other', index)} -> meet_{number}"
        for index, (_, where) in enumerate(lane.operators):
            ends = [_node(number, lane, "operator", index), f"meet_{number}"]
            yield " -> ".join(reversed(ends) if where == AFTER else ends)


def _line(place: Origin | None) -> str:
    return "" if place is None else f"{location(place)}  {place.line}"


def _node(number: int, lane: Lane, kind: str, index: int) -> str:
    return _quote(f"{number} {lane.device} {kind} {index}")


def _label(tensor: Operand, *more: str) -> str:
    return _quote("\n".join(line for line in (tensor.name, tensor.detail, *more) if line))


def _quote(text: str) -> str:
    escaped = escape_control(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
