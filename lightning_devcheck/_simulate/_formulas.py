"""Formulas that torch picks by the device it sees in C++, ``meta`` here: the CPU's, so that values are the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend

from lightning_devcheck._simulate._compat import (
    AUTOGRAD_KEY,
    composing_key,
    eigh,
    fused_attention,
    run_composed,
    scoped_library,
    sdp_choice,
    svd,
)
from lightning_devcheck._simulate._tensor import SimulatedTensor

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
# composed of others for every device but CPU and CUDA, with other rounding: let it through to our mode as it is
WHOLE = ("mish_backward",)


@contextmanager
def formulas() -> Iterator[None]:
    """Put the CPU's formulas in torch's place, and take them out again."""
    with scoped_library() as library:
        for name in WHOLE:
            library.impl(name, torch.library.fallthrough_kernel, AUTOGRAD_KEY)
        library.impl("scaled_dot_product_attention", _attention, AUTOGRAD_KEY)
        library.impl("linalg_svdvals", _svdvals, AUTOGRAD_KEY)
        library.impl("linalg_eigvalsh", _eigvalsh, AUTOGRAD_KEY)
        yield


def _attention(
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
    """Attention by the CPU's fused kernel where the CPU takes it."""
    options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    if _together(query, key, value, attn_mask) and sdp_choice(*given, **options) == FUSED:
        return _fused((query, key, value), _additive(attn_mask, query), dropout_p, is_causal, scale)
    return run_composed(ATTENTION, composing_key(ATTENTION), given, options)


def _fused(
    given: tuple[torch.Tensor, ...], mask: torch.Tensor | None, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    """The fused kernel, which takes batches; torch 2.14 hands it what has three dimensions as a batch of one."""
    if given[0].dim() == 4:
        return fused_attention(*given, dropout_p, is_causal, attn_mask=mask, scale=scale)[0]
    one = mask.unsqueeze(0) if mask is not None and mask.dim() == 3 else mask
    batch = [tensor.unsqueeze(0) for tensor in given]
    return fused_attention(*batch, dropout_p, is_causal, attn_mask=one, scale=scale)[0].squeeze(0)


def _svdvals(tensor: torch.Tensor, *, driver: str | None = None) -> torch.Tensor:
    """Singular values without the vectors, which torch computes for tensor subclasses in any case."""
    _, values, _ = svd(tensor, False, _differentiated(tensor), driver=driver)
    return values  # type: ignore[no-any-return]


def _eigvalsh(tensor: torch.Tensor, UPLO: str = "L") -> torch.Tensor:  # noqa: N803  the schema's name
    """Eigenvalues without the vectors, likewise."""
    values, _ = eigh(tensor, UPLO, _differentiated(tensor))
    return values  # type: ignore[no-any-return]


def _differentiated(tensor: torch.Tensor) -> bool:
    """Whether a gradient will want the vectors: always in a transform of `torch.func`, whose wrapper hides it."""
    if not isinstance(tensor, SimulatedTensor) or forward_ad.unpack_dual(tensor).tangent is not None:
        return True
    return torch.is_grad_enabled() and tensor.requires_grad


FUSED: int = SDPBackend.FLASH_ATTENTION.value


def _together(*tensors: torch.Tensor | None) -> bool:
    """Whether all are on one simulated device; torch says what is wrong if they are not."""
    given = [tensor for tensor in tensors if tensor is not None]
    return all(isinstance(tensor, SimulatedTensor) for tensor in given) and len({t.device for t in given}) == 1


def _additive(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """A boolean mask as numbers to add, as torch makes it before the kernel."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
