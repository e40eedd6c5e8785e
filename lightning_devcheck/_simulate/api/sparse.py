"""Sparse tensors made of their parts: torch makes tensors of lists, and drops the data where the device is ``meta``."""

from __future__ import annotations

from typing import Any

import torch

from lightning_devcheck._simulate.api.making import make, named_device
from lightning_devcheck._simulate.arguments import Args, Function, Kwargs
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor, move

# what makes a sparse tensor, and of which parts
PARTS: dict[Any, tuple[str, ...]] = {
    torch.sparse_coo_tensor: ("indices", "values"),
    torch.sparse_csr_tensor: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr_tensor: ("crow_indices", "col_indices", "values"),
    torch.sparse_compressed_tensor: ("compressed_indices", "plain_indices", "values"),
}


def placed_parts(func: Function, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments with every part on the simulated device that is meant; as they are where none is.

    Args:
        func: What makes the sparse tensor.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    names = PARTS[func]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    device = _meant(given.get("device"), given.get("values"))
    if device is None or given.get("values") is None:
        return args, kwargs
    parts = [_part(given[name], device, name) for name in names]
    rest = {name: value for name, value in kwargs.items() if name not in (*names, "device")}
    return [*parts, *args[len(names) :]], rest


def _meant(named: object, values: object) -> torch.device | None:
    """The simulated device that is named, else that of the values."""
    if named is None and isinstance(values, SimulatedTensor):
        return values.device
    return named_device(named)


def _part(data: Any, device: torch.device, name: str) -> Any:
    if isinstance(data, torch.Tensor):
        return move(data, (device,), {})
    whole = name != "values" and isinstance(data, (list, tuple))  # also where it is empty
    return make(torch.tensor, [data], {"device": device, "dtype": torch.long if whole else None})
