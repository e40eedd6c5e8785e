"""Where things belong when a simulation goes on, and how they get there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.places import decide, decided
from lightning_devcheck._simulate.tensor.refusing import refuse
from lightning_devcheck._simulate.tensor.simulated import Move, index_below
from lightning_devcheck._witness.refusal import Note


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


def brought_together(error: RuntimeError, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Refuse operands on several devices; or move them all to where they belong."""
    home = home_of(operands)
    strays = [tensor for tensor in operands if index_below(tensor) != home]
    others = [tensor for tensor in operands if index_below(tensor) == home]
    refuse(error, strays, home, others)
    return [moved(tensor, home) for tensor in operands]


def home_of(operands: Sequence[torch.Tensor]) -> int:
    """Find the device where operands on several devices belong.

    It is the one that the process has chosen, as a Trainer does; else that of what is trained,
    where this is one; else the process's own, else the first.
    """
    here = running().here
    simulated = [index for index in map(index_below, operands) if index is not None]
    if here.is_chosen and here.current in simulated:
        return here.current
    trained = {index_below(tensor) for tensor in operands if tensor.requires_grad}
    for index in simulated:
        if trained - {None} == {index}:
            return index
    if here.current in simulated or not simulated:
        return here.current
    return simulated[0]


def moved(tensor: torch.Tensor, index: int | None) -> torch.Tensor:
    """Put a tensor where it belongs; gradients find the way back, and its place stays known."""
    if index_below(tensor) == index:
        return tensor
    made: torch.Tensor = Move.apply(tensor, index, None)  # type: ignore[no-untyped-call]
    place = decided(tensor)
    if place is not None:
        decide(made, place)
    return made
