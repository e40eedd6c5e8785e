"""Lines that make the host wait for the device, or send it what the host has made."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._records import Origin
from lightning_devcheck._simulate._state import active
from lightning_devcheck._source import METRICS, is_framework, library_of, line_of

# operators whose result, or its shape, the host has to know
HOST_READS = {f"aten::{name}" for name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero")}
HOST_READS |= {
    f"aten::{name}" for name in ("allclose", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive")
}
NO_VALUES = "this simulation has no values"
MASKS = (torch.bool, torch.uint8)


def note_host_read(func: Any, args: Sequence[Any]) -> None:
    """Count a host read at the user's line, if host reads are recorded and it is one."""
    simulation = active()
    if simulation is not None and simulation.record_host_reads and _reads(func, args):
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
    frame: Any = sys._getframe(2)
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


def _reads(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator, as called, makes the host wait: indexing does with device masks only."""
    if func is None:  # a copy to the host
        return True
    if func._schema.name in HOST_READS:
        return any(_on_device(value) for value in args)
    indices = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
    return any(_on_device(value) and value.dtype in MASKS for value in indices)


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda
