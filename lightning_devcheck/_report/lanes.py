"""What a picture of a finding shows: which tensors stand in the lane of which device, and what the lanes meet in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lightning_devcheck._report.records import Finding, Operand
from lightning_devcheck._report.text import spell_ranks

BEFORE, AFTER = "before the move", "after the move"


@dataclass(frozen=True, slots=True)
class Lane:
    """One device and the tensors on it.

    Attributes:
        device: The device as text.
        culprits: The tensors that the finding is about, one for each device they were seen on.
        others: What they met.
        expected: Whether the culprit belongs here.
        operators: The operators that ran here, each with where it stands: ``before the move``.
    """

    device: str
    culprits: tuple[Operand, ...] = ()
    others: tuple[Operand, ...] = ()
    expected: bool = False
    operators: tuple[tuple[str, str], ...] = ()


def lanes_of(group: Sequence[Finding]) -> list[Lane]:
    """Sort what the findings of one cause name by device: the culprit's lanes first, then where it belongs."""
    first = group[0]
    ranks: dict[str, list[int]] = {}
    for finding in group:
        ranks.setdefault(finding.device, []).append(finding.global_rank)
    wanted = {finding.expected for finding in group if finding.expected}
    met = [*(other.device for other in first.others), *(one.device for one in first.operators if one.device)]
    devices = dict.fromkeys([*ranks, *sorted(wanted), *met])
    several = len(ranks) > 1
    return [
        Lane(
            device,
            (Operand(_named(first.name, ranks[device], several), device, first.detail),) if device in ranks else (),
            tuple(other for other in first.others if other.device == device),
            device in wanted and device not in ranks,
            tuple(_operators(first, device)),
        )
        for device in devices
    ]


def meeting_of(finding: Finding) -> tuple[str, str]:
    """The operator between the lanes, and what it does there; two empty texts where none is known."""
    moves = any(one.device for one in finding.operators)
    name = next((one.name for one in finding.operators if not one.device), "")
    return name, ("moved by" if moves else "met in") if name else ""


def _operators(finding: Finding, device: str) -> Iterator[tuple[str, str]]:
    where = BEFORE
    for one in finding.operators:
        if not one.device:
            where = AFTER
        elif one.device == device:
            yield one.name, where


def _named(name: str, ranks: Sequence[int], several: bool) -> str:
    return f"{name} (rank {spell_ranks(ranks)})" if several else name
