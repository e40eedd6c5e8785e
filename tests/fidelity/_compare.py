"""Probes: every trial on every placement, by the simulation, the table and FakeTensorMode."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lightning_devcheck import simulate_cuda
from tests.fidelity._fake import faked
from tests.fidelity._outcome import Outcome
from tests.fidelity._reasons import REASONS, Difference
from tests.fidelity._samples import operators
from tests.fidelity._simulation import simulated
from tests.fidelity._table import expected
from tests.fidelity._trials import Placement, Trial, placements, trials


@dataclass
class Tally:
    """What a run of probes found.

    Attributes:
        counts: Probes, answers and agreements, by name.
        explained: How many differences each reason explains, by its place in `REASONS`.
        unexplained: The differences without a reason, in words.
    """

    counts: Counter[str] = field(default_factory=Counter)
    explained: Counter[int] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what another run found."""
        self.counts += other.counts
        self.explained += other.explained
        self.unexplained += other.unexplained

    def share(self, whose: str) -> float:
        """The part of the answers of ``table`` or ``fake`` that the simulation agrees with."""
        return self.counts[f"{whose} agrees"] / max(1, self.counts[f"{whose} answers"])


def probes(operator: Any, limit: int) -> list[tuple[Trial, Placement]]:
    """Every trial of an operator on every placement."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [trial for trial in trials(operator, limit) if trial.tensors]
    return [(trial, placement) for trial in made for placement in placements(len(trial.tensors))]


def compare(chosen: Iterable[Any], limit: int) -> Tally:
    """Probe operators with so many samples each."""
    tally = Tally()
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        for operator in chosen:
            made = probes(operator, limit)
            with simulate_cuda(devices=2):
                ours = [simulated(*probe) for probe in made]
            for probe, mine in zip(made, ours, strict=True):
                _judge(tally, probe, mine)
    return tally


def part(which: tuple[int, int, int]) -> Tally:
    """Probe every n-th operator, in a process of its own: the first, n, and how many samples."""
    first, step, limit = which
    faulthandler.enable()
    return compare(operators()[first::step], limit)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """FakeTensorMode logs a traceback for each call that it cannot do."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _judge(tally: Tally, probe: tuple[Trial, Placement], ours: Outcome) -> None:
    table = expected(*probe)
    settled = table is not None and ours.agrees(table)
    tally.counts["probes"] += 1
    for whose, theirs in (("table", table), ("fake", faked(*probe))):
        if theirs is None:
            continue
        tally.counts[f"{whose} answers"] += 1
        if ours.agrees(theirs):
            tally.counts[f"{whose} agrees"] += 1
        else:
            _explain(tally, Difference(*probe, ours, theirs, whose, settled))


def _explain(tally: Tally, difference: Difference) -> None:
    found = next((i for i, reason in enumerate(REASONS) if reason.explains(difference)), None)
    if found is None:
        tally.unexplained.append(str(difference))
    else:
        tally.explained[found] += 1
