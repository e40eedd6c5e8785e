"""Notes about the lines of a training step that read from the device, or copy to it."""

from __future__ import annotations

import sys

from lightning_devcheck._naming import bare, name_move, name_read
from lightning_devcheck._records import Finding, Origin
from lightning_devcheck._rules import RULES, make_finding
from lightning_devcheck._simulate._state import active


class ReadCounter:
    """Counts host reads and copies between `start` and `stop`, on the simulation that runs; idle where none does."""

    def __init__(self) -> None:
        self._steps = 0
        self._outside: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Begin a step. Lines that are running already led to it: what Lightning reads is not theirs."""
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
        seen = [("host-read", *item) for item in simulation.host_reads.items()]
        seen += [("host-copy", *item) for item in simulation.host_copies.items()]
        return tuple(
            _note(rule, origin, count, self._steps, device, global_rank)
            for rule, origin, count in seen
            if (origin.filename, origin.lineno) not in self._outside
        )


def _note(rule: str, origin: Origin, count: int, steps: int, device: str, global_rank: int) -> Finding:
    name = name_read(origin) if rule == "host-read" else name_move(origin)[0] or bare(origin.line)
    often = count / steps
    times = "once" if often == 1 else f"{often:g} times"
    return make_finding(
        rule,
        name=name,
        device=device,
        what=f"{RULES[rule].what.format(name=name, device=device)}, {times} per training step",
        used=origin,
        count=count,
        global_rank=global_rank,
    )
