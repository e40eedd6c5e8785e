"""What CUDA refuses is raised; or noted, where the simulation goes on and runs the operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.simulated import (
    Move,
    decided,
    device_at,
    index_below,
    index_of,
)
from lightning_devcheck._witness.places import NOWHERE, Place
from lightning_devcheck._witness.refusal import Note, Refusal


@contextmanager
def going_on(note: Note) -> Iterator[None]:
    """Go on from what the running simulation refuses.

    Args:
        note: Is told of each refusal.
    """
    simulation = running()
    before, simulation.note = simulation.note, note
    try:
        yield
    finally:
        simulation.note = before


def refuse(
    error: RuntimeError | TypeError,
    strays: Sequence[torch.Tensor] = (),
    home: int | None = None,
    others: Sequence[torch.Tensor] = (),
    made: Place = NOWHERE,
) -> None:
    """Refuse as CUDA does, or, where the simulation goes on, note it and return.

    Args:
        error: What CUDA raises.
        strays: The tensors that are not where they should be.
        home: Where they should be.
        others: Those that are.
        made: Where what is no tensor was made.

    Raises:
        RuntimeError: If the simulation does not go on.
        TypeError: Likewise.
    """
    simulation = running()
    if simulation.note is None:
        raise error
    refusal = Refusal(
        error,
        strays,
        [decided(tensor) for tensor in strays] or [made],
        device_at(home),
        simulation.places.here(),
        others,
        simulation.here.backward,
    )
    simulation.went_on = True
    simulation.note(refusal)


def home_of(operands: Sequence[torch.Tensor]) -> int:
    """Find the device where operands on several devices belong.

    It is the one that the process has chosen, as a Trainer does; else that of what is trained,
    where this is one; else the process's own, else the first.
    """
    here = running().here
    simulated = [index for index in map(index_of, operands) if index is not None]
    if here.is_chosen and here.current in simulated:
        return here.current
    trained = {index_of(tensor) for tensor in operands if tensor.requires_grad}
    for index in simulated:
        if trained - {None} == {index}:
            return index
    if here.current in simulated or not simulated:
        return here.current
    return simulated[0]


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
    index = index_below(tensor)
    if index_below(gradient) == index:
        return gradient
    return Move.apply(gradient, index, None)  # type: ignore[no-any-return, no-untyped-call]
