"""Fake tensors of parameters, by which ``torch.export`` ends a process without CUDA: refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from lightning_devcheck._simulate.compat import FAKING
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor

REFUSAL = (
    "fake tensors on CUDA that require a gradient are not simulated, and torch.export makes them "
    "of parameters: export the model on the CPU (model.cpu()), or inside torch.no_grad()"
)


def fake_stand_ins() -> Iterator[Change]:
    """What to replace: owner, attribute and stand-in."""
    owner, name = FAKING
    yield owner, name, _refusing(getattr(owner, name))


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse what aborts torch without CUDA: autograd asks for the stream of such a tensor."""

    @functools.wraps(original)
    def from_tensor(self: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        simulated = isinstance(tensor, SimulatedTensor)
        if simulated and tensor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(REFUSAL)
        return original(self, tensor, *args, **kwargs)

    return from_tensor
