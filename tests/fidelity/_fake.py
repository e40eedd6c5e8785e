"""FakeTensorMode's outcome of a call."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from tests.fidelity._outcome import Outcome, failure
from tests.fidelity._trials import Place, Placement, Trial

UNANSWERED = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    NotImplementedError,
)


def faked(trial: Trial, placement: Placement) -> Outcome | None:
    """Call on fake tensors; None where they do not know."""
    mode = FakeTensorMode(allow_non_fake_inputs=False)
    try:
        tensors = [_fake(mode, t, i) for t, i in zip(trial.tensors, placement, strict=True)]
        with mode:
            results = trial.call(tensors)
    except UNANSWERED:
        return None
    except Exception as error:
        found = failure(error)
        return found if found.verdict == "refused" else None
    return Outcome("accepted", tuple(str(result.device) for result in results))


def _fake(mode: FakeTensorMode, tensor: torch.Tensor, place: Place) -> torch.Tensor:
    if place is None:
        return mode.from_tensor(tensor.detach())
    with torch.no_grad():
        return FakeTensor(mode, tensor.detach().to("meta"), torch.device("cuda", place))
