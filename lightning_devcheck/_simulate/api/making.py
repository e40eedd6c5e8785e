"""``torch.tensor``, ``as_tensor`` and ``asarray``: torch drops what they are given where the device is ``meta``."""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

import torch

from lightning_devcheck._simulate.arguments import Args, Function, Kwargs
from lightning_devcheck._simulate.compat import WithoutFunctions, default_below, is_wrapped, unwrapped
from lightning_devcheck._simulate.state import Placement, cuda_device, running
from lightning_devcheck._simulate.tensor.places import decide_here
from lightning_devcheck._simulate.tensor.simulated import (
    CPU,
    META,
    SimulatedTensor,
    index_below,
    move,
    place,
)

# how each names its first argument
MAKERS: dict[Any, str] = {torch.tensor: "data", torch.as_tensor: "data", torch.asarray: "obj"}
NEW = (list, tuple, int, float, complex)  # torch always makes a new tensor of these
NESTED = (SimulatedTensor, list, tuple, deque)


def make(func: Function, args: Args, kwargs: Kwargs) -> Any:
    """Call one of `MAKERS`.

    Args:
        func: The original function.
        args: What it is given.
        kwargs: Likewise.
    """
    device = _device_of(kwargs.pop("device", None))
    kwargs.pop("pin_memory", None)
    if not args and MAKERS[func] in kwargs:
        args = (kwargs.pop(MAKERS[func]),)
    if args and isinstance(args[0], torch.Tensor):
        return _of_tensor(func, args[0], device, kwargs)
    if device == META:
        with running().aiming(Placement.NO_DATA):
            return func(*args, device=device, **kwargs)
    plain = func(*map(plain_data, args), device=device and CPU, **kwargs)
    return plain if device is None or device == CPU else _copied(func, plain, device, args[0], kwargs)


def maker(func: Function) -> Function:
    """One of `MAKERS` for Python code inside torch, where function modes are off."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        if named_device(kwargs.get("device")) is None:
            return func(*args, **kwargs)
        return make(func, args, kwargs)

    return call


def named_device(value: object) -> torch.device | None:
    """The CUDA device that an argument ``device`` names, which may be a number, or None."""
    if type(value) is int:
        return torch.device("cuda", value)
    return cuda_device(value)


def _device_of(named: Any) -> torch.device | None:
    """The device of a result; None for what torch takes by itself."""
    wanted = default_below() if named is None else named
    if wanted is None:
        return None
    device = torch.device("cuda", wanted) if type(wanted) is int else torch.device(wanted)
    return torch.device("cuda", running().index_of(device)) if device.type == "cuda" else device


def _of_tensor(func: Function, tensor: torch.Tensor, device: torch.device | None, kwargs: Kwargs) -> Any:
    """Of a tensor: all but ``torch.tensor`` keep its graph, and give the tensor itself where nothing changes."""
    index = index_below(tensor)
    if index is None and (device is None or device == CPU):
        return func(tensor, device=device, **kwargs)
    source = unwrapped(tensor).device
    if device is not None and device != source:
        _refuse_alias(kwargs, source, device)
        tensor = move(tensor.detach() if func is torch.tensor else tensor, (device,), {})
        index = index_below(tensor)
    is_meta = index is None and tensor.is_meta
    with WithoutFunctions(), running().aiming(Placement.NO_DATA if is_meta else index):
        return func(tensor, **kwargs)


def _copied(func: Function, plain: torch.Tensor, device: torch.device, data: object, kwargs: Kwargs) -> torch.Tensor:
    """A new tensor on a simulated device; what ``as_tensor`` and ``asarray`` make of an array shares its memory."""
    _refuse_alias(kwargs, CPU, device)
    values = plain.detach() if func is torch.tensor or isinstance(data, NEW) else plain.detach().clone()
    # a transform of `torch.func` wraps what is made inside it
    made = move(values, (device,), {}) if is_wrapped(values) else place(values, running().index_of(device))
    decide_here(made)
    return made.requires_grad_() if plain.requires_grad else made


def _refuse_alias(kwargs: Kwargs, source: torch.device, target: torch.device) -> None:
    if kwargs.get("copy") is False:
        raise ValueError(f"can't alias tensor from device '{source}' to '{target}'.")


def plain_data(data: Any) -> Any:
    """Data with the device tensors in it on the CPU: they are read, as CUDA does."""
    if isinstance(data, SimulatedTensor):
        return data._inner.detach()
    if isinstance(data, (list, tuple, deque)):
        return [plain_data(item) if isinstance(item, NESTED) else item for item in data]
    return data
