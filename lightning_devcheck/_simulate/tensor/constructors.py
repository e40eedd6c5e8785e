"""Tensors as torch's old constructors make them, which are called with sizes or with data."""

from __future__ import annotations

from typing import Any

import torch

Device = torch.device | str | int


def construct(dtype: torch.dtype, device: Device, args: tuple[Any, ...]) -> torch.Tensor:
    """Make a tensor as they do: of sizes, of data, of another tensor, or of sparse parts."""
    if isinstance(device, int):
        device = torch.device("cuda", device)
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    if not args:
        return torch.empty(0, **options)
    first = args[0]
    if isinstance(first, int):
        return torch.empty(args, **options)
    if isinstance(first, torch.Size):
        return torch.empty(first, **options)
    if isinstance(first, torch.Tensor) and len(args) > 1:
        return torch.sparse_coo_tensor(*args, **options)
    made = torch.as_tensor(first, **options)
    if made is first:  # the old constructors always make a tensor of their own
        made = torch.ops.aten.alias(first)
    return made
