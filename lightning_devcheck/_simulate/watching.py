"""Where each tensor's device was decided: the factory, move or load that its values go back to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lightning_devcheck._simulate.arguments import Args, Kwargs
from lightning_devcheck._simulate.compat import MAKE_SUBCLASS, Operator, of_data
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import active, running
from lightning_devcheck._simulate.tensor.places import decide, decide_here, decided, take_over
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor, index_of
from lightning_devcheck._witness.places import NOWHERE, Place

# NOTE [One place for a tensor]
# A tensor's place is where its device was decided. A result takes it over from the first operand on
# its own device that has dimensions, else from the first one there; only where there is none, as
# for a factory, a move or a load, the frames are walked. Most operators walk none.


def watch(func: Operator, args: Args, kwargs: Kwargs, out: Any) -> None:
    """Write down where the devices of an operator's results were decided; others keep their own."""
    kind = type(out)
    if kind is SimulatedTensor:
        if out._place is None:
            out._place = _place_of_result(func, args, kwargs, out._index)
    elif kind is list or kind is tuple:
        for item in out:
            watch(func, args, kwargs, item)
    elif isinstance(out, torch.Tensor) and decided(out) is None:
        decide(out, _place_of_result(func, args, kwargs, index_of(out)))


def _place_of_result(func: Operator, args: Args, kwargs: Kwargs, index: int | None) -> Place:
    """Take over the place of an operand on the same device; else take the running one."""
    if func is of_data:  # by which every tensor made of numbers or of an array comes in
        return running().places.here()
    found = _first_place(index, args)
    if found is None and kwargs:
        found = _first_place(index, kwargs.values())
    if found is None:
        return running().places.here()
    return found[1]


def _first_place(index: int | None, values: Iterable[Any]) -> tuple[bool, Place] | None:
    """Find the place of the first tensor on a device, best of one with dimensions.

    Returns:
        Whether it has dimensions, and the place, `NOWHERE` where it was not seen; None where no
        tensor is there.
    """
    best: tuple[bool, Place] | None = None
    for value in values:
        kind = type(value)
        found = None
        if kind is SimulatedTensor:
            if value._index == index:
                found = (value.dim() > 0, value._place or NOWHERE)
        elif kind is list or kind is tuple:
            found = _first_place(index, value)
        elif index is None and isinstance(value, torch.Tensor) and kind is not SimulatedTensor:
            found = (value.dim() > 0, decided(value) or NOWHERE)
        if found is None:
            continue
        if found[0]:
            return found
        best = best or found
    return best


def watching_stand_ins() -> Iterable[Change]:
    """What to replace: owner, attribute and stand-in."""
    yield torch.utils, "swap_tensors", _swapping(torch.utils.swap_tensors)
    # what makes tensor objects and runs no operator; `nn.Parameter` is made by the first
    owner, name = MAKE_SUBCLASS
    yield owner, name, staticmethod(_noting(getattr(owner, name)))
    yield torch.Tensor, "as_subclass", _noting(_as_subclass(torch.Tensor.as_subclass))
    yield torch, "frombuffer", _noting(torch.frombuffer)
    yield torch, "from_dlpack", _noting(torch.from_dlpack)
    yield torch.utils.dlpack, "from_dlpack", _noting(torch.utils.dlpack.from_dlpack)


def _swapping(original: Callable[..., None]) -> Callable[..., None]:
    """``swap_tensors`` for tensors that are watched: it refuses what has weak references."""

    @functools.wraps(original)
    def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
        if active() is None:
            return original(t1, t2)
        table = running().places_of_plain
        first, second = table.take(t1), table.take(t2)
        try:
            original(t1, t2)
        except RuntimeError:
            first, second = second, first
            raise
        finally:
            for tensor, place in ((t1, second), (t2, first)):
                if place is not None:
                    table.put(tensor, place)

    return swap_tensors


def _as_subclass(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.as_subclass(Tensor)``: to torch 2.6 a wrapper cannot be one."""

    @functools.wraps(original)
    def as_subclass(tensor: torch.Tensor, cls: type) -> Any:
        if cls is torch.Tensor and isinstance(tensor, SimulatedTensor):
            return torch.ops.aten.alias(tensor)
        return original(tensor, cls)

    return as_subclass


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a tensor object, of another one or of memory."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if active() is None or decided(made) is not None:
            return made
        source = next((value for value in args if isinstance(value, torch.Tensor)), None)
        if source is None:
            decide_here(made)
        else:
            take_over(made, source)
        return made

    return make
