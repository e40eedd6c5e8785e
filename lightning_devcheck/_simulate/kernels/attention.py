"""Formulas that torch picks by the device it sees in C++: the CPU's, so that values are the CPU's."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend

from lightning_devcheck._simulate.compat import (
    composing_key,
    eigendecomposition,
    fused_attention,
    run_composed,
    sdp_choice,
    singular_decomposition,
    unwrapped,
)
from lightning_devcheck._simulate.going_on import brought_together
from lightning_devcheck._simulate.ops.placement import mismatch
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor, index_below

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
FUSED: int = SDPBackend.FLASH_ATTENTION.value


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute attention by the CPU's fused kernel where the CPU takes it."""
    options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
    query, key, value, attn_mask = _checked(query, key, value, attn_mask)
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    if not _is_simulated(query) or sdp_choice(*given, **options) != FUSED:
        return run_composed(ATTENTION, composing_key(ATTENTION), given, options)
    mask = _additive(attn_mask, query)
    batch = [query, key, value]
    has_batch = query.dim() == 4
    if not has_batch:  # torch 2.14 hands the kernel what has three dimensions as a batch of one
        batch = [tensor.unsqueeze(0) for tensor in batch]
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(0)
    out = fused_attention(*batch, dropout_p, is_causal, attn_mask=mask, scale=scale)[0]
    return out if has_batch else out.squeeze(0)


def singular_values(tensor: torch.Tensor, *, driver: str | None = None) -> torch.Tensor:
    """Compute singular values without the vectors, which torch computes for tensor subclasses in any case."""
    _, values, _ = singular_decomposition(tensor, False, _differentiated(tensor), driver=driver)
    return values  # type: ignore[no-any-return]


def eigenvalues(tensor: torch.Tensor, UPLO: str = "L") -> torch.Tensor:  # noqa: N803  the schema's name
    """Compute eigenvalues without the vectors, likewise."""
    values, _ = eigendecomposition(tensor, UPLO, _differentiated(tensor))
    return values  # type: ignore[no-any-return]


def _differentiated(tensor: torch.Tensor) -> bool:
    """Say whether a gradient will want the vectors: always in a transform of `torch.func`, whose wrapper hides it."""
    if not isinstance(tensor, SimulatedTensor) or forward_ad.unpack_dual(tensor).tangent is not None:
        return True
    return torch.is_grad_enabled() and tensor.requires_grad


def _checked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Refuse tensors on several devices: torch's own message says `meta`, and its parts round in another way."""
    devices = [unwrapped(tensor).device for tensor in (query, key, value)]
    error = RuntimeError(
        "Expected query, key, and value to have the same device type, but got query.device: "
        f"{devices[0]} key.device: {devices[1]} and value.device: {devices[2]} instead."
    )
    operands = [query, key, value]
    if mask is not None:
        operands.append(mask)
        if len(set(devices)) == 1:
            error = mismatch(ATTENTION, (devices[0], unwrapped(mask).device))
    if len({index_below(tensor) for tensor in operands}) == 1:
        return query, key, value, mask
    query, key, value, *masks = brought_together(error, operands)
    return query, key, value, next(iter(masks), None)


def _is_simulated(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, SimulatedTensor)


def _additive(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """Make numbers to add of a boolean mask, as torch does before the kernel."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    zeros = torch.zeros_like(mask, dtype=query.dtype)
    return zeros.masked_fill_(mask.logical_not(), float("-inf"))
