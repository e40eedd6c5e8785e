"""Autocast on simulated devices: torch's own lists for CUDA, read from the header that ships with it.

torch decides by the device that C++ sees, ``meta`` here, so that its own kernels would cast nothing. These kernels take
their place, do the same, and are taken out again.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from lightning_devcheck._simulate.arguments import Args, Kwargs, by_name, call_changed, tensors_in
from lightning_devcheck._simulate.compat import (
    AUTOCAST_KEY,
    Operator,
    below_autocast,
    kernels_for,
    scoped_library,
)
from lightning_devcheck._simulate.ops.table import TABLE, Cast, Row
from lightning_devcheck._simulate.patch import Change
from lightning_devcheck._simulate.state import active, running
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor

HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
LISTS: dict[str, Cast] = {
    "AT_FORALL_LOWER_PRECISION_FP": "lower",
    "AT_FORALL_FP32": "full",
    "AT_FORALL_FP32_SET_OPT_DTYPE": "dtype",
    "AT_FORALL_PROMOTE": "promote",
}
BANNED = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


@functools.cache
def policies() -> dict[str, Cast]:
    """How each operator is cast: to the ``lower`` or the ``full`` precision, by its ``dtype``, or ``promote``."""
    found: dict[str, Cast] = {}
    text = HEADER.read_text(encoding="utf-8") if HEADER.exists() else ""
    for name, policy in LISTS.items():
        body = re.search(rf"#define {name}\(_\)((?:.*\\\n)*.*\n)", text)
        for operator, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", body[1] if body else ""):
            found[operator + (f".{overload}" if overload else "")] = policy
    return found


class Casts:
    """The kernels, and the weights that were cast within an outermost autocast block."""

    def __init__(self) -> None:
        self._cache: Any = WeakTensorKeyDictionary()
        self._keeps_without_graph = _keeps_without_graph()

    def _is_kept(self) -> bool:
        """Whether a cast that is made now is kept for later, when its graph may be wanted."""
        return self._keeps_without_graph or torch.is_grad_enabled()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the kernels in torch's place."""
        special = [name.removeprefix("aten::") for name, row in TABLE.items() if "cast" in row]
        with scoped_library() as library:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=r"[\s\S]*Overriding a previously registered kernel")
                for name in {*kernels_for(AUTOCAST_KEY), *special}:
                    kernel = self._kernel(name)
                    if kernel is not None:
                        library.impl(name, kernel, AUTOCAST_KEY)
            yield

    def stand_ins(self) -> Iterator[Change]:
        """What to replace: owner, attribute and stand-in."""
        clear, switch = torch.clear_autocast_cache, torch.set_autocast_enabled

        @functools.wraps(clear)
        def clear_autocast_cache() -> None:
            self._cache.clear()
            clear()

        @functools.wraps(switch)
        def set_autocast_enabled(*args: Any) -> None:
            switch(*args)
            note_autocast()

        yield torch, "clear_autocast_cache", clear_autocast_cache
        yield torch, "set_autocast_enabled", set_autocast_enabled

    def _kernel(self, name: str) -> Callable[..., Any] | None:
        row = TABLE.get(f"aten::{name}", Row())
        if "with_dtype" in row:
            return _below(_appending(_overload(row["with_dtype"])))
        match row.get("cast", policies().get(name)):
            case "lower":
                make = self._to_lower
            case "full":
                make = self._to_full
            case "promote":
                make = self._promoting
            case "dtype":
                make = _with_dtype
            case "banned":
                return _banned
            case _:
                return None
        return _below(make(_overload(name)))

    def _to_lower(self, operator: Operator) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._call(operator, args, kwargs, torch.get_autocast_dtype("cuda"))

    def _to_full(self, operator: Operator) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._call(operator, args, kwargs, torch.float32)

    def _promoting(self, operator: Operator) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            eligible = filter(_is_eligible, tensors_in(*args, *kwargs.values()))
            full = any(tensor.dtype is torch.float32 for tensor in eligible)
            dtype = torch.float32 if full else torch.get_autocast_dtype("cuda")
            return self._call(operator, args, kwargs, dtype)

        return kernel

    def _call(self, operator: Operator, args: Args, kwargs: Kwargs, dtype: torch.dtype) -> Any:
        return call_changed(operator, args, kwargs, functools.partial(self._cast, dtype=dtype))

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        """The argument in another precision; weights are cast once, so that their gradients add up before the cast."""
        if not _is_eligible(value) or value.dtype is dtype:
            return value
        lower = dtype is torch.get_autocast_dtype("cuda") and _is_weight(value)
        if not lower or not torch.is_autocast_cache_enabled() or not self._is_kept():
            return value.to(dtype)
        if value not in self._cache:
            self._cache[value] = value.to(dtype)
        return self._cache[value]


@functools.cache
def _keeps_without_graph() -> bool:
    """Whether torch keeps casts of weights that were made without gradients, as it did before 2.11: the CPU tells."""
    with torch.inference_mode(False), torch.enable_grad():
        weight = torch.ones(1, 1, requires_grad=True, device="cpu", dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                weight.mm(weight)
            return not weight.mm(weight).requires_grad


def note_autocast() -> None:
    """Keep whether autocast is on: torch hides it from a mode that an operator was handed to."""
    simulation = active()
    if simulation is not None:
        simulation.here.casts = torch.is_autocast_enabled("cuda")


def _is_eligible(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    if value.dtype is torch.float64:
        return False
    if isinstance(value, SimulatedTensor):
        return True
    # one with dimensions belongs on the device, and the simulation may go on from that
    return running().note is not None and value.dim() > 0


def _is_weight(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()


def _below(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel with autocast out of the way, for what it calls."""

    def call(*args: Any, **kwargs: Any) -> Any:
        here = running().here
        before, here.casts = here.casts, False
        try:
            with below_autocast():
                return kernel(*args, **kwargs)
        finally:
            here.casts = before

    return call


def _with_dtype(operator: Operator) -> Callable[..., Any]:
    """Leave the argument as it is and ask for a float32 result, unless another one is asked for."""
    position = next(i for i, argument in enumerate(operator._schema.arguments) if argument.name == "dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = args[position] if len(args) > position else kwargs.get("dtype")
        if _is_eligible(args[0]) and given is None:
            args, kwargs = args[:position], {**kwargs, "dtype": torch.float32}
        return operator(*args, **kwargs)

    return kernel


def _appending(operator: Operator) -> Callable[..., Any]:
    """``norm``: the overload that takes the result's dtype."""
    names = [argument.name for argument in operator._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.float32 if _is_eligible(args[0]) else args[0].dtype
        given = {"p": 2, **by_name(names, args, kwargs), "dtype": dtype}
        return operator(*(given.get(name, False) for name in names if name != "dtype"), dtype=dtype)

    return kernel


def _banned(*args: object, **kwargs: object) -> None:
    raise RuntimeError(BANNED)


def _overload(name: str) -> Operator:
    packet, _, overload = name.partition(".")
    found: Operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found
