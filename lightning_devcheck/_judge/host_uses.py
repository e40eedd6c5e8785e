"""Notes about the lines of a training step that read from the device, or copy to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.rules import RULES, make_finding

IN_METRICS = (
    'the metric looks at its input: validate_args=False or nan_strategy="disable",'
    " where it takes them, spares that;\n"
    "or update it less often"
)


@dataclass(frozen=True, slots=True)
class HostUse:
    """A line at which the host waited for a device, sent it something, or was given a value.

    Attributes:
        kind: What happened there.
        name: What was read or copied, as typed.
        line: The line.
        count: How often it happened.
        by_metric: Whether a metric that the line calls did it.
        given: What the line was given in place of a value that is not there.
    """

    kind: Literal["host-read", "host-copy", "made-up-value"]
    name: str
    line: Origin
    count: int
    by_metric: bool = False
    given: str = ""


def judge_host_use(use: HostUse, steps: int, device: str, global_rank: int) -> Finding:
    """Make the note about a line.

    Args:
        use: What happened there.
        steps: How many training steps were watched.
        device: The device of this process.
        global_rank: The process.
    """
    rule, name = RULES[use.kind], use.name
    headline = rule.what.format(name=name, device=device)
    fields: dict[str, Any] = {"used": use.line}
    fields["global_rank"] = global_rank
    if use.kind == "made-up-value":
        fields["what"] = f"{headline}; the line was given {use.given}"
        fields["count"] = use.count
    else:
        fields["what"] = f"{headline}, {_times(use.count / steps)} per training step"
    if use.by_metric:
        fields["fix"] = IN_METRICS
    return make_finding(rule.id, name=name, device=device, **fields)


def _times(often: float) -> str:
    if often == 1:
        return "once"
    return f"{often:g} times"
