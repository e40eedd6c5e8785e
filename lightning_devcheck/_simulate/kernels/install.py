"""Kernels that torch is given for the time of a simulation, and that are taken out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lightning_devcheck._simulate.compat import AUTOGRAD_KEY, scoped_library
from lightning_devcheck._simulate.kernels.attention import attention, eigenvalues, singular_values
from lightning_devcheck._simulate.kernels.batch_norm import (
    batch_norm_backward_elemt,
    batch_norm_backward_reduce,
    batch_norm_elemt,
    batch_norm_gather_stats_with_counts,
    batch_norm_stats,
)
from lightning_devcheck._simulate.ops.table import TABLE, Kernel

ANY_DEVICE = "CompositeExplicitAutograd"
# what runs, and below which dispatch key torch finds it
KERNELS: dict[Kernel, tuple[Callable[..., Any], str]] = {}
KERNELS["whole"] = torch.library.fallthrough_kernel, AUTOGRAD_KEY
KERNELS["attention"] = attention, AUTOGRAD_KEY
KERNELS["singular values"] = singular_values, AUTOGRAD_KEY
KERNELS["eigenvalues"] = eigenvalues, AUTOGRAD_KEY
KERNELS["statistics"] = batch_norm_stats, ANY_DEVICE
KERNELS["joined statistics"] = batch_norm_gather_stats_with_counts, ANY_DEVICE
KERNELS["normalised"] = batch_norm_elemt, ANY_DEVICE
KERNELS["gradient sums"] = batch_norm_backward_reduce, ANY_DEVICE
KERNELS["input gradient"] = batch_norm_backward_elemt, ANY_DEVICE


@contextmanager
def kernels() -> Iterator[None]:
    """Put the kernels in torch's place, and take them out again."""
    with scoped_library() as library:
        for name, row in TABLE.items():
            if "kernel" in row:
                kernel, key = KERNELS[row["kernel"]]
                library.impl(name.removeprefix("aten::"), kernel, key)
        yield
