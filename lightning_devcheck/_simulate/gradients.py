"""Where a simulation goes on: gradients are on the devices of what they belong to."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._simulate.arguments import Function
from lightning_devcheck._simulate.compat import unwrapped
from lightning_devcheck._simulate.going_on import moved
from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.places import decide, decided
from lightning_devcheck._simulate.tensor.refusing import refuse
from lightning_devcheck._simulate.tensor.simulated import index_below


def bring_gradients_home(roots: Sequence[torch.Tensor]) -> None:
    """Put the gradients of leaves on the leaves' devices: the engine does not ask.

    Args:
        roots: What backward began with.
    """
    pending = [root.grad_fn for root in roots]
    seen: set[object] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending += [edge for edge, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf.grad is not None:
            leaf.grad = at_home(leaf.grad, leaf)


def at_home(gradient: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Put a gradient on the device of what it belongs to."""
    placed = moved(gradient, index_below(tensor))
    place = decided(tensor)
    if placed is not gradient and place is not None:
        decide(placed, place)
    return placed


def kept_in_place(hook: Function) -> Function:
    """Make a hook whose gradients are moved back: torch refuses them in C++."""
    if running().note is None:
        return hook

    @functools.wraps(hook)
    def call(given: Any, *args: Any) -> Any:
        out = hook(given, *args)
        if isinstance(out, torch.Tensor):
            return _as_given(hook, out, given)
        if not isinstance(out, (tuple, list)) or len(out) != len(given):
            return out
        return tuple(map(functools.partial(_as_given, hook), out, given))

    return call


def _as_given(hook: Function, out: Any, given: Any) -> Any:
    """Refuse a gradient that has changed between host and device, or move it back."""
    if not isinstance(out, torch.Tensor) or not isinstance(given, torch.Tensor):
        return out
    new, old = unwrapped(out), unwrapped(given)
    if new.is_cuda == old.is_cuda:
        return out
    name = getattr(hook, "__name__", "<unknown>")
    types = f"was {old.type()} got {new.type()}"
    home = index_below(given)
    refuse(RuntimeError(f"hook '{name}' has changed the type of value ({types})"), [out], home)
    return moved(out, home)
