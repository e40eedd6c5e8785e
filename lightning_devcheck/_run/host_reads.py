"""Counts the lines of training steps that read from the device, or copy to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from lightning_devcheck._judge.host_uses import HostUse, judge_host_use
from lightning_devcheck._report.records import Finding
from lightning_devcheck._simulate.state import Simulation, active
from lightning_devcheck._source.naming import bare, name_move, name_read


class ReadCounter:
    """Counts host reads and copies between `start` and `stop`; idle where no simulation runs."""

    def __init__(self) -> None:
        self._steps = 0
        self._outside: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Begin a step. Lines that run already led to it: what Lightning reads is not theirs."""
        simulation = active()
        if simulation is None:
            return
        self._steps += 1
        simulation.record_host_reads = True
        frame = sys._getframe(1)
        while frame is not None:
            self._outside.add((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]

    def stop(self) -> None:
        """End a step."""
        simulation = active()
        if simulation is not None:
            simulation.record_host_reads = False

    def findings(self, global_rank: int) -> tuple[Finding, ...]:
        """A note for each line of the steps so far, with how often a step runs into it."""
        simulation = active()
        if simulation is None or not self._steps:
            return ()
        device = f"cuda:{simulation.current}"
        notes = []
        for use in _uses(simulation):
            line = use.line
            if (line.filename, line.lineno) not in self._outside:
                notes.append(judge_host_use(use, self._steps, device, global_rank))
        return tuple(notes)


def _uses(simulation: Simulation) -> Iterator[HostUse]:
    """What a simulation has counted, with the names that its lines have for it."""
    for (line, library), count in simulation.host_reads.items():
        name = name_read(line)
        yield HostUse("host-read", name, line, count, bool(library))
    for (line, library), count in simulation.host_copies.items():
        name = name_move(line)[0] or bare(line)
        yield HostUse("host-copy", name, line, count, bool(library))
    for (line, given), count in simulation.stand_ins.items():
        name = name_read(line)
        yield HostUse("made-up-value", name, line, count, given=given)
