"""The culprit of an exception becomes a finding: its rule, the words for it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from lightning_devcheck._judge.case import Case, Cure
from lightning_devcheck._judge.causes import cause_of
from lightning_devcheck._observe.devices import is_sibling
from lightning_devcheck._report.records import Finding, Operand, Operator, Origin
from lightning_devcheck._report.rules import make_finding
from lightning_devcheck._source.class_edits import gradient_of
from lightning_devcheck._source.edits import NONE, Edits, with_text
from lightning_devcheck._source.files import statement_at
from lightning_devcheck._source.path import base_of
from lightning_devcheck._source.statements import (
    HERE,
    has_factory,
    is_factory,
    spell,
    with_device_argument,
)

Kept = Literal["local", "global", "batch", "registered", "attribute", "module", "metric"]
Kind = Kept | Literal["call", "optimizer", "state", "backward", "hook", "unknown", ""]


@dataclass(frozen=True, slots=True)
class Writing:
    """How the code around a culprit can write the device where it should be.

    Attributes:
        here: With a variable of the failing function; empty where none holds it.
        there: With a variable of the function that made the culprit.
        has_module: Whether one of the functions has a ``self``.
        has_device: Whether the ``self`` of the function that made it has a device.
        takes_self: Whether that function takes a ``self``.
    """

    here: str
    there: str
    has_module: bool
    has_device: bool
    takes_self: bool


@dataclass(frozen=True, slots=True)
class Culprit:
    """All that was seen of what caused an exception.

    Attributes:
        rule: The rule that the message says is broken.
        name: The culprit, as the user types it.
        kind: Where it is kept: ``module`` is a part of one that is not registered, ``call`` is
            made in the expression itself; empty where the message alone is known.
        device: Where it is.
        origin: The line that made it.
        expected: Where it should be.
        stated: The same as text, where it is not that device.
        used: The line where it met the others.
        failed: The user's line that failed.
        shape: The tensor's shape, where it is at hand.
        dtype: The tensor's dtype, where it is at hand.
        is_parameter: Whether it is an ``nn.Parameter``.
        others: What it met.
        operators: The operator that the message names.
        owner: The class of the module that is trained.
        trained_on: Where the one process that there is has parameters that it trains.
        later: The line that puts it into the batch after its transfer.
        transfer: The module's own transfer of the batch.
        by_hand: How the program that moves the module writes the device; None under a Trainer.
        writing: How the device can be written in a fix; None where a fix stays as it is.
        message: Why and fix as the message has them.
        default: Why and fix for where no line says more.
        what: A headline that is known better.
        why: The cause, where it is known better.
        fix: A fix that is known better.
    """

    rule: str
    name: str
    kind: Kind
    device: torch.device | str | None
    origin: Origin | None = None
    expected: torch.device | None = None
    stated: str | None = None
    used: Origin | None = None
    failed: Origin | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    is_parameter: bool = False
    others: tuple[Operand, ...] = ()
    operators: tuple[Operator, ...] = ()
    owner: type | None = None
    trained_on: frozenset[torch.device] = frozenset()
    later: Origin | None = None
    transfer: Origin | None = None
    by_hand: str | None = None
    writing: Writing | None = None
    message: tuple[str, str] = ("", "")
    default: tuple[str, str] = ("", "")
    what: str = ""
    why: str = ""
    fix: str = ""


def judge_culprit(culprit: Culprit) -> Finding:
    """Choose the rule and the words for a culprit."""
    rule = _rule_of(culprit)
    if rule == "batch-device" and culprit.origin is None:
        if culprit.later:
            rule = "mixed-devices"
        culprit = replace(culprit, origin=culprit.later or culprit.transfer)
    if rule == "mixed-devices" and _is_spread(culprit):
        culprit = _as_assigned(culprit)
        cure = _moved_on(culprit)
    else:
        cure = _cure(rule, culprit)
    fields: dict[str, Any] = {"severity": "error", "what": culprit.what}
    fields["why"] = culprit.why or cure.why
    fields["fix"] = culprit.fix or cure.fix
    if not culprit.fix:
        fields["edits"] = cure.edits
    if culprit.kind == "backward":
        fields["edits"] = _in_backward(culprit.origin)
    fields["expected"] = _expected(rule, culprit)
    fields["others"] = _few(culprit.others, culprit.name)
    for name in ("shape", "dtype", "origin", "used", "operators"):
        fields[name] = getattr(culprit, name)
    device = culprit.device or "another device"
    return make_finding(rule, name=culprit.name, device=device, **fields)


def _rule_of(culprit: Culprit) -> str:
    """Choose the rule that says most about where the culprit is kept."""
    rule, kind, known = culprit.rule, culprit.kind, culprit.dtype is not None
    if not kind:
        return rule
    input_of_metric = kind == "call" or (known and kind in ("local", "global", "batch"))
    if rule == "metric-device" and input_of_metric:
        rule = "mixed-devices"
    if rule != "mixed-devices":
        return rule
    if is_sibling(culprit.device, [culprit.expected]):
        return rule if _is_spread(culprit) else "wrong-rank-device"
    if kind in ("attribute", "module") and culprit.is_parameter:
        return "unregistered-parameter"
    kinds = {"metric": "metric-device", "batch": "batch-device", "registered": "parameter-device"}
    return kinds.get(kind, rule)


def _is_spread(culprit: Culprit) -> bool:
    """Tell whether a part of a model that is spread over both devices computed it."""
    if _as_assigned(culprit).kind not in ("local", "call"):
        return False
    if not is_sibling(culprit.device, [culprit.expected]):
        return False
    return {culprit.device, culprit.expected} <= culprit.trained_on


def _as_assigned(culprit: Culprit) -> Culprit:
    """Name what a line assigns, where it is called by the module that computed it."""
    if culprit.kind != "registered":
        return culprit
    made = statement_at(culprit.origin)
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.Call):
        return culprit
    if spell(made.value.func) != culprit.name:
        return culprit
    return replace(culprit, name=spell(made.targets[0]), kind="local")


def _moved_on(culprit: Culprit) -> Cure:
    """Cure what a part of a spread model returned."""
    both = f"{culprit.device} and {culprit.expected}"
    other = culprit.others[0].name if culprit.others else "other"
    return Cure(
        f"The model is spread over {both}: what a part returns moves on by hand.",
        f"{culprit.name}.to({other}.device), where it meets the others",
    )


def _cure(rule: str, culprit: Culprit) -> Cure:
    """Say why and what to write, in words that fit the user's code."""
    why, fix = culprit.message
    if not culprit.kind:
        return Cure(why, fix)
    # the message spoke of something else, and no Trainer moves the module
    if culprit.by_hand is not None and rule == "parameter-device" != culprit.rule:
        device = culprit.by_hand or "device"
        move = f"{base_of(culprit.name)}.to({device})"
        return Cure("Where no Trainer moves a module, the program has to.", move)
    cause = _cause(rule, culprit)
    if cause.why:
        return _pasted(replace(cause, fix=cause.fix or fix), culprit)
    if any(culprit.default):
        given, instead = culprit.default
        if instead:
            return Cure(given, instead)
        return _pasted(Cure(given, fix), culprit)
    return _pasted(Cure(why, fix), culprit)


def _cause(rule: str, culprit: Culprit) -> Cure:
    """Read the cause off the line that made it."""
    words = rule
    if culprit.kind in ("module", "metric") and rule != "unregistered-parameter":
        words = f"unregistered-{culprit.kind}"
    device, expected = str(culprit.device), str(culprit.expected or "")
    name, origin, owner = culprit.name, culprit.origin, culprit.owner
    return cause_of(words, name, origin, culprit.failed, device, expected, owner)


def _pasted(cure: Cure, culprit: Culprit) -> Cure:
    writing = culprit.writing
    if writing is None or culprit.origin is None:
        return cure
    in_module = culprit.kind == "attribute" or writing.has_module
    return paste(cure, culprit.name, culprit.origin, writing, in_module=in_module)


def paste(cure: Cure, name: str, made: Origin, writing: Writing, *, in_module: bool) -> Cure:
    """Write a cure without ``self.device`` where the user's code has none.

    Args:
        cure: The cure.
        name: The culprit.
        made: The line that made it.
        writing: How the device can be written there.
        in_module: Whether a module is at hand that could register it.
    """
    fix = cure.fix
    if fix.startswith("self.register_buffer"):
        if writing.here and not in_module:
            return Cure(cure.why, f"{name}.to({writing.here})")
        return cure
    if "self.device" not in fix or writing.has_device:
        return cure
    if writing.there:
        edits = with_text(cure.edits, "self.device", writing.there)
        return Cure(cure.why, fix.replace("self.device", writing.there), edits)
    if writing.takes_self or not made.function:
        return cure
    written = fix.replace("self.device", "device")
    argument = f"(device: a new argument of {made.function}, from its caller)"
    return Cure(cure.why, f"{written}\n{argument}")


def _in_backward(origin: Origin | None) -> Edits:
    """Make what a backward makes on the device of the gradient that it is given."""
    made = statement_at(origin)
    if origin is None or made is None or not has_factory(made):
        return NONE
    gradient = gradient_of(origin.filename, made)
    if not gradient:
        return NONE
    code = with_device_argument(made, is_factory)
    case = Case("", "", made, None, "", "", origin.filename)
    return case.edits_to(made, code.replace(HERE, f"{gradient}.device"))


def _expected(rule: str, culprit: Culprit) -> object:
    """Say where the culprit should be: as stated, else where it is known, else as what it met."""
    if culprit.stated is not None:
        return culprit.stated
    if culprit.expected is not None:
        return culprit.expected
    if culprit.others:
        return culprit.others[0].device
    return "device" if rule == "collective-device" else "the model's device"


def _few(others: Iterable[Operand], name: str) -> tuple[Operand, ...]:
    """The first three others, each name once."""
    unique = {other.name: other for other in others if other.name != name}
    return tuple(unique.values())[:3]
