"""Where no cause has an edit that works: the tensor is moved where it meets the others."""

from __future__ import annotations

import ast

from lightning_devcheck._report.records import Edit, Finding
from lightning_devcheck._source.edits import Source, replaced
from lightning_devcheck._source.files import own_nodes, statement_at

# where a moved copy trains as the original would have
MOVABLE = ("mixed-devices", "batch-device", "wrong-rank-device")
# what can be read twice
PLAIN = (ast.Name, ast.Attribute, ast.Subscript)
TIGHT = (*PLAIN, ast.Call)


def moved_where_used(finding: Finding) -> tuple[Edit, ...]:
    """Find the edit that moves a culprit to the device of what it meets, at that place.

    Args:
        finding: The finding; the place and the names of the meeting are its own.

    Returns:
        The edit; none where the culprit, or what it meets, is no expression of the statement.
    """
    if finding.rule not in MOVABLE or finding.used is None or not finding.others:
        return ()
    statement = statement_at(finding.used)
    culprit = _expression(finding.name)
    if statement is None or culprit is None:
        return ()
    there = _read_by(statement, culprit)
    other = _met(finding, statement)
    if len(there) != 1 or other is None:
        return ()
    source = Source(finding.used.filename)
    text = source.of(there[0])
    if not isinstance(culprit, TIGHT):
        text = f"({text})"
    device = ast.unparse(other)
    return replaced(source, there[0], f"{text}.to({device}.device)")


def _met(finding: Finding, statement: ast.stmt) -> ast.expr | None:
    """The first of what the culprit met that the statement reads by its name."""
    for operand in finding.others:
        other = _expression(operand.name)
        if isinstance(other, PLAIN) and _read_by(statement, other):
            return other
    return None


def _expression(name: str) -> ast.expr | None:
    try:
        tree = ast.parse(name, mode="eval")
    except (SyntaxError, ValueError):
        return None
    return tree.body


def _read_by(statement: ast.stmt, wanted: ast.expr) -> list[ast.expr]:
    """The places of a statement that read an expression."""
    text = ast.unparse(wanted)
    found = []
    for node in own_nodes(statement):
        if not isinstance(node, ast.expr) or _is_written(node):
            continue
        if ast.unparse(node) == text:
            found.append(node)
    return found


def _is_written(node: ast.expr) -> bool:
    context = getattr(node, "ctx", None)
    return isinstance(context, (ast.Store, ast.Del))
