"""Which device an operator's result is on, or CUDA's error."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from lightning_devcheck._simulate.arguments import Args, Kwargs, by_name, tensors_in
from lightning_devcheck._simulate.compat import Operator, default_is_meta
from lightning_devcheck._simulate.going_on import home_of
from lightning_devcheck._simulate.ops.plan import Plan
from lightning_devcheck._simulate.state import Index, Placement, cuda_device, device_at, running
from lightning_devcheck._simulate.tensor.refusing import refuse
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor, index_of

Named = list[tuple[str, torch.Tensor]]


def result_device(plan: Plan, args: Args, kwargs: Kwargs) -> Index:
    """Find the device that an operator's result is on: an index, None for the CPU.

    Raises:
        RuntimeError: If it does not take its arguments' devices, in CUDA's words, with ``func``,
            ``devices`` and ``argument`` as attributes.
    """
    device = kwargs.get("device")
    if device is not None:
        return asked_device(torch.device(device), args)
    if plan.devices == "any":
        return next(map(index_of, tensors_in(*args, *kwargs.values())), None)
    if plan.devices == "lists":
        return _check_rows(plan, args)
    named = name_tensors(plan, args, kwargs)
    if plan.composed is not None:
        indices = {index_of(tensor) for _, tensor in named}
        if len(indices) > 1:
            return Placement.BY_PARTS
    return _common_device(plan, named)


def name_tensors(plan: Plan, args: Args, kwargs: Kwargs) -> Named:
    """List the tensors among an operator's arguments, each with its argument's name."""
    named = []
    for name, value in by_name(plan.names, args, kwargs).items():
        named += [(name, tensor) for tensor in tensors_in(value)]
    return named


def asked_device(device: torch.device, args: Args) -> Index:
    """Find the device asked for; ``meta`` stands for the tensor's, else for the latest one."""
    if device.type not in ("meta", "cuda"):
        return None
    simulation = running()
    here = simulation.here
    if cuda_device(device) is not None:
        return simulation.index_of(device)
    if here.target is not None:
        return here.target
    found = _first_index(tensors_in(*args))
    if found is None and default_is_meta():
        return Placement.NO_DATA
    for index in (found, here.latest):
        if index is not None:
            return index
    return simulation.current


def _first_index(tensors: Iterable[torch.Tensor]) -> int | None:
    """Find the first simulated device among tensors."""
    return next((index for index in map(index_of, tensors) if index is not None), None)


def _common_device(plan: Plan, named: Named) -> int | None:
    checked = [(name, tensor) for name, tensor in named if name not in plan.unchecked]
    if not checked:
        return next((index_of(tensor) for _, tensor in named), None)
    if plan.devices == "index":
        return _home_device(plan, checked)
    common = index_of(checked[0][1])
    if plan.devices in ("iterator", "choosing"):
        common = _first_index(tensor for _, tensor in checked)
    compared = checked
    if common is None:
        compared = checked + [(name, tensor) for name, tensor in named if name in plan.host]
    joins = _joining(plan, checked)
    for name, tensor in compared:
        if index_of(tensor) == common or joins(name, tensor):
            continue
        argument = None if plan.devices == "iterator" else name  # TensorIterator names no argument
        error = mismatch(plan.operator, (device_at(common), tensor.device), argument)
        return settle(plan, error, compared)
    return common


def settle(plan: Plan, error: RuntimeError, named: Named) -> int | None:
    """Refuse operands, or say where the result belongs: what is written into stays where it is.

    Args:
        plan: What is known of the operator.
        error: What CUDA raises.
        named: The operands whose devices are compared.
    """
    operands = [tensor for _, tensor in named]
    home = home_of(operands)
    away = [tensor for tensor in operands if index_of(tensor) != home]
    # a number on the CPU may be anywhere, unless there is nothing else
    strays = [tensor for tensor in away if tensor.dim() or tensor.is_cuda] or away
    strays.sort(key=lambda tensor: -tensor.dim())  # a layer's weight says more than its bias
    others = [tensor for tensor in operands if index_of(tensor) == home]
    refuse(error, strays, home, others)
    written = [tensor for name, tensor in named if name in plan.written]
    return index_of(written[0]) if written else home


def _joining(plan: Plan, checked: Named) -> Callable[[str, torch.Tensor], bool]:
    """Say which arguments on another device may join.

    Those with no dimensions: of TensorIterator's one, and that on the CPU.
    """
    inputs = sum(name not in plan.written or name == "self" for name, _ in checked)
    is_choosing = plan.devices == "choosing"
    allowed = 0
    if is_choosing:
        allowed = inputs
    elif plan.devices == "iterator":
        allowed = int(inputs > 1)

    def joins(name: str, tensor: torch.Tensor) -> bool:
        nonlocal allowed
        allowed -= 1
        if allowed < 0 or tensor.dim() or name in plan.written:
            return False
        return is_choosing or index_of(tensor) is None

    return joins


def _home_device(plan: Plan, named: Named) -> int | None:
    """Find the indexed tensor's device: its indices may be on the CPU, a 0-dim value anywhere."""
    first = named[0][1]
    home = index_of(first)
    for name, tensor in named[1:]:
        index = index_of(tensor)
        is_free = name == "values" and not tensor.dim()
        if name == "indices":
            is_free = index is None
        if index != home and not is_free:
            error = mismatch(plan.operator, (first.device, tensor.device), name)
            fixed = [(other, value) for other, value in named if other != "indices" or value.is_cuda]
            return settle(plan, error, fixed)
    return home


def _check_rows(plan: Plan, args: Args) -> Placement:
    lists = [value for value in args if isinstance(value, (list, tuple))]
    with_tensors = [value for value in lists if any(True for _ in tensors_in(*value))]
    for row in zip(*with_tensors, strict=False):
        tensors = [item for item in row if isinstance(item, torch.Tensor)]
        # a 0-dim CPU tensor may join, unless there are no others
        firm = [t for t in tensors if t.dim() or isinstance(t, SimulatedTensor)] or tensors
        odd = next((tensor for tensor in firm if index_of(tensor) != index_of(firm[0])), None)
        if odd is not None:
            error = mismatch(plan.operator, (firm[0].device, odd.device))
            settle(plan, error, [("", tensor) for tensor in firm])
    return Placement.PER_ROW


def check_out(args: Args, out: object) -> None:
    """Refuse an ``out=`` on another CUDA device than the inputs: torch compares two ``meta``."""
    home = _first_index(tensors_in(*args))
    if home is None:
        return
    for tensor in tensors_in(out):
        if index_of(tensor) not in (None, home):
            refuse(mismatch("out", (torch.device("cuda", home), tensor.device)), [tensor], home)


def mismatch(
    func: Operator | str,
    devices: tuple[torch.device, torch.device],
    argument: str | None = None,
) -> RuntimeError:
    """Make the error that CUDA gives for tensors on two devices."""
    where = ""
    if argument:
        method = f"wrapper_CUDA_{getattr(func, '__name__', func)}"
        where = f" (when checking argument for argument {argument} in method {method})"
    error = RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, "
        f"{devices[0]} and {devices[1]}!{where}"
    )
    vars(error).update(func=func, devices=devices, argument=argument)
    return error


def is_mismatch(error: RuntimeError) -> bool:
    """Say whether an error is about tensors on two devices, as `mismatch` makes it."""
    return hasattr(error, "devices")
