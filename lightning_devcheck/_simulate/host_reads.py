"""Lines that make the host wait for the device, or send it what the host has made."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

import torch

from lightning_devcheck._report.records import Origin
from lightning_devcheck._simulate.state import active
from lightning_devcheck._source.files import METRICS, is_framework, library_of, line_of

NO_VALUES = "this simulation has no values"


def note_host_read() -> None:
    """Count a host read at the user's line, if host reads are recorded."""
    simulation = active()
    if simulation is not None and simulation.record_host_reads:
        _count(simulation.host_reads, _line_here())


def note_host_copy() -> None:
    """Count a copy from the host to a device at the user's line, if they are recorded."""
    simulation = active()
    if simulation is not None and simulation.record_host_reads:
        origin, library = _line_here()
        _count(simulation.host_copies, (None if library else origin, library))  # a metric's own: states that are reset


def _count(lines: dict[tuple[Origin, str], int], line: tuple[Origin | None, str]) -> None:
    """Count at a line; what Lightning itself does there, to log or to step an optimizer, is not the user's to mend."""
    origin, library = line
    if origin is not None and library in ("", METRICS):
        lines[origin, library] = lines.get((origin, library), 0) + 1


def _line_here() -> tuple[Origin | None, str]:
    """The user's innermost line that is running, and the library, other than torch, that it called."""
    frame: FrameType | None = sys._getframe(2)
    library = ""
    while frame is not None and is_framework(frame.f_code.co_filename):
        library = library_of(frame.f_code.co_filename) or library
        frame = frame.f_back
    line = None if frame is None else line_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return line, library


def stand_in_of(tensor: torch.Tensor) -> bool | int | float:
    """What reading a value that is not there gives: 1, and False for a condition."""
    given: bool | int | float | None = getattr(tensor, "_stand_in", None)
    if given is not None:
        return given
    if tensor.dtype is torch.bool:
        return False
    return 1.0 if tensor.is_floating_point() else 1


def note_stand_in(given: str) -> None:
    """Note that the user's line got something that was made up, and warn of it once.

    Args:
        given: What it got, to be read after "was given".
    """
    simulation, (origin, _) = active(), _line_here()
    if simulation is None or origin is None:
        return
    count = simulation.stand_ins.get((origin, given), 0)
    simulation.stand_ins[(origin, given)] = count + 1
    if not count:
        text = f"{NO_VALUES}: `{origin.line or 'this line'}` was given {given}"
        warnings.warn_explicit(text, UserWarning, origin.filename, origin.lineno)
