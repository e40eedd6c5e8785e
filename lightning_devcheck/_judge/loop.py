"""Words for a program that trains by itself: no Trainer moves its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lightning_devcheck._report.records import Finding, Operand, Origin
from lightning_devcheck._report.rules import RULES, make_finding

# why a rule is broken, where its own words speak of Lightning; fields as in the rules
WHY = {}
WHY["parameter-device"] = """\
Where no Trainer moves a model, the program has to; this part was made, moved or loaded apart."""
WHY["wrong-rank-device"] = """\
A device that is written out is right for one part of the program and wrong for the others."""
WHY["unoptimized-parameter"] = """\
An optimizer trains what it was given when it was made, and nothing else."""
# likewise what to write
FIX = {}
FIX["parameter-device"] = """\
move the whole model once, before the optimizer is made: .to({expected!r})"""
FIX["wrong-rank-device"] = """\
use one variable for the device everywhere, or the device of a tensor that is already right"""
FIX["unoptimized-parameter"] = """\
hand it to the optimizer, with add_param_group where that is made already;
{name}.requires_grad_(False) where it is not to be trained"""
FIX["loss-device"] = """\
start the sum from its first term, or from torch.zeros((), device={expected!r}),
and take .cpu() and .item() out of the way to the loss"""
FIX["leaf-device"] = """\
create it where the model is: device={expected!r}"""


REBUILT = """\
requires_grad=True makes a new leaf, it does not bring the graph back that was cut before."""
SHARED_FIX = """\
use the process's own device in place of the written-out one: f"cuda:{local_rank}\""""


def in_loop_words(finding: Finding) -> Finding:
    """Say a finding in words that hold without a Trainer; what a line has said stays."""
    names = {"name": finding.name, "device": finding.device, "expected": finding.expected}
    rule = RULES[finding.rule]
    if finding.rule in WHY and finding.why == rule.why.format(**names):
        why = WHY[finding.rule].format(**names)
        finding = replace(finding, why=why)
    if finding.rule in FIX and finding.fix == rule.fix.format(**names):
        fix = FIX[finding.rule].format(**names)
        finding = replace(finding, fix=fix)
    return finding


def judge_cut(
    name: str,
    device: object,
    origin: Origin | None,
    used: Origin | None,
    *,
    fails: bool,
) -> Finding:
    """Judge a loss that no graph leads to.

    Args:
        name: The loss, as typed.
        device: Where it is.
        origin: The line that made it.
        used: The line that calls backward.
        fails: Whether torch refuses it; else it is a leaf of its own, and backward reaches nothing.
    """
    words: dict[str, Any] = {"origin": origin}
    words["used"] = used
    if fails:
        words["severity"] = "error"
        words["what"] = f"{name} has no graph: backward fails, and nothing is trained"
    else:
        words["what"] = f"{name} is a leaf of its own: backward reaches no parameter"
        words["why"] = REBUILT
    return make_finding("detached-loss", name=name, device=device, **words)


def judge_shared(
    name: str,
    device: str,
    expected: str,
    first: int,
    origin: Origin | None,
) -> Finding:
    """Judge a process that trains on the device of another one.

    Args:
        name: What it trains, as typed.
        device: Where.
        expected: Where a process of its rank trains.
        first: The rank of the other process.
        origin: The line that put it there.
    """
    here = f"{name} is on {device}, where rank {first} trains as well"
    words: dict[str, Any] = {"origin": origin}
    words["fix"] = SHARED_FIX
    words["name"], words["device"] = name, device
    words["what"] = f"{here}; this process belongs on {expected}"
    words["others"] = (Operand(f"rank {first}", device),)
    words["expected"] = expected
    return make_finding("wrong-rank-device", **words)
