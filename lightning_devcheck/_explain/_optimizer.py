"""Optimizer state on the wrong device: whose state it is, and the line that made the optimizer."""

from __future__ import annotations

from typing import Any

import torch

from lightning_devcheck._explain._locate import Named
from lightning_devcheck._explain._scene import Scene
from lightning_devcheck._source import method_line
from lightning_devcheck._tree import tensors_of
from lightning_devcheck._values import is_a, is_module, namespace


def owner_of_state(scene: Scene, tensor: torch.Tensor) -> Named | None:
    """The parameter whose state in a failing optimizer a tensor is; None where it is no such state."""
    for frame in scene.frames:
        for owner in (frame.names.get("self"), frame.names.get("optimizer")):
            parameter = _parameter(owner, tensor) if is_a(owner, torch.optim.Optimizer) else None
            if parameter is not None:
                return _named(scene, owner, parameter)
    return None


def _parameter(optimizer: Any, tensor: torch.Tensor) -> torch.Tensor | None:
    state: Any = namespace(optimizer).get("state")
    for parameter, held in list(dict.items(state)) if is_a(state, dict) else ():
        if is_a(held, dict) and any(value is tensor for value in dict.values(held)):
            return parameter if is_a(parameter, torch.Tensor) else None
    return None


def _named(scene: Scene, optimizer: Any, parameter: torch.Tensor) -> Named:
    located = scene.search(parameter, None).locate(parameter)
    name = located.name if located is not None else _in_variables(scene, parameter)
    for index, frame in scene.user_frames:
        for variable, value in frame.names.items():
            if value is optimizer:
                made = scene.search(None, None).follow(index, variable, frame.lineno).origin
                return Named(name, made, "optimizer")
    root = scene.root
    return Named(name, None if root is None else method_line(type(root), "configure_optimizers"), "optimizer")


def _in_variables(scene: Scene, parameter: torch.Tensor) -> str:
    """What the user calls a parameter whose module is in a variable."""
    for _, frame in scene.user_frames:
        for variable, value in frame.names.items():
            held = tensors_of(value, variable) if is_module(value) else ()
            name = next((name for name, tensor in held if tensor is parameter), None)
            if name is not None:
                return name
    return "a parameter"
