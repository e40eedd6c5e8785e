"""What SyncBatchNorm is made of: torch has these operators for CUDA only, so here are their formulas."""

from __future__ import annotations

import torch

Statistics = tuple[torch.Tensor, torch.Tensor]


def _dims(tensor: torch.Tensor) -> list[int]:
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _wide(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """One number per channel, shaped to join a batch."""
    return values.view(1, -1, *[1] * (like.dim() - 2))


def batch_norm_stats(input: torch.Tensor, eps: float) -> Statistics:
    """Mean and inverse standard deviation of each channel."""
    exact = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    return exact.mean(_dims(exact)), (exact.var(_dims(exact), unbiased=False) + eps).rsqrt()


def batch_norm_gather_stats_with_counts(
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> Statistics:
    """Those of all processes together; the running ones are brought up to date."""
    shares, total = counts[:, None], counts.sum()
    middle = (mean * shares).sum(0) / total
    variance = ((invstd.pow(-2) - eps + (mean - middle).square()) * shares).sum(0) / total
    if running_mean is not None and running_var is not None:
        running_mean.mul_(1 - momentum).add_(middle, alpha=momentum)
        running_var.mul_(1 - momentum).add_(variance * total / (total - 1), alpha=momentum)
    return middle, (variance + eps).rsqrt()


def batch_norm_elemt(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """The normalised batch."""
    out = (input - _wide(mean, input)) * _wide(invstd, input)
    out = out if weight is None else out * _wide(weight, input)
    return (out if bias is None else out + _wide(bias, input)).to(input.dtype)


def batch_norm_backward_reduce(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sums over this process's batch: of the gradient, and of it times the deviation; then weight's and bias's."""
    dims = _dims(input)
    total = grad_out.to(mean.dtype).sum(dims)
    weighted = (grad_out * (input - _wide(mean, input))).sum(dims)
    return total, weighted, weighted * invstd, total.clone()


def batch_norm_backward_elemt(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    sum_dy: torch.Tensor,
    sum_dy_xmu: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    """The batch's gradient, from the sums over all processes."""
    total = count.sum()
    deviation = (input - _wide(mean, input)) * _wide(invstd.square() * sum_dy_xmu / total, input)
    scale = invstd if weight is None else invstd * weight
    return ((grad_out - _wide(sum_dy / total, input) - deviation) * _wide(scale, input)).to(input.dtype)
