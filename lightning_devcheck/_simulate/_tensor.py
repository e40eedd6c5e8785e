"""A CPU tensor that behaves as a CUDA tensor, and how operators run on it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from lightning_devcheck._simulate._compat import disabled_torch_function, no_dispatch, return_and_correct_aliasing
from lightning_devcheck._simulate._rules import argument_names, rule_of
from lightning_devcheck._simulate._state import active, cuda_device

# NOTE [The device of a simulated tensor]
# In C++ a simulated tensor is on `meta`: its guard exists in every build, autograd runs it in the calling thread, and
# `self.options()` inside torch leads back to us. In Python its `device` is `cuda:k`. The values are in `_inner`.
META = torch.device("meta")
CPU = torch.device("cpu")


class SimulatedTensor(torch.Tensor):
    """A tensor on a simulated CUDA device."""

    _inner: torch.Tensor
    _index: int

    @staticmethod
    def __new__(cls, inner: torch.Tensor, index: int, requires_grad: bool = False) -> SimulatedTensor:
        """Wrap a CPU tensor."""
        strided = inner.layout is torch.strided
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride() if strided else None,
            storage_offset=inner.storage_offset() if strided else 0,
            dtype=inner.dtype,
            layout=inner.layout,
            device=META,
            requires_grad=requires_grad,
        )
        self._inner = inner
        self._index = index
        return self

    __torch_function__ = disabled_torch_function

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on the inner tensors."""
        return run(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:
        """The pretended device."""
        return torch.device("cuda", self._index)

    is_cuda = property(lambda self: True)
    is_meta = property(lambda self: False)
    is_cpu = property(lambda self: False)

    def get_device(self) -> int:
        """The index of the pretended device."""
        return self._index

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """The type's name as CUDA tensors have it, or a conversion."""
        if dtype is None:
            return super().type().replace("torch.", "torch.cuda.", 1)
        return super().type(dtype, non_blocking, **kwargs)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, as CUDA tensors do."""
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        """The values as Python numbers."""
        return self._inner.tolist()

    def data_ptr(self) -> int:
        """The address of the values."""
        return self._inner.data_ptr()

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Convert; see `move`."""
        return move(self, args, kwargs)

    def cuda(self, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """Copy to a simulated device."""
        return move(self, (torch.device("cuda", _simulation().index_of(device)),), {})

    def cpu(self, *args: Any, **kwargs: Any) -> Any:
        """Copy to the CPU."""
        return move(self, (CPU,), {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        text = repr(self._inner.detach())[:-1] + f", device='{self.device}'"
        if self.grad_fn is not None:
            return f"{text}, grad_fn=<{self.grad_fn.name()}>)"
        return text + (", requires_grad=True)" if self.requires_grad else ")")

    def __deepcopy__(self, memo: dict[int, Any]) -> SimulatedTensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment. If you were attempting to deepcopy a module, this may be because of a torch.nn.utils."
                "weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
            )
        memo[id(self)] = new = SimulatedTensor(copy.deepcopy(self._inner, memo), self._index, self.requires_grad)
        for name, value in vars(self).items():
            if name not in ("_inner", "_index"):
                setattr(new, name, copy.deepcopy(value, memo))
        if self.grad is not None:
            new.grad = copy.deepcopy(self.grad, memo)
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuild, (self._inner, self._index, self.requires_grad, getattr(self, "_is_param", False))


def rebuild(inner: torch.Tensor, index: int, requires_grad: bool, is_param: bool) -> torch.Tensor:
    """Unpickle a simulated tensor; outside a simulation it comes back as the CPU tensor it holds."""
    tensor = inner.detach() if active() is None else SimulatedTensor(inner.detach(), index)
    if is_param:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


class _Move(torch.autograd.Function):
    """A copy between devices whose gradient finds the way back to the right one."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, index: int | None) -> torch.Tensor:
        """Copy to ``cuda:index``, or to the CPU for None."""
        ctx.source = tensor._index if isinstance(tensor, SimulatedTensor) else None
        return place(inner_of(tensor).clone(), index)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        """Copy back."""
        return _Move.apply(grad, ctx.source), None


def place(inner: torch.Tensor, index: int | None) -> torch.Tensor:
    """The CPU tensor on a simulated device, or as it is for None."""
    return inner if index is None else SimulatedTensor(inner, index)


def inner_of(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU tensor that holds the values."""
    return tensor._inner if isinstance(tensor, SimulatedTensor) else tensor


def index_of(tensor: torch.Tensor) -> int | None:
    """The index of the simulated device, None for the CPU."""
    return tensor._index if isinstance(tensor, SimulatedTensor) else None


def move(tensor: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """`torch.Tensor.to`, with simulated devices.

    Args:
        tensor: Any tensor.
        args: A device, dtype or other tensor and what follows, as `torch.Tensor.to` takes them.
        kwargs: Likewise.
    """
    device, options = _parse_to(args, kwargs)
    if device is not None:
        index = _simulation().index_of(device) if device.type == "cuda" else None
        if device.type not in ("cpu", "cuda"):
            raise NotImplementedError(f"moving a simulated tensor to {device} is not simulated")
        if index != index_of(tensor):
            tensor = _Move.apply(tensor, index)
            options.pop("copy", None)
    return torch.Tensor.to(tensor, **options) if options else tensor


def _parse_to(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.device | None, dict[str, Any]]:
    """Split the arguments of `torch.Tensor.to` into the device and the others that are given."""
    options = dict(kwargs)
    rest = list(args)
    first = rest[0] if rest else options.pop("other", None)
    names = ["non_blocking", "copy"]
    if isinstance(first, torch.Tensor):
        options |= {"device": first.device, "dtype": first.dtype}
        rest = rest[1:]
    elif isinstance(first, torch.dtype):
        names.insert(0, "dtype")
    else:
        names = ["device", "dtype", *names]
    options |= dict(zip(names, rest, strict=False))
    options.pop("non_blocking", None)
    device = options.pop("device", None)
    if isinstance(device, int):
        device = torch.device("cuda", device)
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return None if device is None else torch.device(device), given


def _simulation() -> Any:
    simulation = active()
    if simulation is None:
        raise RuntimeError("a simulated CUDA tensor was used outside `with simulate_cuda():`; copy it with .cpu() inside")
    return simulation


def tensors_of(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors among arguments, those in lists included."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from tensors_of(argument)


def run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Check the devices of an operator's arguments, run it on the inner tensors, put the result on its device."""
    index = result_device(func, args, kwargs)
    if index is ROWS:
        return _run_rows(func, args, kwargs)
    out = func(*_unwrap(args), **{name: _unwrap_one(value) for name, value in kwargs.items()})
    plan = _returns_of(func)
    if plan == "new":
        return out if index is None else _wrap(out, index)
    if plan == "written":
        return _written(func, args, kwargs, out, index)
    if index is None:
        return out
    return return_and_correct_aliasing(func, tuple(args), kwargs, _wrap(out, index))


ROWS = object()


def _run_rows(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator over tensor lists; each row of the result is on its row's device."""
    first = next(argument for argument in args if isinstance(argument, (list, tuple)))
    indices = [index_of(tensor) for tensor in first]
    out = func(*_unwrap(args), **{name: _unwrap_one(value) for name, value in kwargs.items()})
    if isinstance(out, list) and len(out) == len(indices):
        return [place(tensor, index) for tensor, index in zip(out, indices, strict=True)]
    return None if out is None else out


@functools.cache
def _returns_of(func: Any) -> str:
    """How the returns of an operator relate to its arguments: ``new``, ``written`` or ``view``."""
    if torch.Tag.inplace_view in func.tags:
        return "view"
    aliases = [returned.alias_info for returned in func._schema.returns]
    written = any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
    if all(alias is None for alias in aliases):
        return "written" if written else "new"
    return "written" if written else "view"


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, index: int | None) -> Any:
    """Return the arguments that were written into, themselves; other results are new."""
    names = argument_names(func)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    by_alias: dict[str, Any] = {}
    for argument in func._schema.arguments:
        info = argument.alias_info
        if info is not None and info.is_write and given.get(argument.name) is not None:
            by_alias[next(iter(info.before_set))] = value = given[argument.name]
            for tensor in tensors_of([value]):
                _follow_shape(tensor)
    returns = func._schema.returns
    outs = out if len(returns) > 1 else (out,)
    results = [
        by_alias.get(next(iter(returned.alias_info.before_set)), value)
        if returned.alias_info is not None and returned.alias_info.is_write
        else (value if index is None else _wrap(value, index))
        for returned, value in zip(returns, outs, strict=False)
    ]
    return tuple(results) if len(returns) > 1 else (results[0] if results else None)


def _follow_shape(tensor: torch.Tensor) -> None:
    """An operator may have resized the inner tensor (``out=``)."""
    if isinstance(tensor, SimulatedTensor) and tensor._inner.layout is torch.strided:
        inner = tensor._inner
        if tensor.shape != inner.shape:
            with no_dispatch():
                torch.ops.aten.set_.source_Storage_storage_offset(
                    tensor, torch.UntypedStorage(inner.untyped_storage().nbytes(), device="meta"), 0, inner.shape, inner.stride()
                )


def _unwrap(values: Sequence[Any]) -> list[Any]:
    return [_unwrap_one(value) for value in values]


def _unwrap_one(value: Any) -> Any:
    if isinstance(value, SimulatedTensor):
        return value._inner
    if isinstance(value, (list, tuple)):
        return [_unwrap_one(item) for item in value]
    if isinstance(value, torch.device) and value.type in ("meta", "cuda"):
        return CPU
    return value


def _wrap(value: Any, index: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value if isinstance(value, SimulatedTensor) else SimulatedTensor(value, index)
    if isinstance(value, (list, tuple)):
        return type(value)(_wrap(item, index) for item in value)
    return value


def result_device(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The device that an operator's result is on: an index, None for the CPU, `ROWS` for one device per row.

    Raises:
        RuntimeError: If it does not take its arguments' devices, in CUDA's words, with ``func``, ``devices`` and
            ``argument`` as attributes.
    """
    device = kwargs.get("device")
    if device is not None:
        return _asked_device(torch.device(device), args)
    rule = rule_of(func)
    if rule.kind == "any":
        return next((index_of(tensor) for tensor in tensors_of((*args, *kwargs.values()))), None)
    if rule.kind == "lists":
        return _check_rows(func, args)
    named = [*zip(argument_names(func), args, strict=False), *kwargs.items()]
    return _common_device(func, rule, [(name, t) for name, value in named for t in tensors_of((value,))])


def _asked_device(device: torch.device, args: Sequence[Any]) -> int | None:
    """``meta`` stands for a simulated device: the one asked for, else that of the tensor, else the current one."""
    if device.type not in ("meta", "cuda"):
        return None
    simulation = _simulation()
    if cuda_device(device) is not None:
        return int(simulation.index_of(device))
    if simulation.target is not None:
        return int(simulation.target)
    return next((i for i in map(index_of, tensors_of(args)) if i is not None), simulation.current)


def _common_device(func: Any, rule: Any, named: list[tuple[str, torch.Tensor]]) -> int | None:
    checked = [(name, tensor) for name, tensor in named if name not in rule.host]
    if rule.kind == "index" and checked and index_of(checked[0][1]) is not None:
        checked = [(name, tensor) for name, tensor in checked if name != "indices" or index_of(tensor) is not None]
    if rule.kind in ("iterator", "index"):
        firm = [(name, t) for name, t in checked if t.dim() or isinstance(t, SimulatedTensor) or name in rule.written]
        checked = firm or checked
    if not checked:
        return next((index_of(tensor) for _, tensor in named), None)
    common = index_of(checked[0][1])
    for name, tensor in checked[1:]:
        if index_of(tensor) != common:
            raise mismatch(func, (checked[0][1].device, tensor.device), name)
    return common


def _check_rows(func: Any, args: Sequence[Any]) -> Any:
    rows = [argument for argument in args if isinstance(argument, (list, tuple)) and any(True for _ in tensors_of(argument))]
    for row in zip(*rows, strict=False):
        tensors = [t for t in row if isinstance(t, torch.Tensor)]
        firm = [t for t in tensors if t.dim() or isinstance(t, SimulatedTensor)] or tensors
        for tensor in firm[1:]:
            if index_of(tensor) != index_of(firm[0]):
                raise mismatch(func, (firm[0].device, tensor.device), None)
    return ROWS


def mismatch(func: Any, devices: tuple[torch.device, torch.device], argument: str | None) -> RuntimeError:
    """The error that CUDA gives for tensors on two devices."""
    where = f" (when checking argument for argument {argument} in method wrapper_CUDA_{func.__name__})" if argument else ""
    error = RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, "
        f"{devices[0]} and {devices[1]}!{where}"
    )
    error.func, error.devices, error.argument = func, devices, argument  # type: ignore[attr-defined]
    return error
