"""What a picture of a finding shows: which tensors stand in the lane of which device, and what the lanes meet in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_devcheck._records import Finding, Operand
from lightning_devcheck._render._text import spell_ranks


@dataclass(frozen=True, slots=True)
class Lane:
    """One device and the tensors on it.

    Attributes:
        device: The device as text.
        culprits: The tensors that the finding is about, one for each device they were seen on.
        others: What they met.
        expected: Whether the culprit belongs here.
    """

    device: str
    culprits: tuple[Operand, ...] = ()
    others: tuple[Operand, ...] = ()
    expected: bool = False


def lanes_of(group: Sequence[Finding]) -> list[Lane]:
    """Sort what the findings of one cause name by device: the culprit's lanes first, then where it belongs."""
    first = group[0]
    ranks: dict[str, list[int]] = {}
    for finding in group:
        ranks.setdefault(finding.device, []).append(finding.global_rank)
    wanted = {finding.expected for finding in group if finding.expected}
    devices = dict.fromkeys([*ranks, *sorted(wanted), *(other.device for other in first.others)])
    several = len(ranks) > 1
    return [
        Lane(
            device,
            (Operand(_named(first.name, ranks[device], several), device, first.detail),) if device in ranks else (),
            tuple(other for other in first.others if other.device == device),
            device in wanted and device not in ranks,
        )
        for device in devices
    ]


def _named(name: str, ranks: Sequence[int], several: bool) -> str:
    return f"{name} (rank {spell_ranks(ranks)})" if several else name
