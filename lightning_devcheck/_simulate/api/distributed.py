"""Stand-ins for ``torch.distributed`` for the time of a simulation: NCCL is spoken over gloo."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from lightning_devcheck._simulate.arguments import Args, Function, tensors_in
from lightning_devcheck._simulate.compat import end_openmp_threads, keep_one_thread
from lightning_devcheck._simulate.gradients import at_home
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import device_at, running
from lightning_devcheck._simulate.tensor.refusing import refuse
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor, index_of

COLLECTIVES = ["all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter"]
COLLECTIVES += ["reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single"]
COLLECTIVES += ["send", "recv", "isend", "irecv"]
# a rank that waits longer for the others waits for one that has failed or taken another way
LONGEST = timedelta(minutes=5)


def distributed_stand_ins() -> Iterator[Change]:
    """What to replace: owner, attribute and stand-in."""
    yield from start_stand_ins(_forked)
    if not dist.is_available():
        return
    nccl_groups: set[str] = set()
    starters = {
        "init_process_group": _starter(dist.init_process_group, nccl_groups),
        "new_group": _group_maker(dist.new_group, nccl_groups),
        "get_backend": _backend(dist.get_backend, nccl_groups),
        "is_nccl_available": lambda: True,
    }
    for name, stand_in in starters.items():
        yield dist, name, stand_in
        yield dist.distributed_c10d, name, stand_in
    # only under the public name: torch's own object collectives hand CPU tensors to gloo, and may
    for name in COLLECTIVES:
        yield dist, name, _collective(getattr(dist, name), nccl_groups)
    yield DistributedDataParallel, "__init__", _wrapping(DistributedDataParallel.__init__, nccl_groups)


def start_stand_ins(change: Callable[[Function], Function]) -> Iterator[Change]:
    """Replace ``start_processes`` under both its names.

    Args:
        change: Makes the stand-in of what stands there.
    """
    start_processes = change(mp.start_processes)
    yield mp, "start_processes", start_processes
    # the module, which the function of the same name hides: `torch.multiprocessing.spawn` calls its own
    yield sys.modules[start_processes.__module__], "start_processes", start_processes


def _forked(original: Function) -> Function:
    """``start_processes`` that forks, also where it would spawn: what is simulated here is simulated there."""

    @functools.wraps(original)
    def start_processes(fn: Function, args: Args = (), *rest: object, **kwargs: Any) -> Any:
        # OpenMP's threads do not survive a fork: a parallel region of a rank would wait for them for ever
        may_thread = end_openmp_threads()
        return original(_start_rank, (may_thread, fn, *args), *rest, **{**kwargs, "start_method": "fork"})

    return start_processes


def _start_rank(index: int, may_thread: bool, fn: Function, *args: object) -> None:
    """Run a rank with one thread, and more only if it asks for them where the pool is a new one."""
    torch.set_num_threads(1)
    if not may_thread:
        keep_one_thread()
    # torch takes one call in a process, and the parent's counts here
    torch.set_num_interop_threads = _ignored  # type: ignore[assignment]
    fn(index, *args)


def _ignored(count: int) -> None:
    """Leave the number of threads as it is."""


def _starter(original: Function, nccl_groups: set[str]) -> Function:
    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: object, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        kwargs["timeout"] = min(kwargs.get("timeout") or LONGEST, LONGEST)
        wants_nccl = backend is None or "nccl" in str(backend)
        result = original("gloo" if wants_nccl else backend, *args, **kwargs)
        if wants_nccl:
            nccl_groups.add(_name(None))
        return result

    return init_process_group


def _group_maker(original: Function, nccl_groups: set[str]) -> Function:
    @functools.wraps(original)
    def new_group(
        ranks: Any = None, timeout: Any = None, backend: str | None = None, *args: object, **kwargs: Any
    ) -> Any:
        kwargs.pop("device_id", None)
        wants_nccl = "nccl" in str(backend) if backend else _name(None) in nccl_groups
        group = original(ranks, timeout, "gloo" if wants_nccl else backend, *args, **kwargs)
        if wants_nccl and group is not dist.GroupMember.NON_GROUP_MEMBER:
            nccl_groups.add(_name(group))
        return group

    return new_group


def _backend(original: Function, nccl_groups: set[str]) -> Function:
    """The backend that was asked for."""

    @functools.wraps(original)
    def get_backend(group: dist.ProcessGroup | None = None) -> Any:
        backend = original(group)
        return "nccl" if _name(group) in nccl_groups else backend

    return get_backend


def _name(group: dist.ProcessGroup | None) -> str:
    named: Any = dist.group.WORLD if group is None else group
    return str(named.group_name)


def _collective(original: Function, nccl_groups: set[str]) -> Function:
    """Refuse a CPU tensor where NCCL would; gloo takes it, so that each rank has as many collectives as the others."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        groups = [value for value in args if isinstance(value, dist.ProcessGroup)]
        group = next(iter(groups), kwargs.get("group"))
        if _speaks_nccl(group, nccl_groups):
            tensors = list(tensors_in(*args, *kwargs.values()))
            strays = [tensor for tensor in tensors if not isinstance(tensor, SimulatedTensor)]
            if strays:
                refuse(_no_backend(original, strays[0]), strays, running().current)
            if original.__name__ == "all_reduce":
                return _averaged(original, *args, **kwargs)
        return original(*args, **kwargs)

    return call


def _speaks_nccl(group: Any, nccl_groups: set[str]) -> bool:
    return bool(nccl_groups) and dist.is_initialized() and _name(group) in nccl_groups


def _no_backend(func: Any, tensor: torch.Tensor) -> RuntimeError:
    error = RuntimeError(f"No backend type associated with device type {tensor.device.type}")
    vars(error).update(func=func, devices=(tensor.device,), argument=None)
    return error


def _wrapping(original: Function, nccl_groups: set[str]) -> Function:
    """``DistributedDataParallel(module)``, whose parameters are in place before it makes buckets of them."""

    @functools.wraps(original)
    def init(self: Any, module: Any, device_ids: Any = None, *args: Any, **kwargs: Any) -> None:
        ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        parameters = [parameter for name, parameter in module.named_parameters() if name not in ignored]
        _check_parameters(parameters, device_ids, _speaks_nccl(kwargs.get("process_group"), nccl_groups))
        original(self, module, device_ids, *args, **kwargs)
        if running().note is not None:
            for parameter in parameters:
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(_bring_home)

    return init


def _check_parameters(parameters: list[torch.nn.Parameter], device_ids: Any, nccl: bool) -> None:
    """Refuse parameters that ``DistributedDataParallel`` does not take, or put them where they belong.

    They stay the objects that they are: an optimizer made before holds them.
    """
    devices = {parameter.device for parameter in parameters}
    types = {device.type for device in devices}
    error: Exception | None = None
    if len(types) > 1:
        error = ValueError(
            "DistributedDataParallel's input module must be on the same type of devices, but input module parameters "
            f"locate in {types}."
        )
    elif device_ids and (len(devices) > 1 or types == {"cpu"}):
        error = ValueError(
            "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-"
            f"device GPU modules or CPU modules, but got device_ids {device_ids}, output_device None, and module "
            f"parameters {devices}."
        )
    elif nccl and types == {"cpu"}:
        error = _no_backend("DistributedDataParallel", parameters[0])
    if error is None:
        return
    home = running().index_of(device_ids[0] if device_ids else None)
    strays = [parameter for parameter in parameters if not parameter.is_cuda]
    if device_ids:
        strays = [parameter for parameter in parameters if index_of(parameter) != home]
    refuse(error, strays, home)
    for parameter in strays:
        parameter.data = parameter.data.to(device_at(home))


def _bring_home(parameter: torch.Tensor) -> None:
    """Put a gradient on its parameter's device, before it is copied into a bucket."""
    if parameter.grad is not None:
        parameter.grad = at_home(parameter.grad, parameter)


def _averaged(original: Function, tensor: torch.Tensor, op: Any = None, *rest: object, **kwargs: Any) -> Any:
    """NCCL's mean, which gloo lacks for whole numbers: the sum, divided."""
    if op != dist.ReduceOp.AVG:
        return original(tensor, dist.ReduceOp.SUM if op is None else op, *rest, **kwargs)
    work = original(tensor, dist.ReduceOp.SUM, *rest, **kwargs)
    if work is not None:
        work.wait()
    with torch.no_grad():
        tensor.copy_(tensor / dist.get_world_size(kwargs.get("group")))
    return work
