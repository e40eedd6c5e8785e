"""A CPU tensor that behaves as a CUDA tensor, and how it moves."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._simulate._compat import disabled_torch_function, make_wrapper, set_conj, set_neg
from lightning_devcheck._simulate._host import note_host_copy, note_host_read
from lightning_devcheck._simulate._state import active, cuda_device, running

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
    def __new__(
        cls: type[SimulatedTensor], inner: torch.Tensor, index: int, requires_grad: bool = False
    ) -> SimulatedTensor:
        """Wrap a CPU tensor."""
        strided: dict[str, Any] = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        self = make_wrapper(
            cls,
            inner.size(),
            **(strided if inner.layout is torch.strided else {}),
            dtype=inner.dtype,
            layout=inner.layout,
            device=META,
            requires_grad=requires_grad,
        )
        # views that conjugate or negate lazily: code inside torch asks for the bit and resolves it
        if inner.is_conj():
            set_conj(self, True)
        if inner.is_neg():
            set_neg(self, True)
        self._inner = inner
        self._index = index
        return self

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator in a thread, or a moment, where the operator mode is off."""
        from lightning_devcheck._simulate._operators import run  # the two files need each other

        return run(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
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
            return super().type().replace("torch.meta.", "torch.cuda.", 1)
        return super().type(dtype, non_blocking, **kwargs)

    def share_memory_(self) -> SimulatedTensor:
        """Share the values with other processes; CUDA tensors are shared as they are."""
        self._inner.share_memory_()
        return self

    def is_shared(self) -> bool:
        """CUDA tensors are always shared."""
        return True

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, as CUDA tensors do."""
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __format__(self, spec: str) -> str:
        if self.dim() == 0:
            return str(self.item().__format__(spec))
        return object.__format__(self, spec)

    def untyped_storage(self) -> Any:
        """The storage of the values."""
        return self._inner.untyped_storage()

    def tolist(self) -> Any:
        """The values as Python numbers."""
        note_host_read(None, ())
        return self._inner.tolist()

    def data_ptr(self) -> int:
        """The address of the values."""
        return self._inner.data_ptr()

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Convert; see `move`."""
        return move(self, args, kwargs)

    def cuda(self, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Copy to a simulated device."""
        return move(self, (torch.device("cuda", running().index_of(device)),), {})

    def cpu(self, *args: Any, **kwargs: Any) -> Any:
        """Copy to the CPU."""
        return move(self, (CPU,), {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
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


class Move(torch.autograd.Function):
    """A copy between devices whose gradient finds the way back to the right one."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, index: int | None) -> torch.Tensor:
        """Copy to ``cuda:index``, or to the CPU for None."""
        ctx.source = index_of(tensor)
        ctx.source_device, ctx.target_device = tensor.device, CPU if index is None else torch.device("cuda", index)
        return place(inner_of(tensor).clone(), index)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Copy back."""
        return Move.apply(grad, ctx.source), None  # type: ignore[no-untyped-call]


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
    if torch.nn.parameter.is_lazy(tensor):
        raise NotImplementedError(
            "lazy parameters are not simulated: run one batch through the module on the CPU first"
        )
    device, options = _parse_to(args, kwargs)
    if device is not None and device.type != "meta":  # C++ helpers that group by device hand back `meta`
        index = running().index_of(device) if device.type == "cuda" else None
        if device.type not in ("cpu", "cuda"):
            raise NotImplementedError(f"moving a simulated tensor to {device} is not simulated")
        if index != index_of(tensor):
            if index is None:
                note_host_read(None, ())
            elif index_of(tensor) is None:
                note_host_copy()
            tensor = Move.apply(tensor, index)  # type: ignore[no-untyped-call]
            options.pop("copy", None)
    if options.get("dtype") is tensor.dtype and len(options) == 1:
        return tensor
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


def address_of(generator: torch.Generator) -> int:
    """What tells one generator from another: torch hands operators a new Python object of the same one."""
    return int(generator._cdata)  # type: ignore[attr-defined]


class SimulatedGenerator(torch.Generator):
    """``torch.Generator``, which may be asked for on a simulated device; its numbers are the CPU's."""

    def __new__(cls, device: Any = "cpu") -> SimulatedGenerator:
        """Make a CPU generator that remembers the device."""
        self: SimulatedGenerator = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        wanted = cuda_device(torch.device(device))
        if wanted is not None:
            simulation = running()
            simulation.generators[address_of(self)] = simulation.index_of(wanted)
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The pretended device."""
        index = running().generators.get(address_of(self))
        return CPU if index is None else torch.device("cuda", index)
