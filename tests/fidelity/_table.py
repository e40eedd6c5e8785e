"""The outcome that the installed torch's operator table gives.

No CUDA kernel runs: CPU tensors say that they are on a CUDA device. torch's own generator says what each CUDA wrapper
checks (``ExactSame``: all tensor arguments on one device); operators composed of others are followed into the kernel
that composes them, its own checks included; for kernels that look after devices themselves the rule is
TensorIterator's, or stands in `BY_HAND`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torchgen
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torchgen.gen import parse_native_yaml
from torchgen.model import DeviceCheckType
from torchgen.model import DispatchKey as Backend

from tests.fidelity._outcome import Outcome, failure
from tests.fidelity._samples import is_tensor
from tests.fidelity._trials import Placement, Trial

CPU = "cpu"
STARTS_CUDA = (
    "not compiled with CUDA",
    "no NVIDIA driver",
    "not linked with support for cuda",
    "from the 'CUDA' backend",
)
KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
Named = Sequence[tuple[str, torch.Tensor, str]]  # argument, tensor, device


class RefusedError(Exception):
    """The table does not let these devices meet on the same device."""


def expected(trial: Trial, placement: Placement) -> Outcome | None:
    """What the table says of a call; None where torch starts CUDA, or wants a kernel that the CPU has not."""
    copies = [tensor.detach().clone() for tensor in trial.tensors]
    try:
        placed = [t if i is None else Placed(t, f"cuda:{i}") for t, i in zip(copies, placement, strict=True)]
        with Table(), Makers():
            results = trial.call(placed)
    except RefusedError as error:
        return Outcome("refused", text=str(error))
    except Exception as error:
        found = failure(error)
        return None if found.verdict == "failed" or any(words in str(error) for words in STARTS_CUDA) else found
    return Outcome("accepted", tuple(str(result.device) for result in results))


class Placed(torch.Tensor):
    """A CPU tensor that says, in C++ too, that it is on a CUDA device."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, place: str) -> Any:
        """Wrap a CPU tensor; its shape is looked up each time, so it may be resized."""
        strided = {"strides": inner.stride()} if inner.layout is torch.strided else {}
        policy = {"dispatch_sizes_strides_policy": "strides", "dispatch_layout": False}
        self = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), dtype=inner.dtype, layout=inner.layout, device=place, **strided, **policy
        )
        self.inner = inner
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator where the mode is off."""
        return _run(func, args, kwargs or {})

    def __format__(self, spec: str) -> str:
        return format(self.inner, spec)


class Table(TorchDispatchMode):
    """Judges each operator by the table."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator, or the operators that it is composed of."""
        kwargs = kwargs or {}
        if func not in SHAPES and len({place for _, _, place in _named(func, args, kwargs)}) > 1:
            kernel = _composing_key(func)
            if kernel is not None:
                with self:
                    return func._op_dk(kernel, *args, **kwargs)
        return _run(func, args, kwargs)


class Makers(TorchFunctionMode):
    """Python calls that name a CUDA device: torch would start CUDA before the operator is reached."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make it on the CPU and say that it is there."""
        kwargs = kwargs or {}
        named = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.device) and v.type == "cuda"]
        if not named or func is torch.device:
            return func(*args, **kwargs)
        args, kwargs = tree_map(_unwrapped, (args, kwargs))
        return tree_map(lambda v: Placed(v, str(named[0])) if is_tensor(v) else v, func(*args, **kwargs))


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func in SHAPES:
        return SHAPES[func](args[0].inner)
    named = list(_named(func, args, kwargs))
    places = {place for _, _, place in named}
    place = _rule(func)(func, named) if len(places) > 1 else next(iter(places), CPU)
    if kwargs.get("device") is not None:
        place = str(kwargs["device"])
    given = {id(t.inner): t for _, t, _ in named if isinstance(t, Placed)}
    inner_args, inner_kwargs = tree_map(_unwrapped, (args, kwargs))
    out = func(*inner_args, **inner_kwargs)
    written = {id(t) for _, t, _ in named}
    return tree_map(lambda v: _placed(v, place, given, written), out)


def _placed(value: Any, place: str, given: dict[int, Placed], written: set[int]) -> Any:
    if not is_tensor(value) or id(value) in written:
        return value
    if id(value) in given:
        return given[id(value)]
    return value if place == CPU else Placed(value, place)


def _unwrapped(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device(CPU)
    return value.inner if isinstance(value, Placed) else value


SHAPES: dict[Any, Callable[[torch.Tensor], Any]] = {
    torch.ops.aten.sym_size.default: lambda t: t.size(),
    torch.ops.aten.size.default: lambda t: t.size(),
    torch.ops.aten.sym_stride.default: lambda t: t.stride(),
    torch.ops.aten.stride.default: lambda t: t.stride(),
    torch.ops.aten.sym_storage_offset.default: lambda t: t.storage_offset(),
    torch.ops.aten.storage_offset.default: lambda t: t.storage_offset(),
    torch.ops.aten.sym_numel.default: lambda t: t.numel(),
    torch.ops.aten.numel.default: lambda t: t.numel(),
    torch.ops.aten.dim.default: lambda t: t.dim(),
    torch.ops.aten.is_contiguous.default: lambda t: t.is_contiguous(),
    torch.ops.aten.is_contiguous.memory_format: lambda t: t.is_contiguous(),
    torch.ops.aten.is_strides_like_format.default: lambda t: False,
    torch.ops.aten.is_non_overlapping_and_dense.default: lambda t: t.is_contiguous(),
}


def _named(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, torch.Tensor, str]]:
    names = [argument.name for argument in func._schema.arguments]
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        yield from ((name, t, str(t.device)) for t in tree_leaves(value) if is_tensor(t))


@functools.cache
def _writes(func: Any) -> frozenset[str]:
    return frozenset(a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)


@functools.cache
def _native() -> tuple[dict[str, Any], Any]:
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    return {str(f.func.name): f for f in parsed.native_functions}, parsed.backend_indices[Backend.CUDA]


def _name(func: Any) -> str:
    return str(
        func._schema.name.partition("::")[2] + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
    )


@functools.cache
def _composing_key(func: Any) -> Any:
    """The kernel that composes an operator of others, None where CUDA has its own."""
    functions, cuda = _native()
    native = functions.get(_name(func))
    if _name(func) in BY_HAND or native is None:
        return None
    owner = functions[str(native.structured_delegate)] if native.structured_delegate else native
    if cuda.has_kernel(owner):
        return None
    has = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, func.name())
    return next((getattr(torch._C.DispatchKey, key) for key in KEYS if has(key)), None)


def _rule(func: Any) -> Callable[[Any, Named], str]:
    if _name(func) in BY_HAND:
        return BY_HAND[_name(func)]
    native = _native()[0].get(_name(func))
    if native is None or native.device_check is DeviceCheckType.ExactSame:
        return _one
    return _foreach if _name(func).startswith("_foreach") else _iterator


def _one(func: Any, named: Named) -> str:
    """The generated wrapper's check."""
    return _same(func, [place for _, _, place in named])


def _same(func: Any, places: Sequence[str]) -> str:
    if len(set(places)) > 1:
        raise RefusedError(f"{_name(func)}: not on the same device: {places}")
    return places[0]


def _iterator(func: Any, named: Named) -> str:
    """TensorIterator: the first device that is not the CPU; one 0-dim CPU tensor may join two or more inputs."""
    common = next((place for _, _, place in named if place != CPU), CPU)
    inputs = [name for name, _, _ in named if name not in _writes(func) or name == "self"]
    allowed = 1 if len(inputs) > 1 else 0
    for name, tensor, place in named:
        if place == common:
            continue
        allowed -= 1
        if place != CPU or tensor.dim() or name in _writes(func) or allowed < 0:
            raise RefusedError(f"{_name(func)}: {name} on {place} is not on the same device, {common}")
    return common


def _foreach(func: Any, named: Named) -> str:
    return named[0][2]


def _goes_to(target: str, *firm: str) -> Callable[[Any, Named], str]:
    """A kernel that reads or copies its other arguments wherever they are."""

    def rule(func: Any, named: Named) -> str:
        return _same(func, [place for name, _, place in named if name in (target, *firm)])

    return rule


def _masked_fill(func: Any, named: Named) -> str:
    place = _goes_to("self", "mask")(func, named)
    if place == CPU:
        raise RefusedError("masked_fill_: inputs not on the same device")
    return place


def _where(func: Any, named: Named) -> str:
    """0-dim tensors go to the first device that is not the CPU."""
    common = next((place for _, _, place in named if place != CPU), CPU)
    for name, tensor, place in named:
        if place != common and (tensor.dim() or name == "out"):
            raise RefusedError(f"where: {name} on {place} is not on the same device, {common}")
    return common


def _index(func: Any, named: Named) -> str:
    """Indices may be on the CPU; a 0-dim value goes to where the tensor is."""
    home = next(place for name, _, place in named if name == "self")
    for name, tensor, place in named:
        free = place == CPU if name == "indices" else name == "values" and tensor.dim() == 0
        if place != home and not free:
            raise RefusedError(f"{_name(func)}: {name} on {place} is not on the same device, {home}")
    return home


# kernels that look after devices in their own way
BY_HAND: dict[str, Callable[[Any, Named], str]] = {
    "copy_": _goes_to("self"),
    "_to_copy": _goes_to("self"),
    "fill_.Tensor": _goes_to("self"),
    "bernoulli_.Tensor": _goes_to("self"),
    "set_.source_Tensor": _goes_to("source"),
    "masked_fill_.Scalar": _one,
    "masked_fill_.Tensor": _masked_fill,
    "index_fill_.int_Scalar": _one,
    "index_fill_.int_Tensor": _goes_to("self", "index"),
    "where.self": _where,
    "where.self_out": _where,
    "index.Tensor": _index,
    "index.Tensor_out": _index,
    "_index_put_impl_": _index,
    "binary_cross_entropy": _one,
    "binary_cross_entropy.out": _one,
    "binomial": _one,
}
