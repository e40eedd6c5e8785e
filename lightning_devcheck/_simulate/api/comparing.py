"""What torch compares before an operator runs is called again, with what is elsewhere moved."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from lightning_devcheck._simulate.arguments import (
    Args,
    Function,
    Kwargs,
    call_changed,
    tensors_in,
)
from lightning_devcheck._simulate.compat import pack_padded, unwrapped, weight_norm
from lightning_devcheck._simulate.going_on import brought_together, moved
from lightning_devcheck._simulate.ops.placement import is_mismatch
from lightning_devcheck._simulate.tensor.refusing import refuse, trying
from lightning_devcheck._simulate.tensor.simulated import index_below

# these compare the devices of all that they get, or have parts that do; they write into nothing
LAYERS = "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
FUNCTIONS = "cdist meshgrid cartesian_prod gradient chain_matmul"
METHODS = "quantile nanquantile take_along_dim stft istft inner"


def _named(owner: Any, names: str) -> list[Any]:
    return [getattr(owner, name) for name in names.split()]


RECURRENT = _named(torch, LAYERS)
COMPARING = [weight_norm, torch.linalg.multi_dot]
COMPARING += RECURRENT
COMPARING += _named(torch, FUNCTIONS)
COMPARING += _named(torch, METHODS)
COMPARING += _named(Tensor, METHODS)
NAMES_TYPE = re.compile("device ?type", re.IGNORECASE)
# these want their second argument on the CPU, and say so
SPLIT = "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {device}"
LENGTHS = "'lengths' argument should be a 1D CPU int64 tensor, but got "
LENGTHS += "{dim}D {device} {kind} tensor"
ON_HOST: dict[Any, str] = {pack_padded: LENGTHS}
ON_HOST[torch.tensor_split] = SPLIT
ON_HOST[Tensor.tensor_split] = SPLIT


def call_comparing(call: Function, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """Call what compares devices itself, and again where the simulation goes on.

    Args:
        call: Calls it.
        func: One of `COMPARING`.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    given = (*args, *kwargs.values())
    operands = list(tensors_in(*given))
    if func in RECURRENT:  # the sizes of packed batches belong on the CPU
        operands = list(filter(torch.is_floating_point, operands))
    indices = set(map(index_below, operands))
    if len(indices) < 2:
        return call(func, args, kwargs)
    try:
        with trying():
            return call(func, args, kwargs)
    except RuntimeError as error:
        if not is_mismatch(error):
            if "device" not in str(error).lower():
                raise
            _say_cuda(error, operands)
        together = brought_together(error, operands)
    keys = map(id, operands)
    by_id = dict(zip(keys, together, strict=True))

    def again(*args: Any, **kwargs: Any) -> Any:
        return call(func, args, kwargs)

    def replaced(value: Any) -> Any:
        return by_id.get(id(value), value)

    return call_changed(again, args, kwargs, replaced)


def _say_cuda(error: RuntimeError, operands: list[Tensor]) -> None:
    """Name the device that torch names ``meta``; where it names the type only, that."""
    text = str(error)
    name = "cuda"
    if not NAMES_TYPE.search(text):
        simulated = [unwrapped(tensor) for tensor in operands if index_below(tensor) is not None]
        name = str(simulated[0].device)
    text = text.replace("meta", name)
    error.args = (text,)


def with_second_on_host(func: Function, args: Args) -> Args:
    """Refuse a device tensor that the host reads; going on, a copy takes its place.

    Args:
        func: One of `ON_HOST`.
        args: Its arguments.
    """
    if len(args) < 2 or not isinstance(args[1], Tensor):
        return args
    first, second, *rest = args
    if index_below(second) is None:
        return args
    device = unwrapped(second).device
    kind = _kind_of(second)
    message = ON_HOST[func]
    text = message.format(dim=second.dim(), device=device, kind=kind)
    error = RuntimeError(text)
    refuse(error, [second])
    second = moved(second, None)
    return [first, second, *rest]


def _kind_of(tensor: Tensor) -> str:
    """Name a dtype as C++ does: ``Long``."""
    empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
    name = empty.type()
    return name.removeprefix("torch.").removesuffix("Tensor")
