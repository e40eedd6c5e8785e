"""Where the device of a tensor was decided: simulated ones carry it, others are in a table."""

from __future__ import annotations

import torch

from lightning_devcheck._report.records import Origin
from lightning_devcheck._simulate.state import active, running
from lightning_devcheck._simulate.tensor.wrapper import Wrapper
from lightning_devcheck._witness.places import NOWHERE, Place


def decided(tensor: torch.Tensor) -> Place | None:
    """Where a tensor's device was decided; None where it was not seen."""
    if isinstance(tensor, Wrapper):
        return tensor._place
    return running().places_of_plain.get(tensor)


def decided_line(tensor: torch.Tensor) -> Origin | None:
    """The user's line where a tensor's device was decided; None where none was seen."""
    simulation = active()
    if simulation is None:
        return None
    place = decided(tensor)
    if not place:
        return None
    return simulation.places.line(place)


def decide(tensor: torch.Tensor, place: Place) -> None:
    """Write down where a tensor's device was decided."""
    if isinstance(tensor, Wrapper):
        tensor._place = place
    else:
        running().places_of_plain.put(tensor, place)


def decide_here(tensor: torch.Tensor) -> None:
    """Write down that a tensor's device is decided by the line that runs."""
    decide(tensor, running().places.here())


def take_over(made: torch.Tensor, source: torch.Tensor) -> None:
    """Write down that a tensor is where it is because another one is."""
    decide(made, decided(source) or NOWHERE)
