"""Running sums that stay exact: float64, or two float32 on a device without it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_devcheck._metric._weights import best_dtype

FLOAT64 = torch.float64  # found faster on every step
# what a step like the one before needs: its one, its part of the sums, the weights, how they weigh, the sums, the names
Usual = tuple[Tensor, Tensor, Tensor, Callable[[Tensor, Tensor], Tensor], Tensor, tuple[str, ...]]


def add_sums(sums: Tensor, values: Tensor, factor: float, compiling: bool) -> None:
    """Add ``factor * values`` in place; a factor of 0 adds nothing, also where a value is NaN or infinite.

    Args:
        sums: ``[1, M]`` float64, or ``[2, M]`` float32: the sums and what was rounded away.
        values: ``[M]``, of any floating-point type, on the same device.
        factor: A Python number.
        compiling: Whether compiled code is made, where a branch on the factor would be compiled anew.
    """
    if not compiling and not factor:
        return
    if not compiling and sums.dtype is FLOAT64:
        sums.add_(values, alpha=factor)
        return
    values = values.to(sums.dtype) * factor
    if compiling:
        counted = torch.full((), factor, dtype=sums.dtype, device=sums.device) > 0
        values = torch.where(counted, values, 0.0)
    if sums.dtype is FLOAT64:
        sums.add_(values)
        return
    high, low = sums
    total = high + values
    seen = total - high
    lost = (high - (total - seen)) + (values - seen)  # Knuth's two-sum
    low.add_(torch.where(total.isfinite(), lost, 0.0))
    high.copy_(total)


def convert_sums(sums: Tensor, device: torch.device) -> Tensor:
    """The sums on a device, in the most precise form it has.

    Args:
        sums: What `add_sums` takes; from ``meta``, where nothing was ever summed, zeros come.
        device: Where to.
    """
    dtype = best_dtype(device)
    if sums.is_meta and device.type != "meta":
        zeros = torch.zeros(1, sums.shape[1], dtype=torch.float64, device="cpu")
        return convert_sums(zeros, device)
    if sums.dtype != torch.float64 and dtype == torch.float64:
        return sums.to("cpu", torch.float64).sum(0, keepdim=True).to(device)
    if sums.dtype == torch.float64 and dtype == torch.float32:
        high = sums.float()
        return torch.cat([high, (sums - high).float()]).to(device)
    return sums.to(device)
