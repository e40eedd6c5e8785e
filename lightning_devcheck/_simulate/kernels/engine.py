"""What the autograd engine checks of real devices and skips for simulated ones: the devices of gradients."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain, repeat
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from lightning_devcheck._simulate.arguments import Function
from lightning_devcheck._simulate.compat import (
    ENGINE,
    FUNCTION_NODE,
    gives_leaves_gradients,
    run_backward,
    unwrapped,
)
from lightning_devcheck._simulate.going_on import moved
from lightning_devcheck._simulate.gradients import bring_gradients_home, kept_in_place
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import Here, Simulation, device_at, running
from lightning_devcheck._simulate.tensor.refusing import refuse
from lightning_devcheck._simulate.tensor.simulated import index_below

# how torch names the type of a tensor on `meta` in its messages: in C++, and in Python
DTYPE = r"(?:Complex)?(?:Float|Double|Half)|BFloat16|Byte|Char|Short|Int|Long|Bool"
META_TYPE = re.compile(rf"\bMeta({DTYPE})Type\b|\btorch\.meta\.({DTYPE})Tensor\b")


def backward_stand_ins(mode: TorchFunctionMode) -> Iterable[Change]:
    """What to replace: owner, attribute and stand-in.

    Args:
        mode: The function mode; hooks and custom Functions make tensors in backward.
    """
    yield saved_tensors_hooks, "__init__", _packing(mode, saved_tensors_hooks.__init__)
    yield (*ENGINE, _engine(mode, run_backward))
    yield torch.autograd.Function, "apply", classmethod(_noting(vars(torch.autograd.Function)["apply"]))
    yield FUNCTION_NODE, "apply", _checking(FUNCTION_NODE.apply)
    # also by which modules have their backward hooks called
    yield FUNCTION_NODE, "register_hook", _registering(FUNCTION_NODE.register_hook)


def _packing(mode: TorchFunctionMode, original: Function) -> Function:
    """Hooks on saved tensors with the mode on: torch packs while a call is on its way, for which it is off."""

    @functools.wraps(original)
    def make(hooks: Any, pack_hook: Function, unpack_hook: Function) -> None:
        def pack(tensor: torch.Tensor) -> Any:
            with mode:
                return pack_hook(tensor)

        original(hooks, pack, unpack_hook)

    return make


def _engine(mode: TorchFunctionMode, run_backward: Function) -> Function:
    """The engine's entry with the mode on, the given gradients checked, and errors in CUDA's words."""

    def run_engine(roots: Sequence[Any], gradients: Sequence[Any], *args: object, **kwargs: object) -> Any:
        places = [index_below(root) if isinstance(root, torch.Tensor) else None for root in roots]
        checked = _check("", zip(roots, places, gradients, strict=False))
        simulation = running()
        try:
            with _watching(simulation, roots, kwargs), _on_the_way_back(simulation.here), mode:
                out = run_backward(roots, tuple(checked), *args, **kwargs)
        except RuntimeError as error:
            _translate(error)
            raise
        if not simulation.went_on:
            return out
        bring_gradients_home([root for root in roots if isinstance(root, torch.Tensor)])
        return _at_home(out, args)

    return run_engine


def _watching(simulation: Simulation, roots: Sequence[Any], options: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Have the program's backward looked at; one inside of another is a checkpoint's, not the program's."""
    watch = simulation.watch_backward
    if watch is None or simulation.here.backward:
        return nullcontext()
    return watch(roots, gives_leaves_gradients(options))


@contextmanager
def _on_the_way_back(here: Here) -> Iterator[None]:
    """Know in this thread that autograd is on its way back."""
    before, here.backward = here.backward, True
    try:
        yield
    finally:
        here.backward = before


def _at_home(gradients: Any, args: Sequence[Any]) -> Any:
    """Put what ``torch.autograd.grad`` returns on the devices of its inputs, the third argument behind the gradients.

    ``backward`` returns nothing.
    """
    if not isinstance(gradients, tuple):
        return gradients
    placed = []
    for gradient, asked in zip(gradients, args[2], strict=True):
        if gradient is not None and isinstance(asked, torch.Tensor):  # it may be an edge of the graph
            gradient = moved(gradient, index_below(asked))
        placed.append(gradient)
    return tuple(placed)


def _translate(error: RuntimeError) -> None:
    """A hook that moves a gradient, a tensor changed in place: torch names the type, ``meta`` here."""
    if error.args and isinstance(error.args[0], str):
        text = META_TYPE.sub(lambda found: f"torch.cuda.{found[1] or found[2]}Tensor", error.args[0])
        error.args = (text, *error.args[1:])


def _noting(original: Any) -> Function:
    """``Function.apply`` that leaves on the node where each input is, by its position."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        out = original.__get__(None, cls)(*args, **kwargs)  # a Python method to torch 2.13, a C one from 2.14
        first = out[0] if isinstance(out, (tuple, list)) and out else out
        node = first.grad_fn if isinstance(first, torch.Tensor) else None
        if isinstance(node, FUNCTION_NODE):
            tensors = ((n, value) for n, value in enumerate(args) if isinstance(value, torch.Tensor))
            node._simulated_inputs = {n: index_below(tensor) for n, tensor in tensors}
        return out

    return apply


def _checking(original: Function) -> Function:
    """A custom Function's backward whose gradients are on their inputs' devices, or an error as the engine's."""

    def apply(self: Any, *grads: Any) -> Any:
        out = original(self, *grads)
        inputs = getattr(self, "_simulated_inputs", None)
        if inputs is None:
            return out
        several = isinstance(out, (tuple, list))
        results = list(out) if several else [out]
        edges = chain((node for node, _ in self.next_functions), repeat(None))
        rows = [(next(edges), index, results[n]) for n, index in inputs.items() if n < len(results)]
        checked = _check(f"Function {self.name()} returned an ", rows)
        for n, gradient in zip(inputs, checked, strict=False):
            results[n] = gradient
        return tuple(results) if several else results[0]

    return apply


def _check(who: str, rows: Iterable[tuple[Any, int | None, Any]]) -> list[Any]:
    """Gradients on the wanted devices: 0-dim ones are moved without a word, as the engine does.

    Raises:
        RuntimeError: For a gradient with dimensions on another device, in the engine's words.
    """
    checked = []
    for position, (target, index, gradient) in enumerate(rows):
        if target is not None and isinstance(gradient, torch.Tensor) and index_below(gradient) != index:
            if gradient.dim():
                refuse(_invalid(who, position, index, gradient), [gradient], index)
            gradient = moved(gradient, index)
        checked.append(gradient)
    return checked


def _registering(original: Function) -> Function:
    """``register_hook`` of a custom Function's node."""

    @functools.wraps(original)
    def register_hook(self: Any, hook: Function) -> Any:
        return original(self, kept_in_place(hook))

    return register_hook


def _invalid(who: str, position: int, index: int | None, gradient: torch.Tensor) -> RuntimeError:
    expected, got = device_at(index), unwrapped(gradient).device
    error = RuntimeError(f"{who}invalid gradient at index {position} - expected device {expected} but got {got}")
    error.devices = (expected, got)  # type: ignore[attr-defined]
    return error
