"""What is wrong with the training itself, wherever things are: stale optimizers, kept graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lightning_devcheck._observe.expectation import Expectation
from lightning_devcheck._observe.training import KeptGraph, MovedState, Replaced
from lightning_devcheck._report.records import Finding, TensorRecord
from lightning_devcheck._report.rules import make_finding
from lightning_devcheck._source.files import statement_at
from lightning_devcheck._source.statements import detached

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
                finding = _finding("replaced-parameter", new, origin=origin)
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
