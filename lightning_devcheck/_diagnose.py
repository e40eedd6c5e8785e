"""The judge: records and an expectation in, findings out. It never touches a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lightning_devcheck._devices import spell
from lightning_devcheck._policy import Expectation
from lightning_devcheck._records import Finding, GraphRecord, Operand, Origin, TensorRecord
from lightning_devcheck._rules import make_finding


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was seen of one backward.

    Attributes:
        graph: The graph behind the loss.
        parameters: The module's parameters and buffers that matter.
        expectation: Where things belong.
        origins: Lines that assign plain attributes, by the attribute's name as typed.
        optimized: Names of the parameters that an optimizer holds; None where no optimizer is known.
        strict: Whether a parameter from outside the module is a mistake wherever it is kept.
        optimizer_line: The line that makes the optimizer.
    """

    graph: GraphRecord
    parameters: Sequence[TensorRecord]
    expectation: Expectation
    origins: Mapping[str, Origin] = field(default_factory=dict)
    optimized: frozenset[str] | None = None
    strict: bool = True
    optimizer_line: Origin | None = None


def diagnose(evidence: Evidence) -> list[Finding]:
    """Judge one backward by every rule."""
    rules = (_parameters, _loss, _leaves, _round_trips, _detached, _unoptimized)
    return [finding for rule in rules for finding in rule(evidence)]


def _loss(evidence: Evidence) -> Iterator[Finding]:
    loss, allowed = evidence.graph.loss, evidence.expectation.devices
    if not allowed or loss.device in allowed:
        return
    arrival = next((c for c in evidence.graph.crossings if c.target == loss.device), None)
    trace = arrival.trace if arrival else loss.trace
    rule = "loss-device" if not _is_sibling(loss.device, allowed) else "wrong-rank-device"
    why, fix = "", ""
    if arrival and rule == "loss-device":
        why = f"This line moves it from {arrival.source} to {loss.device}: a hidden copy and a wait in every step."
        fix = "leave the loss where it is computed: take out .cpu() or .to(), and log loss.detach()"
    yield _finding(rule, loss, allowed, origin=_first(trace), others=(_summary(evidence),), why=why, fix=fix)


def _parameters(evidence: Evidence) -> Iterator[Finding]:
    allowed = evidence.expectation.devices | evidence.expectation.parameter_devices
    for name, records in _grouped(r for r in evidence.parameters if r.device not in allowed and allowed).items():
        first = records[0]
        if first.device.type == "meta":
            rule = "meta-parameter"
        else:
            rule = "wrong-rank-device" if _is_sibling(first.device, allowed) else "parameter-device"
        others = tuple(Operand(record.name, str(record.device), record.detail) for record in records[1:4])
        if len(records) > 4:
            others += (Operand(f"and {len(records) - 4} more", str(first.device)),)
        yield _finding(rule, first, allowed, name=name, others=(*others, _summary(evidence)))


def _leaves(evidence: Evidence) -> Iterator[Finding]:
    allowed = evidence.expectation.devices
    for leaf in evidence.graph.leaves:
        elsewhere = bool(allowed) and leaf.device not in allowed
        known = leaf.name in evidence.origins
        if leaf.registered or evidence.expectation.sharded:
            continue
        lines = {"origin": evidence.origins.get(leaf.name), "used": _first(leaf.trace)}
        if leaf.is_parameter and (evidence.strict or known or elsewhere):
            yield _finding("unregistered-parameter", leaf, allowed, **lines, fix=_register(leaf.name))
        elif elsewhere and _is_sibling(leaf.device, allowed):
            yield _finding("wrong-rank-device", leaf, allowed, **lines)
        elif elsewhere:
            yield _finding("leaf-device", leaf, allowed, **lines, fix=_make_parameter(leaf.name))


def _round_trips(evidence: Evidence) -> Iterator[Finding]:
    allowed, loss = evidence.expectation.devices, evidence.graph.loss
    if not allowed or loss.device not in allowed:
        return
    seen: set[Any] = set()
    for crossing in evidence.graph.crossings:
        key = (_first(crossing.trace), crossing.target)
        if crossing.source in allowed and crossing.target not in allowed and key not in seen:
            seen.add(key)
            yield make_finding(
                "device-round-trip",
                name=loss.name,
                device=crossing.target,
                expected=crossing.source,
                origin=_first(crossing.trace),
            )


def _detached(evidence: Evidence) -> Iterator[Finding]:
    graph = evidence.graph
    reaches = any(leaf.registered for leaf in graph.leaves)
    trainable = any(record.is_parameter for record in evidence.parameters)
    if reaches or not trainable or evidence.expectation.sharded or graph.not_checked or not evidence.strict:
        return
    if any(leaf.is_parameter for leaf in graph.leaves) or not graph.leaves:
        return  # trains something of its own, which another rule names; or cannot be walked back at all
    yield _finding("detached-loss", graph.loss, frozenset(), origin=_first(graph.loss.trace))


def _unoptimized(evidence: Evidence) -> Iterator[Finding]:
    if evidence.optimized is None or evidence.expectation.sharded:
        return
    own = [leaf for leaf in evidence.graph.leaves if leaf.registered and leaf.device in evidence.expectation.devices]
    left_out = (leaf for leaf in own if leaf.name not in evidence.optimized)
    for name, records in _grouped(left_out).items():
        lines = {"origin": evidence.optimizer_line, "used": _first(records[0].trace)}
        yield _finding("unoptimized-parameter", records[0], frozenset(), name=name, **lines)


def _finding(rule: str, record: TensorRecord, allowed: Iterable[torch.device], **fields: Any) -> Finding:
    given = {
        "name": record.name,
        "shape": record.shape,
        "dtype": str(record.dtype).removeprefix("torch."),
        **{key: value for key, value in fields.items() if value},
    }
    return make_finding(rule, device=record.device, expected=spell(allowed), **given)


def _grouped(records: Iterable[TensorRecord]) -> dict[str, list[TensorRecord]]:
    """Records by the module that holds them; a single one keeps its own name."""
    groups: dict[tuple[str, torch.device], list[TensorRecord]] = {}
    for record in records:
        owner = record.name.rpartition(".")[0]
        groups.setdefault((owner, record.device), []).append(record)
    return {_group_name(owner, group): group for (owner, _), group in groups.items()}


def _group_name(owner: str, group: Sequence[TensorRecord]) -> str:
    return owner if len(group) > 1 and owner != "self" else group[0].name


def _summary(evidence: Evidence) -> Operand:
    here = [record for record in evidence.parameters if record.device in evidence.expectation.devices]
    return Operand("parameters", spell(evidence.expectation.devices), f"{len(here)} tensors")


def _is_sibling(device: torch.device, allowed: Iterable[torch.device]) -> bool:
    """Whether a device is of an expected kind but of another index: another process's."""
    return any(device.type == other.type and device.index != other.index for other in allowed)


def _first(trace: Sequence[Origin]) -> Origin | None:
    return trace[0] if trace else None


def _register(name: str) -> str:
    owner, bracket, _ = name.partition("[")
    if bracket:
        return f"{owner} = torch.nn.ParameterList({owner})  (nn.ParameterDict for a dict, nn.ModuleList for layers)"
    return ""


def _make_parameter(name: str) -> str:
    if not name.startswith("self."):
        return ""
    return f"{name} = torch.nn.Parameter({name})  (register_buffer for what is not trained)"
