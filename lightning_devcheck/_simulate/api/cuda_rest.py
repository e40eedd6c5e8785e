"""Stand-ins for the outer parts of ``torch.cuda``: figures, marks, and what is not simulated and says so."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import Simulation

MEMORY_BYTES = 32 * 2**30  # what a pretended device says it has
CAPABILITY = (9, 0)
MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
# what has a device for an argument → what it answers for each
FIGURES: dict[str, object] = {}
# name in torch.cuda → what to do instead
NOT_SIMULATED: dict[str, str] = {}


def _answer(value: object, *names: str) -> None:
    FIGURES.update(dict.fromkeys(names, value))


def _refuse(advice: str, *names: str) -> None:
    NOT_SIMULATED.update(dict.fromkeys(names, advice))


_answer(0, *MEMORY, "memory_cached", "max_memory_cached", "memory_usage", "device_memory_used")
_answer(0, "utilization", "temperature", "power_draw", "clock_rate")
_answer(
    {},
    "memory_stats",
    "memory_stats_as_nested_dict",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
)
_answer(
    None,
    "synchronize",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
)
_answer(None, "reset_peak_host_memory_stats", "reset_accumulated_host_memory_stats")
_answer((MEMORY_BYTES, MEMORY_BYTES), "mem_get_info")
_answer("simulated device: no memory is used", "memory_summary")
_answer("no processes", "list_gpu_processes")
_answer("simulated", "get_device_name")
_answer(CAPABILITY, "get_device_capability")
_answer(
    SimpleNamespace(
        name="simulated",
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=MEMORY_BYTES,
        multi_processor_count=132,
    ),
    "get_device_properties",
)

_refuse(
    "run the step without capturing it",
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "export_dot",
    "export_graph_data",
)
_refuse("call the functions as they are", "make_graphed_callables")
_refuse("use torch.cuda.Stream", "ExternalStream", "get_stream_from_external")
_refuse(
    "leave it out for the run",
    "GreenContext",
    "MemPool",
    "MemPoolContext",
    "use_mem_pool",
    "CUDAPluggableAllocator",
    "change_current_allocator",
    "caching_allocator_disabled",
)
_refuse("use torch.empty", "caching_allocator_alloc", "caching_allocator_delete")
_refuse("there is no CUDA runtime behind a simulated device", "cudart")
_refuse("there is no cuBLAS behind a simulated device", "current_blas_handle")
_refuse("there is no cuSOLVER behind a simulated device", "current_solver_handle")
_refuse("there is no memory to look at", "memory_snapshot")
_refuse("use a tensor", "BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage")
_refuse("use a tensor", "ComplexDoubleStorage", "ComplexFloatStorage", "DoubleStorage")
_refuse("use a tensor", "FloatStorage", "HalfStorage", "IntStorage", "LongStorage", "ShortStorage")
# the same in other modules
NCCL = ("all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "unique_id")
BROADCASTS = ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced")
JITERATOR = ("_create_jit_fn", "_create_multi_output_jit_fn")
MODULES = {
    "torch.nn.parallel.comm": ((*BROADCASTS, "scatter", "gather"), "use .to()"),
    "torch.cuda.jiterator": (JITERATOR, "write it with torch's operators"),
    "torch.cuda.gds": (("GdsFile", "gds_register_buffer", "gds_deregister_buffer"), "use torch.load"),
    "torch.cuda.nccl": (NCCL, "use torch.distributed"),
}


def rest_stand_ins(simulation: Simulation) -> Iterator[Change]:
    """What to replace: owner, attribute and stand-in."""
    yield from everywhere(answers(simulation))
    yield from everywhere(_settings(simulation))
    for name, advice in NOT_SIMULATED.items():
        if hasattr(torch.cuda, name):
            refusal = _refusal(f"torch.cuda.{name}", advice, getattr(torch.cuda, name))
            yield from everywhere({name: refusal})
    yield from _refused_elsewhere()
    yield from _nvtx()
    profiler = {"start": lambda: None, "stop": lambda: None, "init": lambda *args: None}
    yield from each(torch.cuda.profiler, profiler)
    nccl = {"version": lambda: (2, 27, 3), "is_available": lambda tensors: True}
    yield from each(torch.cuda.nccl, nccl)
    yield torch.backends.cudnn, "is_available", lambda: True
    yield torch.backends.cudnn, "version", lambda: 91002
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.Tensor, "record_stream", lambda tensor, stream: None


def answers(simulation: Simulation) -> dict[str, Callable[..., object]]:
    """Make what gives the same answer for each device, and refuses one that is not there."""

    def answering(value: object) -> Callable[..., object]:
        def call(device: Any = None, *args: object, **kwargs: object) -> object:
            simulation.index_of(device)
            return copy.copy(value)

        return call

    return {name: answering(value) for name, value in FIGURES.items()}


def _settings(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    state = {"fraction": 1.0, "sync": 0}

    def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
        simulation.index_of(device)
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        state["fraction"] = fraction

    def set_sync_debug_mode(debug_mode: int | str) -> None:
        modes = {"default": 0, "warn": 1, "error": 2}
        state["sync"] = modes[debug_mode] if isinstance(debug_mode, str) else debug_mode

    return {
        "set_per_process_memory_fraction": set_per_process_memory_fraction,
        "get_per_process_memory_fraction": lambda device=None: state["fraction"],
        "set_sync_debug_mode": set_sync_debug_mode,
        "get_sync_debug_mode": lambda: state["sync"],
        "caching_allocator_enable": lambda value=True: None,
        "get_allocator_backend": lambda: "native",
        "get_gencode_flags": lambda: "-gencode compute=compute_90,code=sm_90",
        "is_tf32_supported": lambda: True,
        "check_error": lambda result: None,
        "StreamContext": lambda stream: nullcontext(),
    }


def _refused_elsewhere() -> Iterator[Change]:
    for module, (names, advice) in MODULES.items():
        owner = sys.modules.get(module)
        for name in names:
            if hasattr(owner, name):
                yield owner, name, _refusal(f"{module}.{name}", advice, getattr(owner, name))


def _refusal(name: str, advice: str, original: Any) -> Any:
    """A stand-in for a function or a class that says what is not there."""

    def refuse(*args: object, **kwargs: object) -> Any:
        raise RuntimeError(f"{name} is not simulated: {advice}.")

    if isinstance(original, type):
        return type(original.__name__, (), {"__new__": refuse})
    return functools.wraps(original)(refuse)


def _nvtx() -> Iterator[Change]:
    @contextmanager
    def span(message: str, *args: object, **kwargs: object) -> Iterator[None]:
        yield

    def mark(*args: object, **kwargs: object) -> int:
        return 0

    names = ("range_push", "range_pop", "range_start", "range_end", "mark")
    yield from each(torch.cuda.nvtx, {**dict.fromkeys(names, mark), "range": span})


def each(owner: ModuleType, answers: Mapping[str, object]) -> list[Change]:
    """Replace what a module has."""
    return [(owner, name, value) for name, value in answers.items() if hasattr(owner, name)]


def everywhere(answers: Mapping[str, object]) -> Iterator[Change]:
    """Replace it in ``torch.cuda`` and in its modules by subject, which offer the same functions."""
    for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        yield from each(owner, answers)
