"""A run with edits beside the run without: what is gone, what is new, what is computed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import ne
from pathlib import Path

from lightning_devcheck._fix.overlay import read_ran
from lightning_devcheck._fix.places import Place
from lightning_devcheck._fix.trace import read_losses, read_structure
from lightning_devcheck._report.records import Edit, Finding
from lightning_devcheck._report.report import Report

# whose repair changes what a run computes, and why that is right
CHANGES_NUMBERS = {
    "detached-loss": "the loss reaches the parameters now",
    "unregistered-parameter": "the parameter is trained now",
    "unregistered-module": "the module's parameters are trained now",
    "unoptimized-parameter": "an optimizer holds the parameter now",
    "replaced-parameter": "the optimizer trains the parameter that the module has now",
    "kept-graph": "no gradient goes back into an earlier batch now",
    "meta-parameter": "the parameter has values now",
    "leaf-device": "the tensor that wants a gradient is trained now",
}
# addresses and counts differ from run to run
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
RANDOM = "other random numbers are drawn"
TRAINED = "other parameters are trained"
UNKNOWN = "the losses are others, and no reason is known"


@dataclass(frozen=True)
class Trial:
    """What a run has shown.

    Attributes:
        report: What was found.
        reasons: Why it failed, of each process that did; empty where it came to its end.
        losses: The backwards of each process, by rank.
        keys: What the modules save.
        trained: What the optimizers train.
        ran: What the files held that were read.
    """

    report: Report
    reasons: frozenset[str]
    losses: Mapping[str, Sequence[Sequence[str]]]
    keys: frozenset[str]
    trained: Mapping[str, int]
    ran: Mapping[str, Set[str]]

    @property
    def structure(self) -> tuple[frozenset[str], Mapping[str, int]]:
        """What is saved and what is trained."""
        return self.keys, self.trained

    @property
    def has_backward(self) -> bool:
        """Whether it came as far as a backward."""
        return bool(self.losses)


def read_trial(folder: Path, report: Report, reason: str = "") -> Trial:
    """Read what a run has left in its folder.

    Args:
        folder: The folder.
        report: What was found.
        reason: How the run failed, where none of its processes says.
    """
    paths = folder.glob("failed-*")
    texts = [path.read_text(encoding="utf-8") for path in paths]
    if reason and not texts:
        texts.append(reason)
    keys, trained = read_structure(folder)
    reasons = frozenset(map(_plain, texts))
    losses = read_losses(folder)
    return Trial(report, reasons, losses, keys, trained, read_ran(folder))


def _plain(reason: str) -> str:
    """A reason without what differs from run to run."""
    line = " ".join(reason.split())
    return _NUMBERS.sub("#", line)


@dataclass(frozen=True)
class Repair:
    """What is tried for a finding.

    Attributes:
        finding: The finding.
        edits: The edits, of the files as they are.
        key: What tells the finding from others, whatever edits have moved.
        is_last: Whether it is the last resort: the tensor is moved where it is used.
    """

    finding: Finding
    edits: tuple[Edit, ...]
    key: tuple[object, ...]
    is_last: bool = False

    @property
    def told(self) -> Finding:
        """The finding with these edits, and with words that are theirs."""
        if not self.is_last:
            return replace(self.finding, edits=self.edits)
        words = f"move it where it is used: {self.edits[0].new}"
        return replace(self.finding, edits=self.edits, fix=words)

    @property
    def paths(self) -> set[Path]:
        """The real paths of the files that it changes."""
        return {Path(os.path.realpath(edit.filename)) for edit in self.edits}

    @property
    def lines(self) -> set[Place]:
        """The lines that it changes."""
        found = set()
        for edit in self.edits:
            path = os.path.realpath(edit.filename)
            lines = range(edit.lineno, edit.end_lineno + 1)
            found |= {(path, line) for line in lines}
        return found


def judged(report: Report) -> list[Finding]:
    """The findings that a fix has to take away: notes are fine."""
    return [finding for finding in report.findings if finding.severity != "note"]


def difference(base: Trial, trial: Trial, repairs: Iterable[Repair]) -> str:
    """Say why the losses of two runs differ; empty where they are the same as far as both went."""
    if not _differ(base, trial):
        return ""
    if base.structure != trial.structure:
        return TRAINED
    known = {repair.finding.rule for repair in repairs} & set(CHANGES_NUMBERS)
    if known:
        return CHANGES_NUMBERS[min(known)]
    return RANDOM if _draw_otherwise(base, trial) else UNKNOWN


def _pairs(base: Trial, trial: Trial) -> list[tuple[Sequence[str], Sequence[str]]]:
    pairs: list[tuple[Sequence[str], Sequence[str]]] = []
    for rank, processes in base.losses.items():
        others = trial.losses.get(rank, [])
        pairs += list(zip_longest(processes, others, fillvalue=()))
    return pairs


def _differ(base: Trial, trial: Trial) -> bool:
    """Whether a loss differs, or the second run made fewer steps."""
    for old, new in _pairs(base, trial):
        if len(new) < len(old):
            return True
        shown = map(_losses, new)
        if any(map(ne, map(_losses, old), shown)):
            return True
    return False


def _losses(line: str) -> str:
    return line.partition(" ")[2]


def _drawn(line: str) -> str:
    return line.partition(" ")[0]


def _draw_otherwise(base: Trial, trial: Trial) -> bool:
    """Whether random numbers differ where the losses begin to."""
    for old, new in _pairs(base, trial):
        for one, other in zip(old, new, strict=False):
            if _losses(one) == _losses(other):
                continue
            if _drawn(one) != _drawn(other):
                return True
            break
    return False
