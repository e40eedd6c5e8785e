"""Collectives in a simulation without values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._simulate._compat import box_work, unbox_work
from lightning_devcheck._simulate._placing import tensors_of

# tensors that hold a part for each process; the others of these operators hold one part
WHOLE = {"c10d::_allgather_base_": (0,), "c10d::_reduce_scatter_base_": (1,), "c10d::alltoall_base_": (0, 1)}


def communicate(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a collective on one number per tensor, so that processes wait for each other as they would."""
    whole = WHOLE.get(func._schema.name, ())
    small = [_small(value, dist.get_world_size() if i in whole else 1) for i, value in enumerate(args)]
    out = func(*small, **kwargs)
    if not isinstance(out, tuple):
        return out
    unbox_work(out[-1]).wait()
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(list(tensors_of(args[:1])))  # what DDP copies into the gradients
    return (*args[: len(out) - 1], box_work(future))


def _small(value: Any, size: int) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros(size, dtype=value.dtype)
    return [_small(item, size) for item in value] if isinstance(value, (list, tuple)) else value
