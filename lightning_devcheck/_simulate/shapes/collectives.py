"""Collectives in a simulation without values."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._simulate.arguments import Args, Kwargs, map_nested, tensors_in
from lightning_devcheck._simulate.compat import box_work, unbox_work
from lightning_devcheck._simulate.ops.plan import Plan


def communicate(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    """Run a collective on one number per tensor, so that processes wait for each other."""
    sizes = [1] * len(args)
    for position in plan.row.get("whole", ()):
        sizes[position] = dist.get_world_size()
    small = map(_small, args, sizes)
    out = plan.operator(*small, **kwargs)
    if not isinstance(out, tuple):
        return out
    *results, work = out
    unbox_work(work).wait()
    future = torch.futures.Future[list[torch.Tensor]]()
    reduced = tensors_in(*args[:1])  # what DDP copies into the gradients
    future.set_result(list(reduced))
    return (*args[: len(results)], box_work(future))


def _small(value: Any, size: int) -> Any:
    def shrink(item: object) -> object:
        if isinstance(item, torch.Tensor):
            return torch.zeros(size, dtype=item.dtype)
        return item

    return map_nested(value, shrink)
