"""Where torch hands calls over above its argument parser."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from lightning_devcheck._simulate.api.comparing import COMPARING, ON_HOST, call_comparing, with_second_on_host
from lightning_devcheck._simulate.api.indexing import is_parsed, parsed
from lightning_devcheck._simulate.api.making import MAKERS, make, maker
from lightning_devcheck._simulate.api.module import become
from lightning_devcheck._simulate.api.sparse import PARTS, placed_parts
from lightning_devcheck._simulate.arguments import Args, Function, Kwargs
from lightning_devcheck._simulate.compat import (
    DEVICE_QUESTIONS,
    QUESTIONS,
    SET_DATA,
    SET_GRAD,
    is_wrapped,
    parse_to,
    unwrapped,
)
from lightning_devcheck._simulate.going_on import moved
from lightning_devcheck._simulate.gradients import kept_in_place
from lightning_devcheck._simulate.ops.dispatch import OperatorMode
from lightning_devcheck._simulate.ops.placement import check_out
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import Placement, Simulation, active, cuda_device
from lightning_devcheck._simulate.tensor.places import decide_here, take_over
from lightning_devcheck._simulate.tensor.refusing import refuse
from lightning_devcheck._simulate.tensor.simulated import META, SimulatedTensor, index_below, inner_of, move
from lightning_devcheck._simulate.tensor.wrapper import Wrapper

UNTOUCHED = (parse_to, torch.device)
BY_ELEMENT = (torch.Tensor.apply_, torch.Tensor.map_, torch.Tensor.map2_)
READING = (torch.linspace, torch.logspace)  # their inputs are read, wherever they are


class FunctionMode(TorchFunctionMode):
    """Turns CUDA devices into simulated ones before torch's argument parser tries to start CUDA."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def __torch_function__(self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        """Handle one call of a torch function or method."""
        if func in QUESTIONS or active() is not self._simulation:  # a thread may outlive the simulation
            return func(*args, **(kwargs or {}))
        handler = self._handlers.get(func)
        if handler is not None:
            return handler(self, func, args, dict(kwargs or {}))
        if not kwargs and not _may_name_device(args):
            return self._aimed_call(func, args, {})
        out = self._parsed(func, args, dict(kwargs or {}))
        if kwargs and kwargs.get("device") is not None and _is_modelled(out, args):
            decide_here(out)
        return out

    def _parsed(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """Call with ``meta`` for a CUDA device, which is kept as the call's target."""
        kwargs.pop("pin_memory", None)  # as in `Tensor.pin_memory`: there is no allocator for it without CUDA
        if type(kwargs.get("device")) is int:
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        device = self._device_in(args, kwargs)
        if device is None:
            return self._call(func, args, kwargs)
        with self._simulation.aiming(self._simulation.index_of(device)):
            args = [META if cuda_device(value) is not None else value for value in args]
            if cuda_device(kwargs.get("device")) is not None:
                kwargs["device"] = META
            return func(*args, **kwargs)

    def _device_in(self, args: Args, kwargs: Kwargs) -> torch.device | None:
        device = cuda_device(kwargs.get("device"))
        if device is None:
            device = next((d for d in map(cuda_device, args) if d is not None), None)
        return device

    def _call(self, func: Function, args: Args, kwargs: Kwargs, named: str | torch.device | None = None) -> Any:
        """Call with the tensors' own device as what ``self.options()`` means inside torch."""
        if kwargs.get("out") is not None and func not in READING:
            check_out(args, kwargs["out"])
        named = kwargs.get("device", named)
        if named is not None and torch.device(named).type == "meta":
            with self._simulation.aiming(Placement.NO_DATA):
                return func(*args, **kwargs)
        return self._aimed_call(func, args, kwargs)

    def _aimed_call(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        target = _first_index(args)
        if target is None:
            target = _first_index(kwargs.values())
        if target is None:
            return func(*args, **kwargs)
        here = self._simulation.here
        before, here.target = here.target, target
        try:
            return func(*args, **kwargs)
        except TypeError as error:
            _name_device(error)
            raise
        finally:
            here.target = before

    def handed(self, func: Function) -> Function:
        """A function that torch does not hand to modes."""

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.__torch_function__(func, (), args, kwargs)

        return call

    def thread_run(self, original: Function) -> Function:
        """``Thread.run`` with the modes on: torch keeps modes per thread."""

        @functools.wraps(original)
        def run_thread(thread: threading.Thread) -> None:
            with OperatorMode(self._simulation), self:
                original(thread)

        return run_thread

    def stand_ins(self) -> Iterable[Change]:
        """What to replace: owner, attribute and stand-in."""
        yield from ((torch, func.__name__, maker(func)) for func in MAKERS)
        yield torch, "range", self.handed(torch.range)
        yield threading.Thread, "run", self.thread_run(threading.Thread.run)

    def _untouched(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        return func(*args, **kwargs)

    def _make(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        return make(func, args, kwargs)

    def _to(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        tensor, *rest = args
        if self._concerns(args, kwargs) or (rest and type(rest[0]) is int):
            return move(tensor, rest, kwargs)
        named = None
        if rest and isinstance(rest[0], (str, torch.device)):
            named = rest[0]
        return self._call(func, args, kwargs, named)

    def _cuda(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        return SimulatedTensor.cuda(*args, **kwargs)

    def _index(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        tensor, index, *value = args
        if not is_parsed(index) and (tensor.is_meta or index_below(tensor) is not None):
            return self._aimed_call(func, (tensor, parsed(index), *value), kwargs)
        return self._aimed_call(func, args, kwargs)

    def _comparing(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        return call_comparing(self._call, func, args, kwargs)

    def _on_host(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        return self._call(func, with_second_on_host(func, args), kwargs)

    def _register_hook(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        tensor, hook = args
        return func(tensor, kept_in_place(hook))

    def _by_element(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """``tensor.apply_(…)`` and its like, which torch skips where it sees `meta`."""
        tensor = args[0]
        if not isinstance(tensor, SimulatedTensor):
            return func(*args, **kwargs)
        refuse(TypeError(f"{func.__name__} is only implemented on CPU tensors"), [tensor])
        plain = tensor._inner.detach().requires_grad_(tensor.requires_grad)
        others = [inner_of(each) if isinstance(each, torch.Tensor) else each for each in args[1:]]
        func(plain, *others, **kwargs)
        return tensor

    def _sparse(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        return self._parsed(func, *placed_parts(func, args, kwargs))

    def _new_tensor(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """``tensor.new_tensor(data)``: torch drops the data where the device is ``meta``."""
        tensor, data = args[0], args[1] if len(args) > 1 else kwargs.pop("data")
        options = {"dtype": tensor.dtype, "device": unwrapped(tensor).device, **kwargs}
        made = make(torch.tensor, [data], {k: v for k, v in options.items() if v is not None})
        if kwargs.get("device") is None:
            take_over(made, tensor)
        return made

    def _new(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """``tensor.new(…)`` of a CPU tensor, which takes no other device."""
        made = self._parsed(func, args, kwargs)
        take_over(made, args[0])
        return made

    def _set_data(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """``tensor.data = …``: the values and the device change with it."""
        tensor, data = args
        if isinstance(tensor, SimulatedTensor) and isinstance(data, SimulatedTensor):
            func(tensor, data)
            tensor._inner, tensor._index, tensor._place = data._inner, data._index, data._place
        elif isinstance(tensor, Wrapper) or isinstance(data, Wrapper):
            made = data.detach()
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, tensor.requires_grad)
            become(tensor, made)
        else:
            func(tensor, data)
            take_over(tensor, data)

    def _ctc(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """CUDA reads the lengths on the host; torch skips that for tensor subclasses."""
        names = ("input_lengths", "target_lengths")
        args = [*args[:2], *map(_listed, args[2:4]), *args[4:]]
        kwargs.update({name: _listed(kwargs[name]) for name in names if name in kwargs})
        return self._call(func, args, kwargs)

    def _concerns(self, args: Args, kwargs: Kwargs) -> bool:
        named = self._device_in(args, kwargs) is not None
        return named or _first_index((*args, *kwargs.values())) is not None

    def _answer(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """``tensor.device`` and its like, where ``torch.func`` has wrapped a simulated tensor."""
        return getattr(unwrapped(args[0]), DEVICE_QUESTIONS[func]) if is_wrapped(args[0]) else func(*args)

    def _get_device(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        return unwrapped(args[0]).get_device() if is_wrapped(args[0]) else func(*args)

    def _set_grad(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """``tensor.grad = …``: torch would say ``meta`` for the device."""
        tensor, grad = args
        if not isinstance(grad, torch.Tensor) or index_below(grad) == index_below(tensor):
            return func(tensor, grad)
        refuse(_grad_elsewhere(unwrapped(grad), unwrapped(tensor)), [grad], index_below(tensor), [tensor])
        return func(tensor, moved(grad, index_below(tensor)))

    _handlers: dict[Any, Function] = {  # noqa: RUF012
        **dict.fromkeys(UNTOUCHED, _untouched),
        **dict.fromkeys(MAKERS, _make),
        **dict.fromkeys(DEVICE_QUESTIONS, _answer),
        torch.Tensor.get_device: _get_device,
        torch.Tensor.to: _to,
        torch.Tensor.cuda: _cuda,
        **dict.fromkeys(PARTS, _sparse),
        **dict.fromkeys(COMPARING, _comparing),
        **dict.fromkeys(BY_ELEMENT, _by_element),
        torch.Tensor.register_hook: _register_hook,
        **dict.fromkeys(ON_HOST, _on_host),
        torch.ctc_loss: _ctc,
        F.ctc_loss: _ctc,
        SET_GRAD: _set_grad,
        SET_DATA: _set_data,
        torch.Tensor.new_tensor: _new_tensor,
        torch.Tensor.new: _new,
        torch.Tensor.__getitem__: _index,
        torch.Tensor.__setitem__: _index,
    }


def _listed(lengths: object) -> object:
    return tuple(lengths.tolist()) if isinstance(lengths, torch.Tensor) else lengths


# NOTE [The fast path of a call]
# Every call of a torch function passes here, and most name no device: two loops find that out, and
# which device is meant. For two tensors they take 0.35 us and 0.2 us; `any` and `next` over generators
# take three times as long.


def _may_name_device(args: Args) -> bool:
    for value in args:
        kind = type(value)
        if kind is str or kind is torch.device:
            return True
    return False


def _is_modelled(out: Any, args: Args) -> bool:
    """Whether a call has made a tensor after its first argument, as ``zeros_like`` does."""
    return bool(args) and isinstance(args[0], torch.Tensor) and isinstance(out, torch.Tensor) and out is not args[0]


def _first_index(values: Iterable[Any]) -> int | None:
    """The device of the first simulated tensor, in lists too."""
    for value in values:
        kind = type(value)
        if kind is SimulatedTensor:
            return int(value._index)
        found = None
        if kind is list or kind is tuple:
            found = _first_index(value)
        elif kind is torch.Tensor and is_wrapped(value):
            found = index_below(value)
        if found is not None:
            return found
    return None


def _name_device(error: TypeError) -> None:
    """Assignments name the type in C++, ``meta``: the message says what it is."""
    text = error.args[0] if error.args and isinstance(error.args[0], str) else ""
    if "can't assign" in text:
        error.args = (text.replace("torch.meta.", "torch.cuda."), *error.args[1:])


def _grad_elsewhere(grad: torch.Tensor, tensor: torch.Tensor) -> RuntimeError:
    """What torch says of a gradient on another device, or on another type of device."""
    what, devices = "with device type", [grad.device.type, tensor.device.type]
    if grad.is_cuda and tensor.is_cuda:
        what, devices = "located on device with index", [f"{grad.get_device()}", f"{tensor.get_device()}"]
    return RuntimeError(
        f"attempting to assign a gradient {what} '{devices[0]}' to a tensor {what} '{devices[1]}'. "
        "Please ensure that the gradient and the tensor are on the same device"
    )


def _is_meta(device: Any) -> bool:
    return device is not None and torch.device(device).type == "meta"
