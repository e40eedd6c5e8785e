"""Lines that make the host wait for the device, or send it what the host has made."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._records import Origin
from lightning_devcheck._simulate._state import active
from lightning_devcheck._source import is_framework, line_of

# operators whose result, or its shape, the host has to know
HOST_READS = {f"aten::{name}" for name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero")}
HOST_READS |= {f"aten::{name}" for name in ("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive")}
MASKS = (torch.bool, torch.uint8)


def note_host_read(func: Any, args: Sequence[Any]) -> None:
    """Count a host read at the user's line, if host reads are recorded and it is one."""
    simulation = active()
    if simulation is not None and simulation.record_host_reads and _reads(func, args):
        _count(simulation.host_reads)


def note_host_copy() -> None:
    """Count a copy from the host to a device at the user's line, if they are recorded."""
    simulation = active()
    if simulation is not None and simulation.record_host_reads:
        _count(simulation.host_copies)


def _count(lines: dict[Origin, int]) -> None:
    frame: Any = sys._getframe(2)
    while frame is not None and is_framework(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is not None:
        origin = line_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        lines[origin] = lines.get(origin, 0) + 1


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
