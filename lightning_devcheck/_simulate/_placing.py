"""Which device an operator's result is on, or CUDA's error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from lightning_devcheck._simulate._compat import default_is_meta
from lightning_devcheck._simulate._rules import DeviceRule, argument_names, rule_of
from lightning_devcheck._simulate._state import cuda_device, running
from lightning_devcheck._simulate._tensor import CPU, SimulatedTensor, index_of

ROWS, COMPOSED = object(), object()
NO_DATA = -1  # a target: torch's own meta device, asked for by that name


def tensors_of(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors among arguments, those in lists included."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from tensors_of(argument)


def result_device(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The device that an operator's result is on: an index, None for the CPU.

    `ROWS` stands for one device per row of a list, `COMPOSED` for whatever the operators say that it is composed of.

    Raises:
        RuntimeError: If it does not take its arguments' devices, in CUDA's words, with ``func``, ``devices`` and
            ``argument`` as attributes.
    """
    device = kwargs.get("device")
    if device is not None:
        return asked_device(torch.device(device), args)
    rule = rule_of(func)
    if rule.kind == "any":
        return next((index_of(tensor) for tensor in tensors_of((*args, *kwargs.values()))), None)
    if rule.kind == "lists":
        return _check_rows(func, args)
    given = [*zip(argument_names(func), args, strict=False), *kwargs.items()]
    named = [(name, t) for name, value in given for t in tensors_of((value,))]
    if rule.composed is not None and len({index_of(tensor) for _, tensor in named}) > 1:
        return COMPOSED
    return _common_device(func, rule, named)


def asked_device(device: torch.device, args: Sequence[Any]) -> int | None:
    """``meta`` stands for a simulated device: the one asked for, else that of the tensor, else the current one."""
    if device.type not in ("meta", "cuda"):
        return None
    simulation = running()
    here = simulation.here
    if cuda_device(device) is not None:
        return int(simulation.index_of(device))
    if here.target is not None:
        return NO_DATA if here.target == NO_DATA else int(here.target)
    found = next((i for i in map(index_of, tensors_of(args)) if i is not None), None)
    if found is None and default_is_meta():
        return NO_DATA
    found = here.latest if found is None else found
    return simulation.current if found is None else found


def _common_device(func: Any, rule: DeviceRule, named: list[tuple[str, torch.Tensor]]) -> int | None:
    checked = [(name, tensor) for name, tensor in named if name not in rule.host and name not in rule.read]
    if not checked:
        return next((index_of(tensor) for _, tensor in named), None)
    if rule.kind == "index":
        return _home_device(func, checked)
    common = index_of(checked[0][1])
    if rule.kind in ("iterator", "choosing"):
        common = next((index for _, tensor in checked if (index := index_of(tensor)) is not None), None)
    joining = _may_join(rule, checked)
    for name, tensor in checked + [(name, t) for name, t in named if name in rule.host and common is None]:
        if index_of(tensor) != common and not joining(name, tensor):
            where = CPU if common is None else torch.device("cuda", common)
            # TensorIterator names no argument
            raise mismatch(func, (where, tensor.device), None if rule.kind == "iterator" else name)
    return common


def _may_join(rule: DeviceRule, checked: list[tuple[str, torch.Tensor]]) -> Callable[[str, torch.Tensor], bool]:
    """Whether an argument on another device may join: 0-dim ones, of TensorIterator one, and that on the CPU."""
    inputs = sum(name not in rule.written or name == "self" for name, _ in checked)
    allowed = {"choosing": inputs, "iterator": int(inputs > 1)}.get(rule.kind, 0)

    def joins(name: str, tensor: torch.Tensor) -> bool:
        nonlocal allowed
        allowed -= 1
        free = rule.kind == "choosing" or index_of(tensor) is None
        return free and not tensor.dim() and name not in rule.written and allowed >= 0

    return joins


def _home_device(func: Any, named: list[tuple[str, torch.Tensor]]) -> int | None:
    """The indexed tensor's device: its indices may be on the CPU, a 0-dim value anywhere."""
    home = index_of(named[0][1])
    for name, tensor in named[1:]:
        free = index_of(tensor) is None if name == "indices" else name == "values" and not tensor.dim()
        if index_of(tensor) != home and not free:
            raise mismatch(func, (named[0][1].device, tensor.device), name)
    return home


def _check_rows(func: Any, args: Sequence[Any]) -> Any:
    rows = [
        argument for argument in args if isinstance(argument, (list, tuple)) and any(True for _ in tensors_of(argument))
    ]
    for row in zip(*rows, strict=False):
        tensors = [t for t in row if isinstance(t, torch.Tensor)]
        firm = [t for t in tensors if t.dim() or isinstance(t, SimulatedTensor)] or tensors
        for tensor in firm[1:]:
            if index_of(tensor) != index_of(firm[0]):
                raise mismatch(func, (firm[0].device, tensor.device), None)
    return ROWS


def check_out(args: Sequence[Any], out: Any) -> None:
    """Refuse an ``out=`` on another CUDA device than the inputs: in C++, where torch compares, both are ``meta``."""
    home = next((tensor for tensor in tensors_of(args) if index_of(tensor) is not None), None)
    for tensor in tensors_of((out,)):
        if home is not None and index_of(tensor) not in (None, index_of(home)):
            raise mismatch("out", (home.device, tensor.device), None)


def mismatch(func: Any, devices: tuple[torch.device, torch.device], argument: str | None) -> RuntimeError:
    """The error that CUDA gives for tensors on two devices."""
    where = (
        f" (when checking argument for argument {argument} in method wrapper_CUDA_{func.__name__})" if argument else ""
    )
    error = RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, "
        f"{devices[0]} and {devices[1]}!{where if argument else ''}"
    )
    error.func, error.devices, error.argument = func, devices, argument  # type: ignore[attr-defined]
    return error
