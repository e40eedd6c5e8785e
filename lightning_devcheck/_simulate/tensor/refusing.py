"""What CUDA refuses is raised; or noted, where the simulation goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from lightning_devcheck._simulate.state import device_at, running
from lightning_devcheck._simulate.tensor.places import decided, decided_line
from lightning_devcheck._witness.places import NOWHERE, Place
from lightning_devcheck._witness.refusal import DECIDED, Refusal


@contextmanager
def trying() -> Iterator[None]:
    """Raise what is refused inside; the next numbers drawn are as if nothing had been tried."""
    simulation = running()
    here = simulation.here
    generators = [torch.default_generator, *simulation.streams.values()]
    states = [generator.get_state() for generator in generators]
    before, here.trying = here.trying, True
    try:
        yield
    except RuntimeError:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        raise
    finally:
        here.trying = before


def refuse(
    error: Exception,
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
        Exception: The error, if the simulation does not go on.
    """
    simulation = running()
    if simulation.note is None or simulation.here.trying:
        # what an expression has made is gone when the error is explained
        vars(error)[DECIDED] = next(iter(map(decided_line, strays)), None)
        raise error
    here = simulation.places.here()
    # what torch has made inside the refused call follows from what it was given
    given = [tensor for tensor in strays if (decided(tensor) or NOWHERE) != here]
    if strays and not given:
        if simulation.here.backward and simulation.went_on:
            return
        given = list(strays)
    strays = given
    places = list(map(decided, strays)) or [made]
    backward = simulation.here.backward
    refusal = Refusal(error, strays, places, device_at(home), here, others, backward)
    simulation.went_on = True
    simulation.note(refusal)
