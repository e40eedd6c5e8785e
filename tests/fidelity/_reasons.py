"""Why the simulation may differ from the operator table or from FakeTensorMode: every difference has a reason here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.fidelity._outcome import Outcome
from tests.fidelity._trials import Placement, Trial


@dataclass(frozen=True)
class Difference:
    """A call whose outcomes differ.

    Attributes:
        trial: The call.
        placement: Where its tensors are.
        ours: The simulation's outcome.
        theirs: The other outcome.
        whose: ``table`` or ``fake``.
        settled: Whether the simulation and the table agree.
    """

    trial: Trial
    placement: Placement
    ours: Outcome
    theirs: Outcome
    whose: str
    settled: bool

    def __str__(self) -> str:
        shapes = [tuple(tensor.shape) for tensor in self.trial.tensors]
        where = f"{self.trial.operator}, {self.trial.form}, shapes {shapes} on {self.placement}"
        return f"{where}: simulation {self.ours} | {self.whose} {self.theirs}"


@dataclass(frozen=True)
class Reason:
    """A reason for differences.

    Attributes:
        whose: ``table`` or ``fake``.
        text: The reason.
        applies: Whether it explains a difference.
        example: An operator with such a difference.
    """

    whose: str
    text: str
    applies: Callable[[Difference], bool]
    example: str

    def explains(self, difference: Difference) -> bool:
        """Whether this is the reason for a difference."""
        return self.whose == difference.whose and self.applies(difference)


def _only(*operators: str) -> Callable[[Difference], bool]:
    return lambda difference: difference.trial.operator in operators


def _two_cuda(difference: Difference) -> bool:
    """Accepted by us on two CUDA devices, refused by a comparison in C++."""
    both = {0, 1} <= set(difference.placement)
    return both and difference.ours.verdict == "accepted" and difference.theirs.verdict == "refused"


def _fake_scalar(difference: Difference) -> bool:
    placed = zip(difference.trial.tensors, difference.placement, strict=True)
    scalar = any(place is None and tensor.dim() == 0 for tensor, place in placed)
    return scalar and difference.settled and difference.theirs.verdict == "accepted"


def _fake_strict(difference: Difference) -> bool:
    return difference.settled and (difference.ours.verdict, difference.theirs.verdict) == ("accepted", "refused")


def _fake_lenient(difference: Difference) -> bool:
    return difference.settled and (difference.ours.verdict, difference.theirs.verdict) == ("refused", "accepted")


def _fake_convolution(difference: Difference) -> bool:
    """Refused by us on two CUDA devices; torch 2.6 asks a kernel of CUDA's there, so that its table has no answer."""
    refused = (difference.ours.verdict, difference.theirs.verdict) == ("refused", "accepted")
    return torch.__version__ < "2.7" and {0, 1} <= set(difference.placement) and refused


COPYING = {
    "where",
    "as_strided_scatter",
    "select_scatter",
    "slice_scatter",
    "diagonal_scatter",
    "index_put",
    "masked.cumsum",
}
COPYING |= {"linspace.tensor_overload", "logspace.tensor_overload", "_unsafe_masked_index", "masked.cumprod"}
COPYING |= {"nn.functional.hinge_embedding_loss", "nn.functional.bilinear", "floor_divide", "ldexp", "index_fill"}
FORMULAS = {
    "native_dropout_backward",
    "index_put",
    "_unsafe_masked_index_put_accumulate",
    "unbind_copy",
    "slice_scatter",
}
FORMULAS |= {f"nn.functional.linear_cross_entropy.chunked{kind}" for kind in ("", "_none", "_sum", "_mean")}
CONVOLUTIONS = {f"nn.functional.conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)}

REASONS = [
    Reason(
        "table",
        "two CUDA devices look alike to a comparison inside torch's C++ code: both are `meta` there",
        _two_cuda,
        "block_diag",
    ),
    Reason(
        "table",
        "CUDA wants the targets on the device and cuDNN on the CPU; torch moves them in a kernel that needs CUDA",
        _only("nn.functional.ctc_loss"),
        "nn.functional.ctc_loss",
    ),
    Reason(
        "fake",
        "FakeTensor lets 0-dim CPU tensors join every operator, however many",
        _fake_scalar,
        "index_select",
    ),
    Reason(
        "fake",
        "FakeTensor wants one device also where a tensor from another is copied, read on the host, or not touched",
        lambda d: _fake_strict(d) and d.trial.operator in COPYING,
        "select_scatter",
    ),
    Reason(
        "fake",
        "FakeTensor's Python formula for the operator compares no devices",
        lambda d: (
            (_fake_lenient(d) and d.trial.operator in FORMULAS | CONVOLUTIONS)
            or (d.trial.operator in CONVOLUTIONS and _fake_convolution(d))
        ),
        "nn.functional.conv1d",
    ),
    Reason(
        "fake",
        "two CUDA devices look alike to a comparison inside torch's C++ code: both are `meta` there",
        _two_cuda,
        "block_diag",
    ),
]
