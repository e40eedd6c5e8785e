"""Stand-ins for the outer parts of ``torch.cuda``: figures, profiling marks, and what is not simulated and says so."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch

from lightning_devcheck._simulate._state import Simulation

# name in torch.cuda -> what to do instead
NOT_SIMULATED = {
    "CUDAGraph": "run the step without capturing it",
    "graph": "run the step without capturing it",
    "make_graphed_callables": "call the functions as they are",
    "graph_pool_handle": "run the step without capturing it",
    "GreenContext": "leave it out for the run",
    "ExternalStream": "use torch.cuda.Stream",
    "get_stream_from_external": "use torch.cuda.Stream",
    "MemPool": "leave it out for the run",
    "MemPoolContext": "leave it out for the run",
    "use_mem_pool": "leave it out for the run",
    "CUDAPluggableAllocator": "leave it out for the run",
    "change_current_allocator": "leave it out for the run",
    "caching_allocator_disabled": "leave it out for the run",
    "caching_allocator_alloc": "use torch.empty",
    "caching_allocator_delete": "use torch.empty",
    "cudart": "there is no CUDA runtime behind a simulated device",
    "current_blas_handle": "there is no cuBLAS behind a simulated device",
    "current_solver_handle": "there is no cuSOLVER behind a simulated device",
    "memory_snapshot": "there is no memory to look at",
    "export_dot": "run the step without capturing it",
    "export_graph_data": "run the step without capturing it",
}
STORAGES = ("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat", "Double", "Float", "Half", "Int")
NOT_SIMULATED |= {f"{kind}Storage": "use a tensor" for kind in (*STORAGES, "Long", "Short")}
# the same in other modules
COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "unique_id")
COPIES = ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather")
MODULES = {
    "torch.nn.parallel.comm": (COPIES, "use .to()"),
    "torch.cuda.jiterator": (("_create_jit_fn", "_create_multi_output_jit_fn"), "write it with torch's operators"),
    "torch.cuda.gds": (("GdsFile", "gds_register_buffer", "gds_deregister_buffer"), "use torch.load"),
    "torch.cuda.nccl": (COLLECTIVES, "use torch.distributed"),
}
ZERO_FIGURES: tuple[str, ...] = (
    "utilization",
    "temperature",
    "power_draw",
    "clock_rate",
    "memory_usage",
    "device_memory_used",
)
ZERO_FIGURES += ("memory_cached", "max_memory_cached")
EMPTY_FIGURES = ("memory_stats_as_nested_dict", "host_memory_stats", "host_memory_stats_as_nested_dict")
RESETS: tuple[str, ...] = (
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
)
RESETS += ("reset_max_memory_cached", "reset_peak_host_memory_stats")


def rest_stand_ins(simulation: Simulation) -> Iterator[tuple[Any, str, Any]]:
    """What to replace: owner, attribute and stand-in."""
    answers = _figures(simulation) | _settings(simulation)
    yield from _everywhere(answers)
    for name, advice in NOT_SIMULATED.items():
        if hasattr(torch.cuda, name):
            yield from _everywhere({name: _refusal(f"torch.cuda.{name}", advice, getattr(torch.cuda, name))})
    yield from _refused_elsewhere()
    yield from _nvtx()
    yield from _each(torch.cuda.profiler, {"start": lambda: None, "stop": lambda: None, "init": lambda *args: None})
    yield from _each(torch.cuda.nccl, {"version": lambda: (2, 27, 3), "is_available": lambda tensors: True})
    yield torch.backends.cudnn, "is_available", lambda: True
    yield torch.backends.cudnn, "version", lambda: 91002
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.Tensor, "record_stream", lambda tensor, stream: None


def _figures(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    def answering(value: Any) -> Callable[..., Any]:
        def call(device: Any = None, *args: Any, **kwargs: Any) -> Any:
            simulation.index_of(device)
            return value

        return call

    figures: dict[str, Any] = {**dict.fromkeys(ZERO_FIGURES, 0), **dict.fromkeys(RESETS)}
    figures |= {name: {} for name in EMPTY_FIGURES}
    figures |= {"memory_summary": "simulated device: no memory is used", "list_gpu_processes": "no processes"}
    return {name: answering(value) for name, value in figures.items()}


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


def _refused_elsewhere() -> Iterator[tuple[Any, str, Any]]:
    for module, (names, advice) in MODULES.items():
        owner = sys.modules.get(module)
        for name in names:
            if hasattr(owner, name):
                yield owner, name, _refusal(f"{module}.{name}", advice, getattr(owner, name))


def _refusal(name: str, advice: str, original: Any) -> Any:
    """A stand-in for a function or a class that says what is not there."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name} is not simulated: {advice}.")

    if isinstance(original, type):
        return type(original.__name__, (), {"__new__": refuse})
    return functools.wraps(original)(refuse)


def _nvtx() -> Iterator[tuple[Any, str, Any]]:
    @contextmanager
    def span(message: str, *args: Any, **kwargs: Any) -> Iterator[None]:
        yield

    marks = {
        name: lambda *args, **kwargs: 0 for name in ("range_push", "range_pop", "range_start", "range_end", "mark")
    }
    yield from _each(torch.cuda.nvtx, {**marks, "range": span})


def _each(owner: ModuleType, answers: dict[str, Any]) -> Iterable[tuple[Any, str, Any]]:
    return [(owner, name, value) for name, value in answers.items() if hasattr(owner, name)]


def _everywhere(answers: dict[str, Any]) -> Iterator[tuple[Any, str, Any]]:
    """``torch.cuda`` and its modules by subject, which offer the same functions."""
    for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        yield from _each(owner, answers)
