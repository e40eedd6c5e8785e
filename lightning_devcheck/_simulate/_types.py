"""The old tensor types, ``torch.cuda.FloatTensor`` and its like, on simulated devices."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from lightning_devcheck._simulate._state import running
from lightning_devcheck._simulate._tensor import CPU, SimulatedTensor, index_below, move

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
    """The kind of ``torch.cuda.FloatTensor``: makes tensors, and is asked whether something is one."""

    dtype: torch.dtype

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, SimulatedTensor) and value.dtype is cls.dtype and value.layout is torch.strided

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return made(cls.dtype, kwargs.get("device", running().current), args)


def made(dtype: torch.dtype, device: Any, args: tuple[Any, ...]) -> Any:
    """A tensor as the old constructors make it: of sizes, of data, of another tensor, or of sparse parts."""
    device = torch.device("cuda", device) if isinstance(device, int) else device
    first = args[0] if args else torch.Size([0])
    if isinstance(first, (int, torch.Size)):
        size = args if isinstance(first, int) else first
        return torch.empty(size, dtype=dtype, device=device)
    if isinstance(first, torch.Tensor) and len(args) > 1:
        return torch.sparse_coo_tensor(*args, dtype=dtype, device=device)
    made = torch.as_tensor(first, dtype=dtype, device=device)
    return torch.ops.aten.alias(made) if made is first else made


def type_stand_ins() -> Iterator[tuple[Any, str, Any]]:
    """What to replace: owner, attribute and stand-in."""
    for name, dtype in DTYPES.items():
        yield torch.cuda, name, TensorType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
    yield torch.Tensor, "type", _typed(torch.Tensor.type)
    yield torch, "set_default_tensor_type", _default(torch.set_default_tensor_type)


def _typed(original: Any) -> Any:
    """``tensor.type(…)``, for CPU tensors and simulated ones."""

    @functools.wraps(original)
    def convert(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        index = index_below(self)
        if dtype is None:
            return original(self) if index is None else _name_of(self)
        wanted = _cuda_type(dtype)
        if wanted is not None:
            device = torch.device("cuda", running().current if index is None else index)
            return move(self, (device, wanted.dtype), {})
        if isinstance(dtype, torch.dtype):
            return move(self, (dtype,), {})
        return original(move(self, (CPU,), {}), dtype, non_blocking, **kwargs)

    return convert


def _name_of(tensor: torch.Tensor) -> str:
    """The type's name, as CUDA tensors have it."""
    name = next((name for name, dtype in DTYPES.items() if dtype is tensor.dtype), "Tensor")
    return PREFIX + ("" if tensor.layout is torch.strided else "sparse.") + name


def _cuda_type(kind: Any) -> TensorType | None:
    if isinstance(kind, str) and kind.startswith(PREFIX):
        kind = getattr(torch.cuda, kind.removeprefix(PREFIX), None)
    return kind if isinstance(kind, TensorType) else None


def _default(original: Any) -> Any:
    @functools.wraps(original)
    def set_default_tensor_type(t: Any) -> None:
        if _cuda_type(t) is not None:
            raise RuntimeError(
                "torch.set_default_tensor_type with a CUDA type is not simulated: use torch.set_default_device('cuda')."
            )
        original(t)

    return set_default_tensor_type
