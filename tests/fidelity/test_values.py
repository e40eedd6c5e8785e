"""Results and gradients of torch's own operator samples are the plain CPU run's, bit for bit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightning_devcheck import simulate_cuda
from tests.fidelity._samples import operators, plain, run, samples

# operator: why its values differ or it is refused
DIFFERENCES = {
    **dict.fromkeys(("cumprod", "masked.cumprod"), "backward: torch 2.6 takes another formula for tensor subclasses"),
    "prod": "backward: torch takes the formula that is safe for zeros for tensor subclasses",
}
# their memory is not initialised: the shapes and types are compared
EMPTY = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"}
# arguments after the first that CUDA wants on the CPU
HOST_ARGUMENTS = {"tensor_split"}


def _name(operator: Any) -> str:
    return f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else str(operator.name)


def _bits(value: Any) -> Any:
    """The value as something that compares bit for bit, NaN included."""
    if not isinstance(value, torch.Tensor):
        return value
    dense = value.to_dense() if value.layout is not torch.strided else value
    whole = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense.resolve_neg()
    whole = whole.double() if whole.is_floating_point() else whole  # exact, and NumPy has no bfloat16
    return (value.dtype, tuple(value.shape), whole.contiguous().numpy(force=True).tobytes())


def _differs(operator: Any, sample: Any) -> str | None:
    try:
        expected = [plain(values) for values in run(operator, sample, lambda tensor: tensor)]
    except Exception:  # a sample that the CPU refuses says nothing about the simulation
        return None
    with simulate_cuda(devices=2):
        try:
            got = [plain(values) for values in run(operator, sample, _mover(operator))]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    compared = _form if _name(operator) in EMPTY else _bits
    same = [[compared(v) for v in values] for values in got] == [[compared(v) for v in values] for values in expected]
    return None if same else "other values"


def _mover(operator: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves tensors to the device, those aside that belong on the CPU."""
    homes = iter(["cuda:1", *["cpu"] * 9] if _name(operator) in HOST_ARGUMENTS else [])
    return lambda tensor: tensor.to(next(homes, "cuda:1"))


def _form(value: Any) -> Any:
    return (value.dtype, tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else value


@pytest.mark.filterwarnings("ignore")
def test_values_are_the_cpu_s():
    """Every sample gives the CPU's results and gradients, or its operator has its reason in the list."""
    found: dict[str, str] = {}
    tried = 0
    for operator in operators():
        if _name(operator) in DIFFERENCES:
            continue
        with contextlib.suppress(ImportError):  # samples that need SciPy
            for sample in samples(operator, 2, requires_grad=True):
                tried += 1
                difference = _differs(operator, sample)
                if difference:
                    found[_name(operator)] = difference
    assert tried > 1000
    assert found == {}
