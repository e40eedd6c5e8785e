"""Where torch hands operators over below autograd."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._simulate.arguments import Args, Kwargs, tensors_in
from lightning_devcheck._simulate.compat import (
    Operator,
    UnguardedMode,
    WithoutFunctions,
    marks_views,
    run_composed,
    run_traced,
    tracer,
    with_autocast,
    with_views,
)
from lightning_devcheck._simulate.ops.placement import asked_device, is_mismatch, mismatch
from lightning_devcheck._simulate.ops.plan import PLANS
from lightning_devcheck._simulate.state import Placement, Simulation, active, running
from lightning_devcheck._simulate.watching import watch


class OperatorMode(UnguardedMode):
    """Runs every operator by the simulation's rules, those on plain CPU tensors included."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = simulation.run
        self._values = simulation.values
        self._here = simulation.here

    def __torch_dispatch__(
        self, func: Operator, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        """Run one operator; the function mode would look at every call below once more."""
        if active() is None:
            return func(*args, **(kwargs or {}))
        if tracer() is not None:
            return run_traced(self, func, types, args, _named(args, kwargs or {}))
        with WithoutFunctions():
            kwargs = kwargs or {}
            if self._here.casts or torch.is_inference_mode_enabled() or not self._values:
                out = self._run_or_take_apart(func, args, kwargs)
            else:
                out = self._run(func, args, kwargs)
            watch(func, args, kwargs, out)
            return out

    def _run_or_take_apart(self, func: Operator, args: Args, kwargs: Kwargs) -> Any:
        """Run one operator, or its parts where autocast, views or shapes concern those.

        Torch takes composed operators apart by itself, but not in inference mode.
        """
        plan, casts = PLANS[func], self._here.casts
        views = torch.is_inference_mode_enabled() and plan.returns == "view"
        if not plan.is_composed or not (casts or views or not self._values):
            return self._run(func, args, kwargs)
        with contextlib.ExitStack() as stack:
            if casts:
                stack.enter_context(with_autocast())
            if views and not marks_views(func):
                stack.enter_context(with_views())
            try:
                return run_parts(func, args, kwargs)
            except RuntimeError as error:
                if not is_mismatch(error) or running().note is None:
                    raise
        return self._run(func, args, kwargs)


def _named(args: Args, kwargs: Kwargs) -> Kwargs:
    """Name the arguments to be recorded: with the simulated device that ``meta`` stands for here."""
    device = kwargs.get("device")
    index = None if device is None else asked_device(device, args)
    if index is None or isinstance(index, Placement):
        return kwargs
    return {**kwargs, "device": torch.device("cuda", index)}


def run_parts(func: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator by its parts, each with its own check, as CUDA does where it has no kernel."""
    try:
        with OperatorMode(running()):
            return run_composed(func, PLANS[func].composed, args, kwargs)
    except RuntimeError as error:
        if "meta" not in str(error) and not isinstance(error, NotImplementedError):
            raise
        tensors = tensors_in(*args, *kwargs.values())
        devices = list(dict.fromkeys(tensor.device for tensor in tensors))
        raise mismatch(func, (devices[0], devices[-1])) from error
