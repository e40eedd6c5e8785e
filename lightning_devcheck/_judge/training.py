"""What is wrong with the training itself, wherever things are: stale optimizers, kept graphs."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from lightning_devcheck._judge.case import Case
from lightning_devcheck._observe.expectation import Expectation
from lightning_devcheck._observe.training import KeptGraph, MovedState, Replaced
from lightning_devcheck._report.records import Finding, Origin, TensorRecord
from lightning_devcheck._report.rules import make_finding
from lightning_devcheck._source.edits import NONE, Edits
from lightning_devcheck._source.files import statement_at
from lightning_devcheck._source.statements import detached, spell, word_of

Seen = Replaced | MovedState | KeptGraph


def judge_training(seen: Iterable[Seen], expectation: Expectation) -> list[Finding]:
    """Judge what was seen of optimizers and of graphs.

    Args:
        seen: What was seen.
        expectation: Where things belong; a new parameter elsewhere has a rule of its own.
    """
    findings = []
    for one in seen:
        match one:
            case Replaced(new) if new.device not in expectation.devices:
                continue
            case Replaced(new, origin):
                edits = _copied_in(origin)
                finding = _finding("replaced-parameter", new, origin=origin, edits=edits)
            case MovedState(_, expected) if expected not in expectation.devices:
                # the parameter itself is elsewhere: that has a rule of its own
                continue
            case MovedState(state, expected):
                lines = {"origin": state.decided, "decided": state.decided}
                finding = _finding("optimizer-device", state, expected=expected, **lines)
            case KeptGraph():
                finding = _kept(one)
        findings.append(finding)
    return findings


def _copied_in(origin: Origin | None) -> Edits:
    """Copy a new parameter's values into the old one, where a line of its own makes it."""
    made = statement_at(origin)
    if origin is None or not isinstance(made, ast.Assign):
        return NONE
    new = _made_parameter(made.value)
    if new is None:
        return NONE
    target, value = spell(made.targets[0]), spell(new)
    code = f"with torch.no_grad():\n    {target}.copy_({value})"
    case = Case("", "", made, None, "", "", origin.filename)
    return case.edits_to(made, code)


def _made_parameter(value: ast.expr) -> ast.expr | None:
    """What an expression makes a new parameter of; None where it does something else."""
    if not isinstance(value, ast.Call) or word_of(value.func) != "Parameter":
        return None
    if len(value.args) != 1:
        return None
    return value.args[0]


def _finding(rule: str, record: TensorRecord, **fields: Any) -> Finding:
    fields["shape"] = record.shape
    fields["dtype"] = str(record.dtype).removeprefix("torch.")
    device = record.device
    return make_finding(rule, name=record.name, device=device, **fields)


def _kept(graph: KeptGraph) -> Finding:
    fields: dict[str, Any] = {"used": graph.kept_at}
    fields["origin"] = graph.origin
    keeping = statement_at(graph.kept_at)
    if keeping is not None:
        fields["fix"] = detached(keeping)
    device = graph.device
    return make_finding("kept-graph", name=graph.name, device=device, **fields)
