"""Words for a program that trains by itself: no Trainer moves its model, and none makes its optimizer."""

from __future__ import annotations

from dataclasses import replace

from lightning_devcheck._report.records import Finding, Operand, Origin
from lightning_devcheck._report.rules import RULES, make_finding

# why and fix of a rule whose own words speak of Lightning; ``{name}`` and the like as in the rules
WORDS = {
    "parameter-device": (
        "Where no Trainer moves a model, the program has to; this part was made, moved or loaded apart from the rest.",
        "move the whole model once, before the optimizer is made: .to({expected!r})",
    ),
    "wrong-rank-device": (
        "A device that is written out in the code is right for one part of the program and wrong for the others.",
        "use one variable for the device everywhere, or the device of a tensor that is already right",
    ),
    "unoptimized-parameter": (
        "An optimizer trains what it was given when it was made, and nothing else.",
        "hand it to the optimizer, with add_param_group where that is made already;\n"
        "{name}.requires_grad_(False) where it is not to be trained",
    ),
    "loss-device": (
        RULES["loss-device"].why,
        "start the sum from its first term, or from torch.zeros((), device={expected!r}),\n"
        "and take .cpu() and .item() out of the way to the loss",
    ),
    "leaf-device": (
        RULES["leaf-device"].why,
        "create it where the model is: device={expected!r}",
    ),
}


def in_loop_words(finding: Finding) -> Finding:
    """Say a finding in words that hold without a Trainer; where a line has said more, that stays."""
    if finding.rule not in WORDS:
        return finding
    names = {"name": finding.name, "device": finding.device, "expected": finding.expected}
    rule = RULES[finding.rule]
    why, fix = WORDS[finding.rule]
    if finding.why == rule.why.format(**names):
        finding = replace(finding, why=why.format(**names))
    if finding.fix == rule.fix.format(**names):
        finding = replace(finding, fix=fix.format(**names))
    return finding


def judge_cut(name: str, device: object, origin: Origin | None, used: Origin | None, *, fails: bool) -> Finding:
    """Judge a loss that no graph leads to.

    Args:
        name: The loss, as typed.
        device: Where it is.
        origin: The line that made it.
        used: The line that calls backward.
        fails: Whether torch refuses it; else it is a leaf of its own, and backward reaches nothing.
    """
    what, why = "", ""
    if fails:
        what = f"{name} has no graph: backward fails, and nothing is trained"
    else:
        what = f"{name} is a leaf of its own: backward reaches no parameter, and nothing is trained"
        why = "requires_grad=True makes a new leaf, it does not bring the graph back that was cut before."
    severity = "error" if fails else None
    return make_finding(
        "detached-loss", name=name, device=device, severity=severity, what=what, why=why, origin=origin, used=used
    )


def judge_shared(name: str, device: str, expected: str, first: int, origin: Origin | None) -> Finding:
    """Judge a process that trains on the device of another one.

    Args:
        name: What it trains, as typed.
        device: Where.
        expected: Where a process of its rank trains.
        first: The rank of the other process.
        origin: The line that put it there.
    """
    return make_finding(
        "wrong-rank-device",
        name=name,
        device=device,
        expected=expected,
        what=f"{name} is on {device}, where rank {first} trains as well; this process belongs on {expected}",
        others=(Operand(f"rank {first}", device),),
        fix='use the process\'s own device in place of the written-out one: f"cuda:{local_rank}"',
        origin=origin,
    )
