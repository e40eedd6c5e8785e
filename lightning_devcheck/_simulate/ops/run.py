"""How operators run on simulated tensors: which devices they take, and where their results are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from enum import Enum, auto
from typing import Any, Final, Literal

import torch

from lightning_devcheck._simulate.arguments import MASKS, Args, Kwargs, by_name, call_changed, map_nested, tensors_in
from lightning_devcheck._simulate.compat import Operator, no_dispatch, return_and_correct_aliasing
from lightning_devcheck._simulate.host_reads import note_host_read
from lightning_devcheck._simulate.ops.dispatch import run_parts
from lightning_devcheck._simulate.ops.placement import is_mismatch, name_tensors, result_device, settle
from lightning_devcheck._simulate.ops.plan import PLANS, Plan, is_written
from lightning_devcheck._simulate.state import Index, Placement, running
from lightning_devcheck._simulate.tensor.generators import drawing_from, made_at
from lightning_devcheck._simulate.tensor.refusing import refuse, trying
from lightning_devcheck._simulate.tensor.simulated import CPU, SimulatedTensor, index_of, place, with_data
from lightning_devcheck._simulate.tensor.wrapper import Wrapper

Call = Callable[[Plan, Args, Kwargs, Index], Any]
PLAIN = frozenset((int, float, bool, str, complex, type(None)))
PLAIN |= {torch.dtype, torch.layout, torch.memory_format}


class _Scan(Enum):
    """What a look at an operator's arguments finds, if not one device for all."""

    MIXED = auto()
    UNSEEN = auto()


MIXED: Final = _Scan.MIXED
UNSEEN: Final = _Scan.UNSEEN


def run(func: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Check the devices of an operator's arguments, run it, put the result on its device."""
    plan = PLANS[func]
    if plan.waits is not None:
        note_wait(plan, args)
    if plan.quick and not kwargs and not (plan.draws and running().streams):
        index, inner = _common_index(args)
        if index is None:
            return func(*inner)
        if index is not MIXED:
            return _finish(plan, args, kwargs, func(*inner), index)
    return run_checked(plan, args, kwargs)


# NOTE [The fast path of an operator]
# Most operators get their tensors and numbers one by one, and all tensors are on one device. One loop
# then compares devices and unwraps, and no list of names and arguments is made: `a * b` takes 18 us on
# a simulated device that way, and 28 us by `run_checked`. So the loop spells out what `tensors_in`,
# `index_of` and `unwrapped` do, and looks types up instead of asking `isinstance`. For the same reason
# plans are looked up in a dictionary: 0.15 us, and 0.23 us by a cached function.


def _common_index(args: Args) -> tuple[int | Literal[_Scan.MIXED] | None, list[Any]]:
    """Find the one device of all tensors, and what runs there; `MIXED` if that takes a closer look."""
    index: int | _Scan | None = UNSEEN
    inner = []
    for value in args:
        kind = type(value)
        if kind is SimulatedTensor:
            found = value._index
            value = value._inner
        elif kind in PLAIN:
            inner.append(value)
            continue
        elif kind is torch.Tensor or kind is torch.nn.Parameter:
            found = None
        elif kind is list and not any(isinstance(item, torch.Tensor) for item in value):
            inner.append(value)
            continue
        else:
            return MIXED, inner
        if index is UNSEEN:
            index = found
        elif index != found:
            return MIXED, inner
        inner.append(value)
    return (None if index is UNSEEN else index), inner


def note_wait(plan: Plan, args: Args) -> None:
    """Count a host read, if an operator, as called, makes the host wait."""
    if not running().record_host_reads:
        return
    if plan.waits == "result":
        read = [value for value in args if isinstance(value, torch.Tensor)]
    else:  # of indices only masks are read
        read = [tensor for tensor in tensors_in(*args[1:2]) if tensor.dtype in MASKS]
    if any(tensor.is_cuda for tensor in read):
        note_host_read()


def call_inner(plan: Plan, args: Args, kwargs: Kwargs, index: Index) -> Any:
    """Call an operator on the inner tensors."""
    func = plan.operator if index is None else plan.inner
    return call_changed(func, args, kwargs, unwrapped)


def run_checked(plan: Plan, args: Args, kwargs: Kwargs, call: Call = call_inner) -> Any:
    """Check the devices of an operator's arguments, call it, and put the result on its device.

    Args:
        plan: What is known of the operator.
        args: Its arguments.
        kwargs: Its keyword arguments.
        call: Calls it with these three and the device of the result.
    """
    index = result_device(plan, args, kwargs)
    match index:
        case Placement.PER_ROW:
            return _run_rows(plan, args, kwargs, call)
        case Placement.BY_PARTS:
            try:
                with trying():
                    return run_parts(plan.operator, args, kwargs)
            except RuntimeError as error:
                if not is_mismatch(error):
                    raise
                # what composes it has compared devices itself: it runs whole
                index = settle(plan, error, name_tensors(plan, args, kwargs))
        case Placement.NO_DATA:
            return plan.operator(*args, **kwargs)
    if plan.random:
        _check_generator(kwargs.get("generator"), index)
    if index is not None and kwargs.get("device") is not None:
        args = [with_data(value) for value in args]
    stream = running().streams.get(index) if plan.draws and index is not None else None
    with nullcontext() if stream is None else drawing_from(stream):
        out = call(plan, args, kwargs, index)
    return _finish(plan, args, kwargs, out, index)


def _finish(plan: Plan, args: Args, kwargs: Kwargs, out: Any, index: int | None) -> Any:
    """Put what an operator returned on its device."""
    if index is not None:
        running().here.latest = index
        if plan.host_results:
            results = [_wrap(value, index) for value in out]
            for position in plan.host_results:
                results[position] = out[position]
            return tuple(results)
    if plan.returns == "written":
        return _written(plan, args, kwargs, out, index)
    if index is None:
        return out
    if plan.returns == "view" and args[0].is_inference():
        with torch.inference_mode():  # what views such a tensor is one
            return _wrap(out, index)
    wrapped = _wrap(out, index)
    if plan.returns == "reshaped":
        return return_and_correct_aliasing(plan.operator, tuple(args), kwargs, wrapped)
    return wrapped


def _check_generator(generator: torch.Generator | None, index: int | None) -> None:
    if generator is None:
        return
    found, made = made_at(generator)
    if (found is None) != (index is None):
        wanted, got = ("cpu", "cuda") if index is None else ("cuda", "cpu")
        error = RuntimeError(f"Expected a '{wanted}' device type for generator but found '{got}'")
        refuse(error, home=index, made=made)


def _run_rows(plan: Plan, args: Args, kwargs: Kwargs, call: Call) -> Any:
    """Run an operator over tensor lists; each row of the result is on its row's device."""
    first = next(argument for argument in args if isinstance(argument, (list, tuple)))
    indices = [index_of(tensor) for tensor in first]
    out = call(plan, args, kwargs, Placement.PER_ROW)
    if isinstance(out, list) and len(out) == len(indices):
        return [place(tensor, index) for tensor, index in zip(out, indices, strict=True)]
    return out


def _written(plan: Plan, args: Args, kwargs: Kwargs, out: Any, index: int | None) -> Any:
    """Return the arguments that were written into, themselves; other results are new."""
    given = by_name(plan.names, args, kwargs)
    schema = plan.operator._schema
    by_alias: dict[str, Any] = {}
    for argument in filter(is_written, schema.arguments):
        value = given.get(argument.name)
        if value is not None:
            by_alias[_alias_name(argument.alias_info)] = value
            for tensor in tensors_in(value):
                _follow_shape(tensor)
    outs = out if len(schema.returns) > 1 else (out,)
    results = []
    for returned, value in zip(schema.returns, outs, strict=False):
        if is_written(returned):
            value = by_alias.get(_alias_name(returned.alias_info), value)
        elif index is not None:
            value = _wrap(value, index)
        results.append(value)
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


def _alias_name(info: Any) -> str:
    """Take the ``a`` of an alias annotation ``Tensor(a!)``; lists have none."""
    return next(iter(info.before_set), "")


def _follow_shape(tensor: torch.Tensor) -> None:
    """Follow an operator that has resized the inner tensor (``out=``)."""
    if not isinstance(tensor, Wrapper) or tensor._inner.layout is not torch.strided:
        return
    inner = tensor._inner
    if tensor.shape == inner.shape:
        return
    storage = torch.UntypedStorage(inner.untyped_storage().nbytes(), device="meta")
    set_storage = torch.ops.aten.set_.source_Storage_storage_offset
    with no_dispatch():
        set_storage(tensor, storage, 0, inner.shape, inner.stride())


def unwrapped(value: object) -> object:
    """Take what a tensor holds, and the CPU for a device."""
    if isinstance(value, Wrapper):
        return value._inner
    if isinstance(value, torch.device) and value.type in ("meta", "cuda"):
        return CPU
    return value


def _wrap(value: Any, index: int) -> Any:
    if type(value) is torch.Tensor:
        return SimulatedTensor(value, index)
    if isinstance(value, SimulatedTensor):
        return value
    if isinstance(value, torch.Tensor):
        return SimulatedTensor(value, index)
    if isinstance(value, (list, tuple)):
        return map_nested(value, lambda item: _wrap(item, index))
    return value
