"""Where torch hands operators over below autograd."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from lightning_devcheck._simulate._compat import TorchDispatchMode, WithoutFunctions, with_autocast
from lightning_devcheck._simulate._operators import is_view, run, run_parts
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
        with WithoutFunctions():
            if self._here.casts or torch.is_inference_mode_enabled() or not self._values:
                return self._run_or_take_apart(func, args, kwargs or {})
            return self._run(func, args, kwargs or {})

    def _run_or_take_apart(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one operator, or its parts where autocast, views or shapes concern those.

        Torch takes composed operators apart by itself, but for tensors that were made in inference mode.
        """
        casts = self._here.casts
        # what views an ordinary tensor is an ordinary tensor, and what is computed from it none
        ordinary = torch.is_inference_mode_enabled() and is_view(func) and not args[0].is_inference()
        if is_composed(func) and (casts or ordinary or not self._values):
            with with_autocast() if casts else contextlib.nullcontext():
                return run_parts(func, args, kwargs)
        with torch.inference_mode(False) if ordinary else contextlib.nullcontext():
            return self._run(func, args, kwargs)
