"""``torch.load`` with a ``map_location`` that names a simulated device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lightning_devcheck._simulate.arguments import alike
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import Simulation, cuda_device
from lightning_devcheck._simulate.tensor.simulated import move


def load_stand_ins(simulation: Simulation) -> Iterable[Change]:
    """What to replace: owner, attribute and stand-in."""
    yield torch, "load", _loader(torch.load, simulation)


def _loader(original: Callable[..., Any], simulation: Simulation) -> Callable[..., Any]:
    """Load to the CPU, then move what the file holds."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: object, **kwargs: object) -> Any:
        if isinstance(map_location, dict):
            return _placed(original(f, None, *args, **kwargs), lambda tensor: _mapped(tensor, map_location))
        if not isinstance(map_location, (str, torch.device)):
            return original(f, map_location, *args, **kwargs)
        device = torch.device(map_location)
        if cuda_device(device) is not None:
            device = torch.device("cuda", simulation.index_of(device))
        elif device.type != "cpu":
            return original(f, map_location, *args, **kwargs)
        return _placed(original(f, "cpu", *args, **kwargs), lambda tensor: _on(tensor, device))

    return load


def _mapped(tensor: torch.Tensor, places: dict[Any, Any]) -> torch.Tensor:
    place = places.get(str(tensor.device), places.get(tensor.device))
    return tensor if place is None else _on(tensor, torch.device(place))


def _on(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor as a leaf on the device; a parameter stays one."""
    if tensor.device == device:
        return tensor
    moved = move(tensor.detach(), (device,), {})
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(moved, tensor.requires_grad)
    return moved.requires_grad_(tensor.requires_grad)


def _placed(value: Any, put: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What a checkpoint holds, in the same containers, with each tensor put in its place."""
    if isinstance(value, torch.Tensor):
        return put(value)
    if isinstance(value, torch.nn.Module):
        return value._apply(put)
    if isinstance(value, dict):
        for key in list(value):
            value[key] = _placed(value[key], put)
    elif isinstance(value, list):
        value[:] = [_placed(item, put) for item in value]
    elif type(value) is tuple or hasattr(value, "_make"):
        return alike(value, [_placed(item, put) for item in value])
    return value
