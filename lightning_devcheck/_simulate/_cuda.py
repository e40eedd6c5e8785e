"""Stand-ins for ``torch.cuda`` and ``torch.accelerator`` for the time of a simulation."""

from __future__ import annotations

import types
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from lightning_devcheck._simulate._compat import IN_USE
from lightning_devcheck._simulate._cuda_rest import rest_stand_ins
from lightning_devcheck._simulate._generators import DefaultGenerators, RandomState, SimulatedGenerator
from lightning_devcheck._simulate._state import Simulation

MEMORY_BYTES = 32 * 2**30  # what a pretended device says it has
CAPABILITY = (9, 0)


class Stream:
    """A stream: everything on a simulated device runs at once and in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Return at once."""

    def wait_stream(self, stream: Any) -> None:
        """Return at once."""

    def wait_event(self, event: Any) -> None:
        """Return at once."""

    def record_event(self, event: Any = None) -> Any:
        """Return an event that has happened."""
        return event or Event()

    def query(self) -> bool:
        """Everything is done."""
        return True

    def is_capturing(self) -> bool:
        """No graph is captured."""
        return False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Event:
    """An event that has happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Return at once."""

    def wait(self, stream: Any = None) -> None:
        """Return at once."""

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, end: Any) -> float:
        """No time is simulated: 0 milliseconds."""
        return 0.0


class DeviceContext:
    """``torch.cuda.device``: makes a device the current one."""

    simulation: Simulation

    def __init__(self, device: Any) -> None:
        self._index = self.simulation.index_of(device)

    def __enter__(self) -> None:
        self._before, self.simulation.current = self.simulation.current, self._index

    def __exit__(self, *error: object) -> None:
        self.simulation.current = self._before


def cuda_stand_ins(simulation: Simulation) -> Iterable[tuple[Any, str, Any]]:
    """What to replace: owner, attribute and stand-in."""
    device = type("device", (DeviceContext,), {"simulation": simulation})

    def set_device(index: Any) -> None:
        simulation.current = simulation.index_of(index)

    def properties(device: Any = None) -> Any:
        simulation.index_of(device)
        return types.SimpleNamespace(
            name="simulated",
            major=CAPABILITY[0],
            minor=CAPABILITY[1],
            total_memory=MEMORY_BYTES,
            multi_processor_count=132,
        )

    def index_only(answer: Any) -> Any:
        def call(device: Any = None, *args: Any, **kwargs: Any) -> Any:
            simulation.index_of(device)
            return answer

        return call

    def stream(stream: Any) -> AbstractContextManager[None]:
        return nullcontext()

    cuda = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,  # no CUDA is started here: Lightning before 2.6 would refuse to fork
        "is_bf16_supported": lambda including_emulation=True: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: simulation.devices,
        "current_device": lambda: simulation.current,
        "set_device": set_device,
        "device": device,
        "device_of": lambda obj: device(obj.get_device() if obj.is_cuda else None),
        "synchronize": index_only(None),
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "get_device_capability": index_only(CAPABILITY),
        "get_device_name": index_only("simulated"),
        "get_device_properties": properties,
        "get_arch_list": lambda: ["sm_90"],
        "is_current_stream_capturing": lambda: False,
        "set_stream": lambda stream: None,
        "can_device_access_peer": lambda device, peer: True,
        "memory_allocated": index_only(0),
        "max_memory_allocated": index_only(0),
        "memory_reserved": index_only(0),
        "max_memory_reserved": index_only(0),
        "reset_peak_memory_stats": index_only(None),
        "memory_stats": index_only({}),
        "mem_get_info": index_only((MEMORY_BYTES, MEMORY_BYTES)),
        "Stream": Stream,
        "Event": Event,
        "stream": stream,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
    }
    accelerator = {
        "is_available": lambda: True,
        "device_count": lambda: simulation.devices,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: simulation.current,
        "current_device_idx": lambda: simulation.current,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "device_index": device,
        "synchronize": index_only(None),
        "current_stream": lambda device=None: Stream(),
        "set_stream": lambda stream: None,
        "empty_cache": lambda: None,
        "memory_allocated": index_only(0),
        "max_memory_allocated": index_only(0),
        "memory_reserved": index_only(0),
        "max_memory_reserved": index_only(0),
        "memory_stats": index_only({}),
        "reset_peak_memory_stats": index_only(None),
    }
    cuda |= RandomState(simulation).answers()
    yield torch, "Generator", SimulatedGenerator
    yield torch.cuda, "default_generators", DefaultGenerators(simulation)
    yield (*IN_USE, False)  # until a device has a stream of its own
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False
    # pinned memory is plain memory here, also for the loader's own thread, where no mode is on
    yield torch.Tensor, "pin_memory", lambda tensor, device=None: tensor
    yield torch.Tensor, "is_pinned", lambda tensor, device=None: False
    for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
        yield from ((owner, name, value) for name, value in cuda.items() if hasattr(owner, name))
    yield from rest_stand_ins(simulation)
    yield from (
        (torch.accelerator, name, value) for name, value in accelerator.items() if hasattr(torch.accelerator, name)
    )
