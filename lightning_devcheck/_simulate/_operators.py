"""How operators run on simulated tensors: which devices they take, and where their results are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from lightning_devcheck._simulate._compat import (
    no_dispatch,
    return_and_correct_aliasing,
    run_composed,
    sparse_mm_reduce,
    zeros_without_data,
)
from lightning_devcheck._simulate._generators import address_of, drawing_from
from lightning_devcheck._simulate._host import HOST_READS, note_host_read
from lightning_devcheck._simulate._placing import COMPOSED, NO_DATA, ROWS, mismatch, result_device, tensors_of
from lightning_devcheck._simulate._rules import DeviceRule, argument_names, rule_of
from lightning_devcheck._simulate._state import running
from lightning_devcheck._simulate._tensor import CPU, SimulatedTensor, index_of, place, with_data
from lightning_devcheck._simulate._wrapper import Wrapper


def run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Check the devices of an operator's arguments, run it on the inner tensors, put the result on its device."""
    plan = _PLANS.get(func) or plan_of(func)
    if plan.host_read:
        note_host_read(func, args)
    if plan.quick and "device" not in kwargs and not (plan.draws and running().streams):
        index, inner = _common_index(args)
        if index is not MIXED and not kwargs:
            return func(*inner) if index is None else _finish(plan, func, args, kwargs, func(*inner), index)
    return run_checked(plan, func, args, kwargs)


def _common_index(args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The device of all tensors among plain arguments and their inner values; `MIXED` if that takes a closer look."""
    index: Any = UNSEEN
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


def call_inner(plan: Plan, func: Any, args: Sequence[Any], kwargs: dict[str, Any], index: Any) -> Any:
    """Call an operator on the inner tensors."""
    return func(*_unwrap(args), **{name: _unwrap_one(value) for name, value in kwargs.items()})


def run_checked(
    plan: Plan, func: Any, args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., Any] = call_inner
) -> Any:
    """Check the devices of an operator's arguments, call it, and put the result on its device.

    Args:
        plan: What is known of the operator.
        func: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments.
        call: Calls it with the plan, these three and the device of the result.
    """
    index = result_device(func, args, kwargs)
    if index is ROWS:
        return _run_rows(plan, func, args, kwargs, call)
    if index is COMPOSED:
        return run_parts(func, args, kwargs)
    if index is NO_DATA:
        return func(*args, **kwargs)
    if plan.rule.random:
        _check_generator(kwargs.get("generator"), index)
    if index is not None:
        func = WITH_DATA.get(func, func)
        if call is call_inner:
            func = WITH_POSITIONS.get(func, func)
        if kwargs.get("device") is not None:
            args = [with_data(value) for value in args]
    stream = running().streams.get(index) if plan.draws else None
    with nullcontext() if stream is None else drawing_from(stream):
        out = call(plan, func, args, kwargs, index)
    return _finish(plan, func, args, kwargs, out, index)


def _finish(plan: Plan, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, index: int | None) -> Any:
    """Put what an operator returned on its device."""
    if index is not None:
        running().here.latest = index
        if plan.rule.host_results:
            return type(out)(v if i in plan.rule.host_results else _wrap(v, index) for i, v in enumerate(out))
    if plan.returns == "new":
        return out if index is None else _wrap(out, index)
    if plan.returns == "written":
        return _written(func, args, kwargs, out, index)
    if index is None:
        return out
    if plan.returns == "view":
        if not args[0].is_inference():
            return _wrap(out, index)
        with torch.inference_mode():  # what views such a tensor is one
            return _wrap(out, index)
    return return_and_correct_aliasing(func, tuple(args), kwargs, _wrap(out, index))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of an operator before it is called.

    Attributes:
        rule: Its device rule.
        returns: How its results relate to its arguments.
        quick: Whether one device for all tensors is all there is to check.
        host_read: Whether the host waits for its result on a real device.
        draws: Whether it draws random numbers.
        names: Its arguments' names, in order.
    """

    rule: DeviceRule
    returns: str
    quick: bool
    host_read: bool
    draws: bool
    names: tuple[str, ...]


def plan_of(func: Any) -> Plan:
    """What is known of an operator."""
    if func not in _PLANS:
        _PLANS[func] = _make_plan(func)
    return _PLANS[func]


def is_view(func: Any) -> bool:
    """Whether an operator's result shares its first argument's memory."""
    return plan_of(func).returns == "view"


def _make_plan(func: Any) -> Plan:
    rule, returns, names = rule_of(func), _returns_of(func), tuple(argument_names(func))
    quick = rule.kind in ("one", "iterator", "choosing") and not rule.random and not rule.host_results
    quick = quick and func not in WITH_POSITIONS
    host_read = func._schema.name in HOST_READS or rule.kind == "index"
    draws = torch.Tag.nondeterministic_seeded in func.tags
    return Plan(rule, returns, quick, host_read, draws, names)


# autograd's zeros without data, which no CPU kernel may be given: torch takes care of that above our mode only
WITH_DATA = {zeros_without_data: torch.ops.aten.zeros.default}


def _sparse_mm_reduce(sparse: torch.Tensor, dense: torch.Tensor, reduce: str) -> Any:
    """With the positions that its backward reads: the kernel keeps them for a tensor that requires a gradient."""
    return sparse_mm_reduce(sparse.detach().requires_grad_(), dense, reduce)


WITH_POSITIONS: dict[Any, Callable[..., Any]] = {sparse_mm_reduce: _sparse_mm_reduce}
_PLANS: dict[Any, Plan] = {}
PLAIN = frozenset((int, float, bool, str, complex, type(None), torch.dtype, torch.layout, torch.memory_format))
MIXED, UNSEEN = object(), object()


def _check_generator(generator: Any, index: int | None) -> None:
    found = None if generator is None else running().generators.get(address_of(generator))
    if generator is not None and (found is None) != (index is None):
        wanted, got = ("cpu", "cuda") if index is None else ("cuda", "cpu")
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{got}'")


def _run_rows(plan: Plan, func: Any, args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
    """Run an operator over tensor lists; each row of the result is on its row's device."""
    first = next(argument for argument in args if isinstance(argument, (list, tuple)))
    indices = [index_of(tensor) for tensor in first]
    out = call(plan, func, args, kwargs, ROWS)
    if isinstance(out, list) and len(out) == len(indices):
        return [place(tensor, index) for tensor, index in zip(out, indices, strict=True)]
    return None if out is None else out


def run_parts(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator by its parts, each with its own check, as CUDA does where it has no kernel of its own."""
    from lightning_devcheck._simulate._operator_mode import OperatorMode  # the two files need each other

    try:
        with OperatorMode(running()):
            return run_composed(func, rule_of(func).composed, args, kwargs)
    except RuntimeError as error:
        if "meta" not in str(error) and not isinstance(error, NotImplementedError):
            raise
        devices = list(dict.fromkeys(tensor.device for tensor in tensors_of((*args, *kwargs.values()))))
        raise mismatch(func, (devices[0], devices[-1]), None) from error


@functools.cache
def _returns_of(func: Any) -> str:
    """How the returns of an operator relate to its arguments: ``new``, ``written``, ``view`` or ``reshaped``."""
    if torch.Tag.inplace_view in func.tags:
        return "reshaped"
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
            by_alias[_alias_name(info)] = value = given[argument.name]
            for tensor in tensors_of([value]):
                _follow_shape(tensor)
    returns = func._schema.returns
    outs = out if len(returns) > 1 else (out,)
    results = [
        by_alias.get(_alias_name(returned.alias_info), value)
        if returned.alias_info is not None and returned.alias_info.is_write
        else (value if index is None else _wrap(value, index))
        for returned, value in zip(returns, outs, strict=False)
    ]
    return tuple(results) if len(returns) > 1 else (results[0] if results else None)


def _alias_name(info: Any) -> str:
    """The letter of an alias annotation, ``a`` of ``Tensor(a!)``; empty for lists, which have none."""
    return next(iter(info.before_set), "")


def _follow_shape(tensor: torch.Tensor) -> None:
    """An operator may have resized the inner tensor (``out=``)."""
    if isinstance(tensor, Wrapper) and tensor._inner.layout is torch.strided:
        inner = tensor._inner
        if tensor.shape != inner.shape:
            with no_dispatch():
                torch.ops.aten.set_.source_Storage_storage_offset(
                    tensor,
                    torch.UntypedStorage(inner.untyped_storage().nbytes(), device="meta"),
                    0,
                    inner.shape,
                    inner.stride(),
                )


def _unwrap(values: Sequence[Any]) -> list[Any]:
    return [_unwrap_one(value) for value in values]


def _unwrap_one(value: Any) -> Any:
    if isinstance(value, Wrapper):
        return value._inner
    if isinstance(value, (list, tuple)):
        return [_unwrap_one(item) for item in value]
    if isinstance(value, torch.device) and value.type in ("meta", "cuda"):
        return CPU
    return value


def _wrap(value: Any, index: int) -> Any:
    if type(value) is torch.Tensor:
        return SimulatedTensor(value, index)
    if isinstance(value, torch.Tensor):
        return value if isinstance(value, SimulatedTensor) else SimulatedTensor(value, index)
    if isinstance(value, (list, tuple)):
        return type(value)(_wrap(item, index) for item in value)
    return value
