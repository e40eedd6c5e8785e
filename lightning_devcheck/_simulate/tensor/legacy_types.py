"""The old tensor types, ``torch.cuda.FloatTensor`` and its like, on simulated devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.constructors import construct
from lightning_devcheck._simulate.tensor.simulated import CPU, SimulatedTensor, index_below, move

DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}
PREFIX = "torch.cuda."


class TensorType(type):
    """Make tensors as ``torch.cuda.FloatTensor`` does, and say whether something is one."""

    dtype: torch.dtype

    def __instancecheck__(cls, value: object) -> bool:
        if not isinstance(value, SimulatedTensor):
            return False
        return value.dtype is cls.dtype and value.layout is torch.strided

    def __call__(cls, *args: object, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device", running().current)
        return construct(cls.dtype, device, args)


def type_stand_ins() -> Iterator[Change]:
    """What to replace: owner, attribute and stand-in."""
    for name, dtype in DTYPES.items():
        members = {"dtype": dtype, "__module__": "torch.cuda"}
        yield torch.cuda, name, TensorType(name, (), members)
    yield torch.Tensor, "type", _typed(torch.Tensor.type)
    yield torch, "set_default_tensor_type", _default(torch.set_default_tensor_type)


def _typed(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.type(…)``, for CPU tensors and simulated ones."""

    @functools.wraps(original)
    def convert(self: torch.Tensor, dtype: object = None, non_blocking: bool = False, **kwargs: object) -> Any:
        index = index_below(self)
        if dtype is None and index is not None:
            return _name_of(self)
        if dtype is None:
            return original(self)
        wanted = _cuda_type(dtype)
        if wanted is not None:
            if index is None:
                index = running().current
            device = torch.device("cuda", index)
            return move(self, (device, wanted.dtype), {})
        if isinstance(dtype, torch.dtype):
            return move(self, (dtype,), {})
        on_cpu = move(self, (CPU,), {})
        return original(on_cpu, dtype, non_blocking, **kwargs)

    return convert


def _name_of(tensor: torch.Tensor) -> str:
    """The type's name, as CUDA tensors have it."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    name = names.get(tensor.dtype, "Tensor")
    if tensor.layout is not torch.strided:
        name = f"sparse.{name}"
    return PREFIX + name


def _cuda_type(kind: object) -> TensorType | None:
    if isinstance(kind, str) and kind.startswith(PREFIX):
        kind = getattr(torch.cuda, kind.removeprefix(PREFIX), None)
    return kind if isinstance(kind, TensorType) else None


def _default(original: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(original)
    def set_default_tensor_type(t: object) -> None:
        if _cuda_type(t) is not None:
            raise RuntimeError(
                "torch.set_default_tensor_type with a CUDA type is not simulated: use torch.set_default_device('cuda')."
            )
        original(t)

    return set_default_tensor_type
