"""torch's own operator samples, run plainly and on a simulated device."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

Call = Callable[[Any], Any]


def operators() -> list[Any]:
    """Every operator of ``op_db`` that runs on CPU in float32 or, failing that, another type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


def dtype_of(operator: Any) -> torch.dtype | None:
    """The type that an operator is tried with: float32 where it takes it."""
    supported = operator.supported_dtypes("cpu")
    wanted = (torch.float32, torch.int64, torch.bool, torch.complex64)
    return next((dtype for dtype in wanted if dtype in supported), None)


def samples(operator: Any, limit: int, requires_grad: bool = False) -> Iterator[Any]:
    """The first samples of an operator."""
    dtype = dtype_of(operator)
    if dtype is None:
        return
    wants = requires_grad and operator.supports_autograd and dtype.is_floating_point
    torch.manual_seed(0)
    yield from itertools.islice(operator.sample_inputs("cpu", dtype, requires_grad=wants), limit)


def run(operator: Any, sample: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """Results and input gradients, with each input tensor moved first; random numbers start from one seed.

    The inputs are detached copies, so every run starts from the same.
    """
    given = (sample.input, sample.args, sample.kwargs)
    flat, spec = tree_flatten(given)
    leaves = [move(v.detach().clone()).requires_grad_(v.requires_grad) if is_tensor(v) else v for v in flat]
    first, args, kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
    torch.manual_seed(1)
    out = operator.op(first, *args, **kwargs)
    results = [value for value in tree_leaves(out) if is_tensor(value)]
    return results, _gradients(results, [v for v in leaves if is_tensor(v) and v.requires_grad])


def _gradients(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[Any]:
    wanted = [r for r in results if r.requires_grad]
    if not wanted or not inputs:
        return []
    total = sum((r.abs() if r.is_complex() else r).sum() for r in wanted if r.layout is torch.strided)
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return []
    return list(torch.autograd.grad(total, inputs, allow_unused=True))


def is_tensor(value: Any) -> bool:
    """Whether something is a tensor."""
    return isinstance(value, torch.Tensor)


def plain(values: list[Any]) -> list[Any]:
    """Detached CPU copies."""
    return tree_map(lambda v: v.detach().cpu() if is_tensor(v) else v, values)
