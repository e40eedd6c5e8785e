"""A CPU tensor that behaves as a CUDA tensor, and how it moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._simulate.compat import (
    AUTOCAST_KEYS,
    WithoutFunctions,
    is_wrapped,
    no_dispatch,
    to_copy,
    tracer,
    unwrapped,
)
from lightning_devcheck._simulate.host_reads import note_host_copy, note_host_read
from lightning_devcheck._simulate.state import Index, active, device_at, running
from lightning_devcheck._simulate.tensor.constructors import construct
from lightning_devcheck._simulate.tensor.places import decide_here, take_over
from lightning_devcheck._simulate.tensor.refusing import refuse
from lightning_devcheck._simulate.tensor.wrapper import Wrapper, attributes_of, is_parameter

# NOTE [The device of a simulated tensor]
# In C++ a simulated tensor is on `meta`: its guard exists in every build, autograd runs it in the calling thread, and
# `self.options()` inside torch leads back to us. In Python its `device` is `cuda:k`. The values are in `_inner`.
META = torch.device("meta")
CPU = torch.device("cpu")
# up to this size a simulation without values keeps them where they are known
KEPT_BYTES = 2**20


class SimulatedTensor(Wrapper):
    """A tensor on a simulated CUDA device."""

    _index: int

    @staticmethod
    def __new__(
        cls: type[SimulatedTensor], inner: torch.Tensor, index: int, requires_grad: bool = False
    ) -> SimulatedTensor:
        """Wrap a CPU tensor, or a ``meta`` tensor where the simulation has no values."""
        self: SimulatedTensor = cls.around(inner, META, requires_grad, AUTOCAST_KEYS)
        self._index = index
        return self

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

    def new(self, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        """A tensor of the same type, as the old constructors make it."""
        made = construct(self.dtype, self.device if device is None else device, args)
        if device is None:
            take_over(made, self)
        return made

    def share_memory_(self) -> SimulatedTensor:
        """Share the values with other processes; CUDA tensors are shared as they are."""
        self._inner.share_memory_()
        return self

    def is_shared(self) -> bool:
        """CUDA tensors are always shared."""
        return True

    def numpy(self, *, force: bool = False) -> Any:
        """Refuse, as CUDA tensors do, unless a copy is asked for."""
        if force:
            return self.detach().cpu().numpy(force=True)
        refuse(
            TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            ),
            [self],
        )
        return Move.apply(self, None, None).numpy()  # type: ignore[no-untyped-call]

    def __array__(self, *args: object, **kwargs: object) -> Any:
        return self.numpy().__array__(*args, **kwargs)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Convert; see `move`."""
        return move(self, args, kwargs)

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """Copy to a simulated device."""
        target = torch.device("cuda", running().index_of(device))
        return move(self, (target,), {"memory_format": memory_format})

    def cpu(self, memory_format: Any = None) -> Any:
        """Copy to the CPU."""
        return move(self, (CPU,), {"memory_format": memory_format})

    def remade(self, inner: torch.Tensor) -> SimulatedTensor:
        """A leaf on the same device, around another tensor."""
        return SimulatedTensor(inner, self._index, self.requires_grad)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        text = self._described(f", device='{self.device}'")
        if self.grad_fn is not None:
            return f"{text}, grad_fn=<{self.grad_fn.name()}>)"
        return text + (", requires_grad=True)" if self.requires_grad else ")")

    def __reduce_ex__(self, protocol: object) -> Any:
        return _reduced(self, self._index)


# messages name a tensor's class
SimulatedTensor.__name__ = "Tensor"


class HostTensor(Wrapper):
    """A CPU tensor without values: in a simulation that has none, one too large to keep, or copied from a device."""

    @staticmethod
    def __new__(cls: type[HostTensor], inner: torch.Tensor, requires_grad: bool = False) -> HostTensor:
        """Wrap a ``meta`` tensor."""
        self: HostTensor = cls.around(inner, CPU, requires_grad)
        return self

    def remade(self, inner: torch.Tensor) -> HostTensor:
        """A leaf around another tensor."""
        return HostTensor(inner, self.requires_grad)

    def numpy(self, *args: object, **kwargs: object) -> Any:
        """An array of stand-ins."""
        return self._shown().numpy()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self._shown().numpy().__array__(*args, **kwargs)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return self._described() + (", requires_grad=True)" if self.requires_grad else ")")

    def __reduce_ex__(self, protocol: object) -> Any:
        return _reduced(self, None)


def _reduced(tensor: Wrapper, index: int | None) -> tuple[Any, ...]:
    """What pickle keeps of a tensor; attributes only where there are any, as torch does."""
    given = (tensor._inner, index, tensor.requires_grad, is_parameter(tensor))
    attributes = attributes_of(tensor)
    return rebuild, (*given, attributes) if attributes else given


def rebuild(
    inner: torch.Tensor, index: int | None, requires_grad: bool, is_param: bool, attributes: Any = ()
) -> torch.Tensor:
    """Unpickle; outside a simulation a simulated tensor comes back as the CPU tensor it holds."""
    tensor = inner.detach() if active() is None else place(inner.detach(), index)
    made = torch.nn.Parameter(tensor, requires_grad) if is_param else tensor.requires_grad_(requires_grad)
    if active() is not None:
        decide_here(made)
    for name, value in dict(attributes).items():
        setattr(made, name, value)
    return made


class Move(torch.autograd.Function):
    """A copy between devices whose gradient finds the way back to the right one."""

    @staticmethod
    def forward(tensor: torch.Tensor, index: int | None, memory_format: torch.memory_format | None) -> torch.Tensor:
        """Copy to ``cuda:index``, or to the CPU for None."""
        if is_wrapped(tensor) or tracer() is not None:
            return _copied(tensor, index, memory_format)
        # only strided tensors have a format
        options = {} if memory_format is None else {"memory_format": memory_format}
        return place(with_data(inner_of(tensor)).clone(**options), index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep where the tensor was and is; apart from ``forward``, as ``torch.func`` wants it."""
        tensor, ctx.target, _ = inputs
        ctx.source = index_below(tensor)
        ctx.source_device, ctx.target_device = device_at(ctx.source), device_at(ctx.target)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Copy back."""
        return Move.apply(grad, ctx.source, None), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, index: None, memory_format: None) -> torch.Tensor:
        """Copy the tangent along."""
        return Move.apply(tangent, ctx.target, None)  # type: ignore[no-any-return, no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: Any, tensor: torch.Tensor, index: int | None, memory_format: Any) -> Any:
        """Copy the whole batch."""
        return Move.apply(tensor, index, memory_format), in_dims[0]  # type: ignore[no-untyped-call]


def _copied(tensor: torch.Tensor, index: int | None, memory_format: torch.memory_format | None) -> torch.Tensor:
    """Copy by torch's operator: it takes the wrapper of batched gradients off, and ``make_fx`` records it."""
    device = CPU if index is None else META
    with running().aiming(index), WithoutFunctions():  # to the function mode this `meta` would be torch's own
        return to_copy(tensor, device=device, memory_format=memory_format)  # type: ignore[no-any-return]


def place(inner: torch.Tensor, index: int | None) -> torch.Tensor:
    """The tensor on a simulated device, or on the CPU for None; without values where the simulation keeps none."""
    if index is None:
        return HostTensor(inner) if inner.is_meta else inner
    simulation = active()
    if simulation is not None and not simulation.values and not keeps(inner, index):
        inner = without_values(inner)
    return SimulatedTensor(inner, index)


def keeps(tensor: torch.Tensor, index: Index) -> bool:
    """Whether a simulation without values keeps those of such a tensor: small ones, on a device no fractions."""
    small = tensor.numel() * tensor.element_size() <= KEPT_BYTES
    return small and (index is None or not (tensor.is_floating_point() or tensor.is_complex()))


def without_values(inner: torch.Tensor) -> torch.Tensor:
    """Shape, strides and dtype of a tensor."""
    if inner.is_meta:
        return inner
    with no_dispatch():
        if inner.layout is not torch.strided:
            return inner.to("meta")
        return torch.empty_strided(inner.size(), inner.stride(), dtype=inner.dtype, device=META)


def inner_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that holds the values."""
    return tensor._inner if isinstance(tensor, Wrapper) else tensor


def with_data(value: Any) -> Any:
    """The argument; zeros in place of autograd's zeros without data, of which a copy has no data either."""
    zeros = isinstance(value, torch.Tensor) and value._is_zerotensor()
    return value.new_zeros(value.shape) if zeros else value


def index_of(tensor: torch.Tensor) -> int | None:
    """The index of the simulated device, None for the CPU."""
    return tensor._index if isinstance(tensor, SimulatedTensor) else None


def index_below(tensor: torch.Tensor) -> int | None:
    """The index of the simulated device, None for the CPU, also where ``torch.func`` has wrapped the tensor."""
    return index_of(unwrapped(tensor) if is_wrapped(tensor) else tensor)


def move(tensor: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """`torch.Tensor.to`, with simulated devices.

    Args:
        tensor: Any tensor.
        args: A device, dtype or other tensor and what follows, as `torch.Tensor.to` takes them.
        kwargs: Likewise.
    """
    device, options = _parse_to(args, kwargs)
    if torch.nn.parameter.is_lazy(tensor):
        return _moved_later(tensor, device, options)
    if tensor.is_nested:
        raise NotImplementedError("nested tensors on CUDA are not simulated: pad the tensors to one shape instead")
    if device is not None and device.type == "meta":
        made = without_values(inner_of(tensor)).to(options.get("dtype", tensor.dtype))
        return made.requires_grad_(tensor.requires_grad and tensor.is_leaf)
    if device is not None:
        index = running().index_of(device) if device.type == "cuda" else None
        if device.type not in ("cpu", "cuda"):
            raise NotImplementedError(f"moving a simulated tensor to {device} is not simulated")
        source = index_below(tensor)
        if index != source:
            if index is None:
                note_host_read()
            elif source is None:
                note_host_copy()
            memory_format = options.pop("memory_format", None)
            tensor = Move.apply(tensor, index, memory_format)  # type: ignore[no-untyped-call]
            decide_here(tensor)
            options.pop("copy", None)
    if options.get("dtype") is tensor.dtype and len(options) == 1:
        return tensor
    return torch.Tensor.to(tensor, **options) if options else tensor


def _moved_later(tensor: Any, device: torch.device | None, options: dict[str, Any]) -> torch.Tensor:
    """A lazy parameter or buffer remembers the device that it will be made on."""
    if device is not None:
        tensor._simulated_index = running().index_of(device) if device.type == "cuda" else None
        decide_here(tensor)
    if "dtype" in options:
        tensor.data = tensor.data.to(options["dtype"])
    return tensor  # type: ignore[no-any-return]


def _parse_to(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.device | None, dict[str, Any]]:
    """Split the arguments of `torch.Tensor.to` into the device and the others that are given."""
    options = dict(kwargs)
    rest = list(args)
    first = rest[0] if rest else options.pop("other", None)
    names = ["non_blocking", "copy"]
    if isinstance(first, torch.Tensor):
        options |= {"device": unwrapped(first).device, "dtype": first.dtype}
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
