"""How operators run where there are no values: on shapes and dtypes, with stand-ins for what is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lightning_devcheck._simulate._collectives import communicate
from lightning_devcheck._simulate._compat import return_and_correct_aliasing
from lightning_devcheck._simulate._host import note_host_read
from lightning_devcheck._simulate._operators import Plan, call_inner, plan_of, run, run_checked
from lightning_devcheck._simulate._placing import tensors_of
from lightning_devcheck._simulate._selections import SELECTIONS
from lightning_devcheck._simulate._state import running
from lightning_devcheck._simulate._tensor import META, HostTensor, inner_of, keeps, without_values
from lightning_devcheck._simulate._unknown import has_values, shapes_of, spoil, with_stand_ins
from lightning_devcheck._simulate._wrapper import Wrapper

# they take a device, and copy values all the same
COPIES = ("aten::_to_copy", "aten::_pin_memory")


def runner() -> Callable[[Any, Sequence[Any], dict[str, Any]], Any]:
    """What runs an operator in the running simulation."""
    return run if running().values else run_without_values


def run_without_values(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Check the devices of an operator's arguments, run it on shapes where values are unknown, place the result."""
    if any(t.is_meta and not isinstance(t, Wrapper) for t in tensors_of((*args, *kwargs.values()))):
        return func(*args, **kwargs)  # torch's own meta tensors, asked for by that name
    plan = plan_of(func)
    if plan.host_read:
        note_host_read(func, args)
    return run_checked(plan, func, args, kwargs, call=_compute)


def _compute(plan: Plan, func: Any, args: Sequence[Any], kwargs: dict[str, Any], index: Any) -> Any:
    """Run an operator on what its arguments hold; values that are not kept are dropped."""
    if "device" in plan.names and func._schema.name not in COPIES:
        out = _make(func, args, kwargs, index)
    elif all(map(has_values, tensors_of((*args, *kwargs.values())))):
        out = call_inner(plan, func, args, kwargs, index)
    else:
        out = _run_on_shapes(plan, func, args, kwargs)
    if index is not None:
        return _each(out, lambda tensor: tensor if keeps(tensor, index) else without_values(tensor))
    if torch.Tag.inplace_view in func.tags and isinstance(args[0], HostTensor):
        return return_and_correct_aliasing(func, tuple(args), kwargs, args[0])
    return _each(out, lambda tensor: HostTensor(tensor) if tensor.is_meta else tensor)


def _make(func: Any, args: Sequence[Any], kwargs: dict[str, Any], index: int | None) -> Any:
    """A new tensor: first its shape, then its values if they are kept."""
    inner = [inner_of(value) if isinstance(value, torch.Tensor) else value for value in args]
    generated = {"generator": None} if kwargs.get("generator") is not None else {}
    out = func(*inner, **{**kwargs, "device": META, "pin_memory": None, **generated})
    return func(*inner, **{**kwargs, "device": "cpu", "pin_memory": None}) if keeps(out, index) else out


def _run_on_shapes(plan: Plan, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if func.namespace == "c10d":
        return communicate(func, args, kwargs)
    select = SELECTIONS.get(func._schema.name)
    try:
        if plan.rule.host:  # read by the host, and there are no rules for shapes
            return with_stand_ins(func, args, kwargs, None)
        if select is not None:
            return select(func, args, kwargs)
        return func(*shapes_of(args), **dict(zip(kwargs, shapes_of(kwargs.values()), strict=True)))
    except NotImplementedError as error:
        return with_stand_ins(func, args, kwargs, error)
    finally:
        given = {**dict(zip(plan.names, args, strict=False)), **kwargs}
        for tensor in tensors_of([given.get(name) for name in plan.rule.written]):
            spoil(tensor)


def _each(out: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What an operator returned, with each tensor changed."""
    if isinstance(out, Wrapper):
        return out
    if isinstance(out, torch.Tensor):
        return change(out)
    return type(out)(_each(item, change) for item in out) if isinstance(out, (list, tuple)) else out
