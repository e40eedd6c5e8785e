"""What a run goes on from: one finding for each cause, saved as soon as it is there."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lightning_devcheck._explain import explain_refusal
from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.report import Report
from lightning_devcheck._run.spool import save
from lightning_devcheck._simulate.going_on import going_on
from lightning_devcheck._simulate.state import active, running
from lightning_devcheck._witness.places import NOWHERE, Place
from lightning_devcheck._witness.refusal import Refusal

# the place that decided, and where things belong; where nothing decided, the place of the meeting
Cause = tuple[Place, object]


class Recorder:
    """Is told what a simulation refuses; keeps no tensor.

    Args:
        folder: Where reports are saved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[Cause, int] = {}
        self._findings: dict[Cause, Finding] = {}
        self._lock = threading.RLock()
        self._trainer: Any = None
        self._name = ""

    def watch(self, trainer: Any) -> None:
        """Know the Trainer that runs: its module, its step."""
        self._trainer = trainer

    def start_rank(self) -> None:
        """Begin anew in a process that was forked: what its parent has found, that says."""
        self._counts, self._findings, self._name = {}, {}, ""

    def __call__(self, refusal: Refusal) -> None:
        """Count a refusal with its causes, and explain it where there is a new one."""
        with self._lock:
            if self._follows(refusal):
                return
            causes = _causes(refusal)
            is_known = all(cause in self._counts for cause in causes)
            for cause in dict.fromkeys(causes):
                self._counts[cause] = self._counts.get(cause, 0) + 1
            if not is_known:
                self._explain(refusal, causes)

    def has_refused(self, line: Origin | None) -> bool:
        """Say whether something whose device that line decided was refused, and gone on from."""
        causes = [finding.decided for finding in self._findings.values()]
        return any(cause is not None and cause.meets(line) for cause in causes)

    def _follows(self, refusal: Refusal) -> bool:
        """Say whether it is torch's own, on the way back from what was refused on the way forth."""
        if not refusal.in_backward or not self._findings:
            return False
        # gradients that the program gives or returns are compared by the engine, not by an operator
        is_operator = hasattr(refusal.error, "func")
        is_own = is_operator and refusal.here == NOWHERE
        return is_own or not any(refusal.decided)

    def _explain(self, refusal: Refusal, causes: list[Cause]) -> None:
        places = running().places
        lines = [places.line(place or NOWHERE) for place in refusal.decided]
        module = getattr(self._trainer, "lightning_module", None)
        found = explain_refusal(refusal, sys._getframe(2), module)
        where = self._where()
        for cause, finding, line in zip(causes, found, lines, strict=False):
            if cause in self._findings:
                continue
            decided = line or _kept(finding)
            self._findings[cause] = dataclasses.replace(finding, decided=decided, **where)
        self.save()

    def _where(self) -> dict[str, Any]:
        where: dict[str, Any] = {}
        if _is_distributed():
            where["global_rank"] = dist.get_rank()
        if self._trainer is not None:
            where["step"] = self._trainer.global_step
        return where

    def save(self) -> None:
        """Save what was found until now, in place of what was saved before."""
        if not self._findings:
            return
        findings = []
        for cause, finding in self._findings.items():
            count = self._counts[cause]
            findings.append(dataclasses.replace(finding, count=count))
        world_size = 1
        if _is_distributed():
            world_size = dist.get_world_size()
        report = Report(tuple(findings), world_size=world_size)
        self._name = save(report, self._folder, self._name)


def _causes(refusal: Refusal) -> list[Cause]:
    """List the cause of each stray, or of what is no tensor."""
    causes: list[Cause] = []
    for place in refusal.decided:
        innermost = (place or refusal.here)[:2]
        causes.append((innermost, refusal.expected))
    return causes


def _kept(finding: Finding) -> Origin | None:
    """Take a finding's line for the place of its cause; that of an optimizer is none."""
    if finding.rule == "optimizer-device":
        return None
    return finding.origin


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


@contextmanager
def recording(folder: Path) -> Iterator[None]:
    """Go on from what the simulation refuses, and save it."""
    recorder = Recorder(folder)
    with going_on(recorder):
        try:
            yield
        finally:
            recorder.save()


def current_recorder() -> Recorder | None:
    """Find the one that records in this process; None where the run stops at the first finding."""
    simulation = active()
    if simulation is None or not isinstance(simulation.note, Recorder):
        return None
    return simulation.note
