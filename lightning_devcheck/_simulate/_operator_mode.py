"""Where torch hands operators over below autograd."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from lightning_devcheck._simulate._compat import (
    TorchDispatchMode,
    WithoutFunctions,
    marks_views,
    run_traced,
    tracer,
    with_autocast,
    with_views,
)
from lightning_devcheck._simulate._operators import is_view, run, run_parts
from lightning_devcheck._simulate._placing import NO_DATA, asked_device
from lightning_devcheck._simulate._rules import is_composed
from lightning_devcheck._simulate._state import Simulation, active
from lightning_devcheck._simulate._valueless import run_without_values


class OperatorMode(TorchDispatchMode):
    """Runs every operator by the simulation's rules, those on plain CPU tensors included."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run if simulation.values else run_without_values
        self._values = simulation.values
        self._here = simulation.here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator; the function mode would look at every call below once more."""
        if active() is None:
            return func(*args, **(kwargs or {}))
        if tracer() is not None:
            return run_traced(self, func, types, args, _named(args, kwargs or {}))
        with WithoutFunctions():
            if self._here.casts or torch.is_inference_mode_enabled() or not self._values:
                return self._run_or_take_apart(func, args, kwargs or {})
            return self._run(func, args, kwargs or {})

    def _run_or_take_apart(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one operator, or its parts where autocast, views or shapes concern those.

        Torch takes composed operators apart by itself, but not in inference mode.
        """
        casts = self._here.casts
        views = torch.is_inference_mode_enabled() and is_view(func)
        if not is_composed(func) or not (casts or views or not self._values):
            return self._run(func, args, kwargs)
        with contextlib.ExitStack() as stack:
            if casts:
                stack.enter_context(with_autocast())
            if views and not marks_views(func):
                stack.enter_context(with_views())
            return run_parts(func, args, kwargs)


def _named(args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments to be recorded: with the simulated device that ``meta`` stands for in this call."""
    device = kwargs.get("device")
    index = None if device is None else asked_device(device, args)
    if index is None or index == NO_DATA:
        return kwargs
    return {**kwargs, "device": torch.device("cuda", index)}
