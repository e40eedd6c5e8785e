"""Devices: one spelling for each, and which device a tensor is really on."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from operator import attrgetter

import torch


def normalize(device: torch.device | str | int) -> torch.device:
    """Give a device its one spelling: ``cuda`` is ``cuda:<current>``, ``cpu:0`` is ``cpu``."""
    device = torch.device(device)
    if device.type in ("cpu", "meta"):
        return torch.device(device.type)
    if device.index is None:
        index = 0
        if device.type == "cuda" and torch.cuda.is_available():
            index = torch.cuda.current_device()
        return torch.device(device.type, index)
    return device


# a tensor's device has its index already, so its one spelling never changes
_spelled = functools.lru_cache(maxsize=64)(normalize)
OF_TORCH = {torch.Tensor, torch.nn.Parameter}
# packages whose tensor classes say themselves where they are
TRUSTED = ("torch.", "lightning_devcheck.")


def device_of(tensor: torch.Tensor) -> torch.device:
    """Where a tensor's values are; for a `DTensor`, where this process's shard is."""
    kind = type(tensor)
    if kind in OF_TORCH:
        return _spelled(tensor.device)
    module = type.__getattribute__(kind, "__module__")
    if not str(module).startswith(TRUSTED):
        # the user's class may answer anything, or run anything
        return _spelled(torch.Tensor.device.__get__(tensor))
    local = getattr(tensor, "_local_tensor", None)
    if local is not None:
        return _spelled(local.device)
    return _spelled(tensor.device)


def devices_of(tensors: Collection[torch.Tensor]) -> set[torch.device]:
    """Where many tensors are, in half the time of `device_of` for each."""
    if set(map(type, tensors)) <= OF_TORCH:
        devices = set(map(attrgetter("device"), tensors))
        return set(map(_spelled, devices))
    return set(map(device_of, tensors))


def is_sibling(device: object, others: Iterable[torch.device | None]) -> bool:
    """Whether a device is of the kind of another one but of another index: another process's."""
    if not isinstance(device, torch.device):
        return False
    alike = [other for other in others if other is not None and other.type == device.type]
    return any(other.index != device.index for other in alike)


def spell_devices(devices: Iterable[torch.device]) -> str:
    """Write devices as text, ``cuda:0 or cuda:1``."""
    return " or ".join(sorted(map(str, devices)))


def to_device(text: str) -> torch.device | None:
    """A device by its name; None for a kind that this torch does not know."""
    try:
        return normalize(text)
    except RuntimeError:
        return None
