"""How operators run without values: on shapes and dtypes, with stand-ins for what is read."""

from __future__ import annotations

from typing import Any

import torch

from lightning_devcheck._simulate.arguments import Args, Kwargs, by_name, map_nested, tensors_in
from lightning_devcheck._simulate.compat import Operator, return_and_correct_aliasing
from lightning_devcheck._simulate.ops.plan import PLANS, Plan
from lightning_devcheck._simulate.ops.run import call_inner, note_wait, run_checked, unwrapped
from lightning_devcheck._simulate.shapes.collectives import communicate
from lightning_devcheck._simulate.shapes.data_dependent import SHAPES
from lightning_devcheck._simulate.shapes.known import has_values, on_shapes, spoil, with_stand_ins
from lightning_devcheck._simulate.state import Index
from lightning_devcheck._simulate.tensor.simulated import META, HostTensor, keeps, without_values
from lightning_devcheck._simulate.tensor.wrapper import Wrapper


def run_without_values(func: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Check the devices of an operator's arguments, run it on shapes, put the result on its device.

    It runs on values where those of all arguments are known.
    """
    for tensor in tensors_in(*args, *kwargs.values()):
        if tensor.is_meta and not isinstance(tensor, Wrapper):
            return func(*args, **kwargs)  # torch's own meta tensors, asked for by that name
    plan = PLANS[func]
    if plan.waits is not None:
        note_wait(plan, args)
    return run_checked(plan, args, kwargs, call=_compute)


def _compute(plan: Plan, args: Args, kwargs: Kwargs, index: Index) -> Any:
    """Run an operator on what its arguments hold; values that are not kept are dropped."""
    if "device" in plan.names and "copies" not in plan.row:
        out = _make(plan, args, kwargs, index)
    elif all(map(has_values, tensors_in(*args, *kwargs.values()))):
        out = call_inner(plan, args, kwargs, index)
    else:
        out = _run_on_shapes(plan, args, kwargs)
    if index is None and plan.returns == "reshaped" and isinstance(args[0], HostTensor):
        return return_and_correct_aliasing(plan.operator, tuple(args), kwargs, args[0])

    def without_unkept(value: object) -> object:
        if not isinstance(value, torch.Tensor) or isinstance(value, Wrapper):
            return value
        if index is None:
            return HostTensor(value) if value.is_meta else value
        return value if keeps(value, index) else without_values(value)

    return map_nested(out, without_unkept)


def _make(plan: Plan, args: Args, kwargs: Kwargs, index: Index) -> Any:
    """Make a new tensor: first its shape, then its values if they are kept."""
    func = plan.operator if index is None else plan.inner
    inner = [map_nested(value, unwrapped) for value in args]
    options = {**kwargs, "pin_memory": None}
    on_meta = {**options, "device": META}
    if kwargs.get("generator") is not None:
        on_meta["generator"] = None
    out = func(*inner, **on_meta)
    if keeps(out, index):
        return func(*inner, **{**options, "device": "cpu"})
    return out


def _run_on_shapes(plan: Plan, args: Args, kwargs: Kwargs) -> Any:
    func = plan.operator
    if func.namespace == "c10d":
        return communicate(plan, args, kwargs)
    shape = plan.row.get("shape")
    given = by_name(plan.names, args, kwargs)
    try:
        if plan.host:  # read by the host, and there are no rules for shapes
            return with_stand_ins(func, args, kwargs, None)
        if shape is not None:
            return SHAPES[shape](func, given)
        return on_shapes(func, args, kwargs)
    except NotImplementedError as error:
        return with_stand_ins(func, args, kwargs, error)
    finally:
        for tensor in tensors_in(*map(given.get, plan.written)):
            spoil(tensor)
