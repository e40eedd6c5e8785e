"""Stand-ins for ``torch.cuda`` and ``torch.accelerator`` for the time of a simulation."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch

from lightning_devcheck._simulate.api.cuda_rest import MEMORY, answers, each, everywhere, rest_stand_ins
from lightning_devcheck._simulate.compat import IN_USE
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import Simulation
from lightning_devcheck._simulate.tensor.generators import DefaultGenerators, RandomState, SimulatedGenerator
from lightning_devcheck._simulate.tensor.refusing import refuse


class Stream:
    """A stream: everything on a simulated device runs at once and in order."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def synchronize(self) -> None:
        """Return at once."""

    def wait_stream(self, stream: object) -> None:
        """Return at once."""

    def wait_event(self, event: object) -> None:
        """Return at once."""

    def record_event(self, event: object = None) -> Any:
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

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def record(self, stream: object = None) -> None:
        """Return at once."""

    def wait(self, stream: object = None) -> None:
        """Return at once."""

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, end: object) -> float:
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


def cuda_stand_ins(simulation: Simulation) -> Iterable[Change]:
    """What to replace: owner, attribute and stand-in."""
    device = type("device", (DeviceContext,), {"simulation": simulation})
    figures = answers(simulation)

    def set_device(index: Any) -> None:
        simulation.current = simulation.index_of(index)
        simulation.here.is_chosen = True

    def current_stream(device: Any = None) -> Stream:
        return Stream()

    def pin_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        if tensor.is_cuda:
            refuse(RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned"), [tensor])
        return tensor

    cuda: dict[str, object] = {
        "is_initialized": lambda: False,  # no CUDA is started here: Lightning before 2.6 would refuse to fork
        "is_bf16_supported": lambda including_emulation=True: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "current_device": lambda: simulation.current,
        "set_device": set_device,
        "device": device,
        "device_of": lambda obj: device(obj.get_device() if obj.is_cuda else None),
        "ipc_collect": lambda: None,
        "get_arch_list": lambda: ["sm_90"],
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda device, peer: True,
        "Stream": Stream,
        "Event": Event,
        "stream": lambda stream: nullcontext(),
        "default_stream": current_stream,
    }
    accelerator: dict[str, object] = {
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: simulation.current,
        "current_device_idx": lambda: simulation.current,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "device_index": device,
    }
    both: dict[str, object] = {
        "is_available": lambda: True,
        "device_count": lambda: simulation.devices,
        "current_stream": current_stream,
        "set_stream": lambda stream: None,
        "empty_cache": lambda: None,
    }
    shared = (*MEMORY, "memory_stats", "reset_peak_memory_stats", "synchronize")
    both.update({name: figures[name] for name in shared})
    cuda |= RandomState(simulation).answers()
    yield torch, "Generator", SimulatedGenerator
    yield torch.cuda, "default_generators", DefaultGenerators(simulation)
    yield (*IN_USE, False)  # until a device has a stream of its own
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False
    # pinned memory is plain memory here, also for the loader's own thread, where no mode is on
    yield torch.Tensor, "pin_memory", pin_memory
    yield torch.Tensor, "is_pinned", lambda tensor, device=None: False
    yield from everywhere({**cuda, **both})
    yield from rest_stand_ins(simulation)
    yield from each(torch.accelerator, {**accelerator, **both})
