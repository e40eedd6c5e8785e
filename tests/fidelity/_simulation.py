"""The simulation's outcome of a call."""

from __future__ import annotations

from tests.fidelity._outcome import Outcome, failure
from tests.fidelity._trials import Placement, Trial


def simulated(trial: Trial, placement: Placement) -> Outcome:
    """Call on simulated devices; `simulate_cuda` is on."""
    copies = [tensor.detach().clone() for tensor in trial.tensors]
    try:
        moved = [t if i is None else t.to(f"cuda:{i}") for t, i in zip(copies, placement, strict=True)]
        results = trial.call(moved)
    except Exception as error:
        return failure(error)
    return Outcome("accepted", tuple(str(result.device) for result in results))
