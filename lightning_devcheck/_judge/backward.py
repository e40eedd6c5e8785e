"""The judge: records and an expectation in, findings out. It never touches a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import torch

from lightning_devcheck._judge.causes import cause_of
from lightning_devcheck._observe.devices import is_sibling, spell_devices
from lightning_devcheck._observe.expectation import Expectation
from lightning_devcheck._report.records import Finding, GraphRecord, Operand, Operator, Origin, Severity, TensorRecord
from lightning_devcheck._report.rules import make_finding
from lightning_devcheck._source.files import statement_at
from lightning_devcheck._source.naming import name_move
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.statements import spell


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
        late: Names of the parameters that came after the optimizers were made.
        trained: Names of the leaves from outside the module that an optimizer holds.
        allowed: Patterns of the names and devices that may be where they are.
        optimizer_line: The line that makes the optimizer, where one is known.
        loss_line: The line that makes a loss that is elsewhere, or reaches no parameter.
    """

    graph: GraphRecord
    parameters: Sequence[TensorRecord]
    expectation: Expectation
    origins: Mapping[str, Origin] = field(default_factory=dict)
    optimized: frozenset[str] | None = None
    strict: bool = True
    late: frozenset[str] = frozenset()
    trained: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    optimizer_line: Origin | None = None
    loss_line: Origin | None = None

    @property
    def devices(self) -> frozenset[torch.device]:
        """Where things may be: the expected devices, and those that the model's own code moves to and trains on."""
        own = [leaf for leaf in self.graph.leaves if leaf.registered and not leaf.strays]
        chosen = {leaf.device for leaf in own if self._is_optimized(leaf)}
        moves = [{crossing.source, crossing.target} for crossing in self.graph.crossings]
        expected = self.expectation.devices
        return expected | {d for d in chosen if any(d in ends and ends & expected for ends in moves)}

    def allows(self, name: str, device: torch.device) -> bool:
        """Tell whether a pattern of the user's lets a name be on a device."""
        return bool(self.allowed) and is_allowed(self.allowed, name, device)

    def _is_optimized(self, leaf: TensorRecord) -> bool:
        return self.optimized is None or leaf.name in self.optimized


def is_allowed(allowed: frozenset[str], name: str, device: torch.device) -> bool:
    """Tell whether one of the user's patterns is for a name, as typed or as torch has it, or a device."""
    path = Path.parse(name)
    typed = name.removeprefix("self.")
    dotted = ".".join((path.base, *path.keys)).removeprefix("self.")
    texts = (name, typed, dotted, str(device))
    # a bracket is one of the name first, as it is typed
    literal = {pattern.replace("[", "[[]") for pattern in allowed}
    return any(fnmatchcase(text, pattern) for pattern in allowed | literal for text in texts)


def diagnose(evidence: Evidence) -> list[Finding]:
    """Judge one backward by every rule."""
    rules = (_parameters, _loss, _leaves, _round_trips, _detached, _unoptimized)
    return [finding for rule in rules for finding in rule(evidence)]


def _loss(evidence: Evidence) -> Iterator[Finding]:
    loss, allowed = evidence.graph.loss, evidence.devices
    if not allowed or loss.device in allowed or evidence.allows(loss.name, loss.device):
        return
    arrival = next((c for c in evidence.graph.crossings if c.target == loss.device), None)
    place = _first(arrival.trace if arrival else ()) or _first(loss.trace) or evidence.loss_line
    name, origin = name_move(place) if arrival and place else ("", place)
    lines: dict[str, Any] = {
        "name": name or loss.name,
        "origin": origin,
        "used": place if origin is not place else None,
        "operators": arrival.operators if arrival else (),
    }
    if is_sibling(loss.device, allowed):
        yield _finding("wrong-rank-device", loss, allowed, others=(_summary(evidence),), **lines)
        return
    why, fix = _moved(arrival.source, loss.device) if arrival else ("", "")
    yield _finding("loss-device", loss, allowed, others=(_summary(evidence),), why=why, fix=fix, **lines)


def _moved(source: torch.device, target: torch.device) -> tuple[str, str]:
    return (
        f"This line moves it from {source} to {target}: a hidden copy and a wait in every step.",
        "leave the loss where it is computed: take out .cpu() or .to(), and log loss.detach()",
    )


def _parameters(evidence: Evidence) -> Iterator[Finding]:
    allowed = evidence.devices | evidence.expectation.parameter_devices
    away = [r for r in evidence.parameters if r.device not in allowed and not evidence.allows(r.name, r.device)]
    if not allowed:
        return
    replaced = [r for r in away if not r.is_parameter and _is_assigned(evidence.origins.get(r.name))]
    yield from (_replaced(record, evidence) for record in replaced)
    for name, records in _grouped(record for record in away if record not in replaced).items():
        first = records[0]
        if first.device.type == "meta":
            rule = "meta-parameter"
        else:
            rule = "wrong-rank-device" if is_sibling(first.device, allowed) else "parameter-device"
        others = _listed(records[1:]) if len(records) > 1 else ()
        part = f"self.{Path.parse(first.name).attribute}"
        lines = {"origin": evidence.origins.get(first.name) or evidence.origins.get(part)}
        yield _finding(rule, first, allowed, name=name, others=(*others, _summary(evidence)), **lines)


def _is_assigned(origin: Origin | None) -> bool:
    statement = statement_at(origin)
    return statement is not None and "register_buffer" not in spell(statement)


def _replaced(record: TensorRecord, evidence: Evidence) -> Finding:
    """A buffer whose place a plain tensor took."""
    expected = spell_devices(evidence.expectation.devices)
    return _finding(
        "replaced-parameter",
        record,
        evidence.expectation.devices,
        what=f"{record.name} is a buffer, and a tensor on {record.device} took its place; the model is on {expected}",
        why="Assigning to a buffer puts the new tensor in its place, wherever that is; NCCL cannot synchronise it.",
        fix=f"change it in place: {record.name}.fill_(value) or {record.name}.copy_(new)",
        origin=evidence.origins.get(record.name),
    )


def _leaves(evidence: Evidence) -> Iterator[Finding]:
    """Leaves that are elsewhere or not registered; those of one container are one mistake."""
    if evidence.expectation.sharded or not evidence.graph.num_nodes:
        return
    groups: dict[tuple[str, Severity | None, str, torch.device], list[TensorRecord]] = {}
    for leaf in evidence.graph.leaves:
        rule, severity = _judge_leaf(leaf, evidence)
        if rule:
            groups.setdefault((rule, severity, str(Path.parse(leaf.name).container), leaf.device), []).append(leaf)
    for (rule, severity, container, _), leaves in groups.items():
        yield _misplaced(evidence, rule, severity, leaves[0].name if len(leaves) == 1 else container, leaves)


def _judge_leaf(leaf: TensorRecord, evidence: Evidence) -> tuple[str, Severity | None]:
    """The rule that a leaf breaks, and its severity where that is not the rule's own."""
    if leaf.registered or evidence.allows(leaf.name, leaf.device):
        return "", None
    elsewhere = bool(evidence.devices) and leaf.device not in evidence.devices
    known = leaf.name in evidence.origins
    if leaf.is_parameter and (evidence.strict or known or elsewhere):
        # an optimizer that holds it trains it; still no checkpoint has it, and DDP does not synchronise it
        return "unregistered-parameter", "warning" if leaf.name in evidence.trained and not elsewhere else None
    if elsewhere and (known or any(other.registered for other in evidence.graph.leaves)):
        return "wrong-rank-device" if is_sibling(leaf.device, evidence.devices) else "leaf-device", None
    return "", None


def _misplaced(
    evidence: Evidence, rule: str, severity: Severity | None, name: str, leaves: Sequence[TensorRecord]
) -> Finding:
    first, count = leaves[0], len(leaves)
    together = count > 1 and rule == "unregistered-parameter"
    return _finding(
        rule,
        replace(first, shape=None) if together else first,
        evidence.devices,
        name=name,
        severity=severity,
        what=f"{name} holds {count} parameters in the loss that the module does not register" if together else "",
        origin=evidence.origins.get(first.name),
        used=_first(first.trace),
        operators=_met_in(first),
        others=_listed(leaves if together else leaves[1:]),
        fix=_register(name, first.name) if rule == "unregistered-parameter" else _make_parameter(rule, name),
    )


def _round_trips(evidence: Evidence) -> Iterator[Finding]:
    allowed, loss = evidence.devices, evidence.graph.loss
    if not allowed or loss.device not in allowed:
        return
    told: set[Any] = set()
    for crossing in evidence.graph.crossings:
        place = _first(crossing.trace)
        name, origin = name_move(place) if place else ("", None)
        leaves = crossing.source in allowed and crossing.target not in allowed
        if leaves and (origin, crossing.target) not in told and not evidence.allows(name or "loss", crossing.target):
            told.add((origin, crossing.target))
            yield make_finding(
                "device-round-trip",
                name=name or loss.name,
                device=crossing.target,
                expected=crossing.source,
                origin=origin,
                used=place if origin is not place else None,
                operators=crossing.operators,
            )


def _detached(evidence: Evidence) -> Iterator[Finding]:
    graph = evidence.graph
    trainable = any(record.is_parameter for record in evidence.parameters)
    if not trainable or evidence.expectation.sharded or graph.not_checked or not evidence.strict:
        return
    reaches = any(leaf.registered or leaf.is_parameter or leaf.name in evidence.trained for leaf in graph.leaves)
    if not reaches and (graph.leaves or not graph.num_nodes):
        origin = _first(graph.loss.trace) or evidence.loss_line
        yield _finding("detached-loss", graph.loss, frozenset(), origin=origin)


def _unoptimized(evidence: Evidence) -> Iterator[Finding]:
    if evidence.optimized is None or evidence.expectation.sharded:
        return
    own = [leaf for leaf in evidence.graph.leaves if leaf.registered and leaf.device in evidence.expectation.devices]
    left_out = (leaf for leaf in own if leaf.name not in evidence.optimized)
    for name, records in _grouped(left_out).items():
        late = records[0].name in evidence.late
        made = evidence.origins.get(f"self.{Path.parse(name).attribute}") if late else evidence.optimizer_line
        lines = {"origin": made, "used": _first(records[0].trace)}
        yield _finding("unoptimized-parameter", records[0], frozenset(), name=name, **lines)


def _finding(rule: str, record: TensorRecord, allowed: Iterable[torch.device], **fields: Any) -> Finding:
    """A finding about a tensor; why and fix are made for the line that made it, where that says something."""
    given = {
        "name": record.name,
        "shape": record.shape,
        "dtype": str(record.dtype).removeprefix("torch."),
        "decided": record.decided,
        **{key: value for key, value in fields.items() if value},
    }
    where, expected = str(record.device), spell_devices(allowed)
    cure = cause_of(rule, given["name"], given.get("origin"), given.get("used"), where, expected)
    if cure.why:
        given["why"] = cure.why
    if cure.fix:
        given["fix"], given["edits"] = cure.fix, cure.edits
    return make_finding(rule, device=where, expected=expected, **given)


def _grouped(records: Iterable[TensorRecord]) -> dict[str, list[TensorRecord]]:
    """Records by the module that holds them; a single one keeps its own name."""
    groups: dict[tuple[str, torch.device], list[TensorRecord]] = {}
    for record in records:
        owner = str(Path.parse(record.name).parent)
        groups.setdefault((owner, record.device), []).append(record)
    return {_group_name(owner, group): group for (owner, _), group in groups.items()}


def _group_name(owner: str, group: Sequence[TensorRecord]) -> str:
    return owner if len(group) > 1 and owner != "self" else group[0].name


def _summary(evidence: Evidence) -> Operand:
    here = [record for record in evidence.parameters if record.device in evidence.expectation.devices]
    return Operand("parameters", spell_devices(evidence.expectation.devices), f"{len(here)} tensors")


def _first(trace: Sequence[Origin]) -> Origin | None:
    return trace[0] if trace else None


def _met_in(leaf: TensorRecord) -> tuple[Operator, ...]:
    return (Operator(leaf.operator),) if leaf.operator else ()


def _listed(records: Sequence[TensorRecord]) -> tuple[Operand, ...]:
    """The first records, and how many more there are."""
    shown = tuple(Operand(record.name, str(record.device), record.detail) for record in records[:3])
    return (*shown, Operand(f"and {len(records) - 3} more", str(records[0].device))) if len(records) > 3 else shown


def _register(name: str, first: str) -> str:
    owner = Path.parse(first).container
    if str(owner) == first:
        return ""
    return f"{owner} = torch.nn.ParameterList({owner})  (nn.ParameterDict for a dict, nn.ModuleList for layers)"


def _make_parameter(rule: str, name: str) -> str:
    if rule != "leaf-device" or not name.startswith("self."):
        return ""
    return f"{name} = torch.nn.Parameter({name})  (register_buffer for what is not trained)"
