"""Random numbers on simulated devices: generators, and the streams of devices that have one of their own."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from lightning_devcheck._report.records import Origin
from lightning_devcheck._simulate.compat import IN_USE
from lightning_devcheck._simulate.state import Simulation, active, cuda_device, device_at, running
from lightning_devcheck._source.files import is_installed
from lightning_devcheck._witness.places import NOWHERE, Place

# NOTE [One stream, until a script asks for a device's]
# The CPU and the devices draw from the CPU's default generator, so that a script's numbers are those of its CPU run,
# bit for bit. A script that seeds, sets or reads a device's generator wants CUDA's semantics: from then on that device
# has a stream of its own, which starts where the shared one is. What libraries do for CPU and devices alike separates
# nothing: `torch.manual_seed`, `seed_everything`, checkpointing, `fork_rng` and `isolate_rng` seed the shared stream or
# put it back through the CPU's.
_DRAWING = threading.RLock()  # torch's default generator is lent to one thread at a time


def address_of(generator: torch.Generator) -> int:
    """What tells one generator from another: torch hands operators a new Python object of the same one."""
    return int(generator._cdata)  # type: ignore[attr-defined]


def made_at(generator: torch.Generator) -> tuple[int | None, Place]:
    """The device that a generator was made on, None for the CPU, and where that was."""
    return running().generators.get(address_of(generator), (None, NOWHERE))


def made_line(generator: torch.Generator) -> Origin | None:
    """The user's line that made a generator; None where it was not seen."""
    simulation = active()
    return None if simulation is None else simulation.places.line(made_at(generator)[1])


class SimulatedGenerator(torch.Generator):
    """``torch.Generator``, which may be asked for on a simulated device; its numbers are the CPU's."""

    def __new__(cls, device: Any = "cpu") -> SimulatedGenerator:
        """Make a CPU generator whose device and place are kept for as long as it lives."""
        self: SimulatedGenerator = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        wanted = cuda_device(torch.device(device))
        if wanted is None and active() is None:
            return self
        simulation = running()
        index = None if wanted is None else simulation.index_of(wanted)
        generators, address = simulation.generators, address_of(self)
        generators[address] = index, simulation.places.here()
        # another generator may get the address of a dead one
        weakref.finalize(self, generators.pop, address, None).atexit = False
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The pretended device; outside of a simulation the CPU."""
        return torch.device("cpu") if active() is None else device_at(made_at(self)[0])

    def clone_state(self) -> SimulatedGenerator:
        """Make a generator on the same device that draws the same numbers."""
        return remade(str(self.device), self.get_state())  # type: ignore[return-value]

    def __reduce__(self) -> Any:
        return remade, (str(self.device), self.get_state())


def remade(device: str, state: torch.Tensor) -> torch.Generator:
    """Unpickle or copy; outside of a simulation a device's generator comes back as one of the CPU."""
    made = torch.Generator() if active() is None else SimulatedGenerator(device)
    made.set_state(state)
    return made


def own_stream(simulation: Simulation, index: int) -> torch.Generator:
    """The default generator of a device, which from now on does not share the CPU's stream."""
    if index not in simulation.streams:
        stream = SimulatedGenerator(torch.device("cuda", index))
        stream.set_state(torch.default_generator.get_state())
        simulation.streams[index] = stream
        setattr(*IN_USE, True)
    return simulation.streams[index]


@contextmanager
def drawing_from(stream: torch.Generator) -> Iterator[None]:
    """Let what draws from the default generator draw from another one; most operators take none as an argument."""
    default = torch.default_generator
    with _DRAWING:
        before = default.get_state()
        default.set_state(stream.get_state())
        try:
            yield
        finally:
            stream.set_state(default.get_state())
            default.set_state(before)


class DefaultGenerators(Sequence[torch.Generator]):
    """``torch.cuda.default_generators``: a device whose generator is taken has a stream of its own."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def __len__(self) -> int:
        return self._simulation.devices

    def __getitem__(self, position: Any) -> Any:
        index = range(len(self))[position]
        if isinstance(index, int):
            return own_stream(self._simulation, index)
        return tuple(own_stream(self._simulation, each) for each in index)


class RandomState:
    """The functions of ``torch.cuda`` that seed, read and set the devices' generators."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def answers(self) -> dict[str, Callable[..., Any]]:
        """The functions by their names in ``torch.cuda``."""
        return {name: getattr(self, name) for name in vars(RandomState) if name in torch.cuda.random.__all__}

    def get_rng_state(self, device: Any = "cuda") -> torch.Tensor:
        """Return the state of a device's generator."""
        return self._read(self._simulation.index_of(device), _caller())

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """Return the states of all devices' generators."""
        caller = _caller()
        return [self._read(index, caller) for index in range(self._simulation.devices)]

    def set_rng_state(self, new_state: torch.Tensor, device: Any = "cuda") -> None:
        """Set the state of a device's generator."""
        self._write(self._simulation.index_of(device), new_state, _caller())

    def set_rng_state_all(self, new_states: Sequence[torch.Tensor]) -> None:
        """Set the states of the devices' generators."""
        caller = _caller()
        for index, state in enumerate(new_states):
            self._write(index, state, caller)

    def manual_seed(self, seed: int) -> None:
        """Seed the current device's generator."""
        self._seed([self._simulation.current], int(seed), _caller())

    def manual_seed_all(self, seed: int) -> None:
        """Seed all devices' generators."""
        self._seed(range(self._simulation.devices), int(seed), _caller())

    def seed(self) -> None:
        """Seed the current device's generator with a random number."""
        own_stream(self._simulation, self._simulation.current).seed()

    def seed_all(self) -> None:
        """Seed all devices' generators with one random number."""
        seed = torch.Generator().seed()
        for index in range(self._simulation.devices):
            own_stream(self._simulation, index).manual_seed(seed)

    def initial_seed(self) -> int:
        """Return the seed of the current device's generator."""
        stream = self._simulation.streams.get(self._simulation.current, torch.default_generator)
        return stream.initial_seed()

    def _is_shared(self, index: int) -> bool:
        return index not in self._simulation.streams

    def _read(self, index: int, caller: str) -> torch.Tensor:
        if caller and self._is_shared(index):
            return torch.default_generator.get_state()
        return own_stream(self._simulation, index).get_state()

    def _write(self, index: int, state: torch.Tensor, caller: str) -> None:
        if caller and self._is_shared(index) and torch.equal(state, torch.default_generator.get_state()):
            return  # the library has put the CPU's generator back to the same state before
        own_stream(self._simulation, index).set_state(state)

    def _seed(self, indices: Sequence[int], seed: int, caller: str) -> None:
        # `torch.manual_seed` seeds the devices first, other libraries after it
        alike = caller == "torch" or (caller and torch.initial_seed() == seed)
        for index in indices:
            if not alike or not self._is_shared(index):
                own_stream(self._simulation, index).manual_seed(seed)


def _caller() -> str:
    """The library that has called a function of `RandomState`, empty for the user's own code."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == torch.manual_seed.__module__:
        return "torch"
    return "another" if is_installed(frame.f_code.co_filename) else ""
