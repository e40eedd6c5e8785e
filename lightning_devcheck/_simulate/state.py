"""What the running simulation knows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch

from lightning_devcheck._report.records import Origin
from lightning_devcheck._simulate.compat import Operator
from lightning_devcheck._witness.places import Place, Places
from lightning_devcheck._witness.refusal import Note
from lightning_devcheck._witness.table import Table

Runner = Callable[[Operator, Sequence[Any], dict[str, Any]], Any]
# is given the roots of a backward and whether it gives leaves their gradients, and is open while it runs
WatchBackward = Callable[[Sequence[Any], bool], AbstractContextManager[None]]


class Placement(Enum):
    """Where a result is, if not on one simulated device or the CPU."""

    PER_ROW = auto()  # each item of the list where its row of arguments is
    BY_PARTS = auto()  # wherever the operators say that this one is composed of
    NO_DATA = auto()  # on torch's own meta device, asked for by that name


# a simulated device by its number, None for the CPU
Index = int | Placement | None


class Here(threading.local):
    """What each thread has for itself.

    Attributes:
        current: The device that ``cuda`` without an index means.
        target: The device that the factory call on its way means, or `Placement.NO_DATA`; None outside of one.
        latest: The device of the last result: what code inside torch, in backward, makes tensors on.
        casts: Whether autocast sees to what is called: while it is on, but not below an operator that it has cast for.
        backward: Whether autograd is on its way back.
        is_chosen: Whether the program, or its Trainer, has chosen the current device.
        trying: Whether what is refused is raised, also where the simulation goes on.
    """

    current: int = 0
    target: Index = None
    latest: int | None = None
    casts: bool = False
    backward: bool = False
    is_chosen: bool = False
    trying: bool = False


@dataclass
class Simulation:
    """The pretended machine.

    Attributes:
        devices: How many CUDA devices there are.
        run: Runs an operator, on values or on shapes.
        values: Whether tensors hold values; else shape and dtype only.
        spoiled: Whether unknown values were written among known ones.
        stand_ins: What was given for values that are not there, at which line, and how often.
        record_host_reads: Whether lines that read from the device, or copy to it, are counted.
        host_reads: How often each line made the host wait for the device, by itself or in a library that it called, if
            they are counted.
        host_copies: How often each line copied from the host to a device, likewise.
        here: What each thread has for itself.
        generators: The device index of each living generator, and where it was made, by its C++ address.
        streams: The default generator of each device that does not share the CPU's.
        note: Is told of what is refused, where the simulation goes on; None where it is raised.
        went_on: Whether something was refused and gone on from.
        watch_backward: Looks at every backward that the program calls; None where nobody does.
        places: Where the user's code was.
        places_of_plain: Where the devices of plain tensors were decided; simulated ones carry that.
    """

    devices: int
    run: Runner
    values: bool = True
    spoiled: bool = False
    stand_ins: dict[tuple[Origin, str], int] = field(default_factory=dict)
    record_host_reads: bool = False
    host_reads: dict[tuple[Origin, str], int] = field(default_factory=dict)
    host_copies: dict[tuple[Origin, str], int] = field(default_factory=dict)
    here: Here = field(default_factory=lambda: Here())
    generators: dict[int, tuple[int | None, Place]] = field(default_factory=dict)
    streams: dict[int, torch.Generator] = field(default_factory=dict)
    note: Note | None = None
    went_on: bool = False
    watch_backward: WatchBackward | None = None
    places: Places = field(default_factory=Places)
    places_of_plain: Table = field(default_factory=Table)

    @property
    def current(self) -> int:
        """The device that ``cuda`` without an index means, in this thread."""
        return self.here.current

    @current.setter
    def current(self, index: int) -> None:
        self.here.current = index

    def index_of(self, device: torch.device | str | int | None) -> int:
        """The index of a CUDA device, the current one where it has none.

        Raises:
            RuntimeError: If there is no such device, in CUDA's words.
        """
        if device is None:
            return self.current
        index = device if isinstance(device, int) else torch.device(device).index
        if index is None:
            return self.current
        if not 0 <= index < self.devices:
            raise RuntimeError(
                f"CUDA error: invalid device ordinal (asked for cuda:{index}, the simulation has {self.devices}: "
                f"cuda:0 to cuda:{self.devices - 1})"
            )
        return index

    @contextmanager
    def aiming(self, index: Index) -> Iterator[None]:
        """Make a device what ``self.options()`` means inside torch, for this thread's calls inside."""
        here = self.here
        before, here.target = here.target, index
        try:
            yield
        finally:
            here.target = before


_running: list[Simulation] = []


def active() -> Simulation | None:
    """The running simulation, or None."""
    return _running[-1] if _running else None


def running() -> Simulation:
    """The running simulation.

    Raises:
        RuntimeError: If there is none: a simulated tensor outlived its simulation.
    """
    if not _running:
        raise RuntimeError(
            "a simulated CUDA tensor was used outside `with simulate_cuda():`; copy it with .cpu() inside the block"
        )
    return _running[-1]


def start(simulation: Simulation) -> None:
    """Make a simulation the running one."""
    _running.append(simulation)


def stop() -> None:
    """End the running simulation; no weak reference stays on the user's tensors."""
    _running.pop().places_of_plain.clear()


def cuda_device(value: object) -> torch.device | None:
    """The CUDA device that ``"cuda"``, ``"cuda:1"`` or a `torch.device` names, or None."""
    if isinstance(value, str):
        return torch.device(value) if value.startswith("cuda") else None
    return value if isinstance(value, torch.device) and value.type == "cuda" else None


def device_at(index: int | None) -> torch.device:
    """The device with an index, the CPU for None."""
    return torch.device("cpu") if index is None else torch.device("cuda", index)
