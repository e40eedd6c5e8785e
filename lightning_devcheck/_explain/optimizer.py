"""Optimizer state on the wrong device: whose state it is, and the line that made the optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.scene import Scene
from lightning_devcheck._observe.inert import inside, is_a, is_module, namespace
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.queries import method_line, statements_of
from lightning_devcheck._source.statements import puts_on_host, spell, targets_of


def owner_of_state(scene: Scene, tensor: torch.Tensor) -> tuple[Named, str] | None:
    """The parameter whose state in a failing optimizer a tensor is, and a headline; None where it is no such state.

    Where a line of the user's puts the state on the CPU, that line and what it assigns to are the culprit instead.
    """
    for frame in scene.frames:
        for owner in (frame.names.get("self"), frame.names.get("optimizer")):
            found = _parameter(owner, tensor) if is_a(owner, torch.optim.Optimizer) else None
            if found is not None:
                key, parameter = found
                named = _named(scene, owner, parameter)
                put = next(_lines(type(owner), key), None) or next(_lines(type(scene.root), key), None)
                return (named, "") if put is None else (put, f"{put.name}, a state of {named.name},")
    return None


def _parameter(optimizer: Any, tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
    """The key of a tensor in an optimizer's state, and the parameter."""
    state: Any = namespace(optimizer).get("state")
    for parameter, held in list(dict.items(state)) if is_a(state, dict) else ():
        for key, value in dict.items(held) if is_a(held, dict) and is_a(parameter, torch.Tensor) else ():
            if any(part is tensor for _, part in inside(value, "")):
                return key, parameter
    return None


def _lines(owner: type, key: object) -> Iterator[Named]:
    """The lines of a user's class that put a tensor on the CPU under a key: ``state["sum"] = torch.zeros(3)``."""
    for statement in statements_of(owner):
        for target in targets_of(statement.node) if puts_on_host(statement.node) else ():
            if isinstance(target, ast.Subscript) and getattr(target.slice, "value", None) == key:
                yield Named(spell(target), statement.origin, "state")


def _named(scene: Scene, optimizer: Any, parameter: torch.Tensor) -> Named:
    located = scene.search(parameter, None).locate(parameter)
    name = located.name if located is not None else _in_variables(scene, parameter)
    for index, frame in scene.user_frames:
        for variable, value in frame.names.items():
            if value is optimizer and variable != "self":
                made = scene.search(None, None).follow(index, variable).origin
                return Named(name, made, "optimizer")
    if scene.root is None:
        return Named(name, None, "optimizer")
    root = type(scene.root)
    return Named(name, _loading_line(root) or method_line(root, "configure_optimizers"), "optimizer")


def _loading_line(root: type) -> Origin | None:
    """The line of ``configure_optimizers`` that loads the optimizer's state."""
    for statement in statements_of(root):
        loads = isinstance(statement.node, ast.Expr) and ".load_state_dict(" in spell(statement.node)
        if loads and statement.function == "configure_optimizers":
            return statement.origin
    return None


def _in_variables(scene: Scene, parameter: torch.Tensor) -> str:
    """What the user calls a parameter whose module is in a variable."""
    for _, frame in scene.user_frames:
        for variable, value in frame.names.items():
            held = tensors_of(value, variable) if is_module(value) else ()
            name = next((name for name, tensor in held if tensor is parameter), None)
            if name is not None:
                return name
    return "a parameter"
