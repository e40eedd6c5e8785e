"""Notes about the lines of a training step that read from the device, or copy to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.rules import RULES, make_finding
from lightning_devcheck._simulate.state import active
from lightning_devcheck._source.naming import bare, name_move, name_read

IN_METRICS = (
    'the metric looks at its input: validate_args=False or nan_strategy="disable", where it takes them, spares that;\n'
    "or update it less often"
)


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
        notes = [
            _note(rule, origin, count, self._steps, device, global_rank, fix=IN_METRICS if library else "")
            for rule, (origin, library), count in seen
            if self._is_inside(origin)
        ]
        made_up = {key: count for key, count in simulation.stand_ins.items() if self._is_inside(key[0])}
        return (*notes, *_made_up(made_up, device, global_rank))

    def _is_inside(self, origin: Origin) -> bool:
        return (origin.filename, origin.lineno) not in self._outside


def _note(rule: str, origin: Origin, count: int, steps: int, device: str, global_rank: int, *, fix: str) -> Finding:
    name = name_read(origin) if rule == "host-read" else name_move(origin)[0] or bare(origin)
    often = count / steps
    times = "once" if often == 1 else f"{often:g} times"
    return make_finding(
        rule,
        name=name,
        device=device,
        what=f"{RULES[rule].what.format(name=name, device=device)}, {times} per training step",
        fix=fix,
        used=origin,
        global_rank=global_rank,
    )


def _made_up(stand_ins: Mapping[tuple[Origin, str], int], device: str, global_rank: int) -> Iterator[Finding]:
    """A note for each line that read a value of a simulation that has none."""
    for (origin, given), count in stand_ins.items():
        name = name_read(origin)
        yield make_finding(
            "made-up-value",
            name=name,
            device=device,
            what=f"{name} has no value in this run; the line was given {given}",
            used=origin,
            count=count,
            global_rank=global_rank,
        )
