"""What a real GPU does with the probes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tests.fidelity._compare import probes
from tests.fidelity._outcome import Outcome, failure
from tests.fidelity._trials import Placement, Trial


def key_of(trial: Trial, placement: Placement) -> str:
    """What tells one probe from another; the same in every run."""
    shapes = [list(tensor.shape) for tensor in trial.tensors]
    return f"{trial.operator} | {trial.form} | {shapes} | {placement}"


def record(operators: Iterable[Any], limit: int) -> dict[str, Any]:
    """The outcome of each probe on this machine's GPUs.

    Raises:
        RuntimeError: If there is none.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("--record needs a CUDA device: this machine has none")
    several = torch.cuda.device_count() > 1
    outcomes = {}
    for operator in operators:
        for trial, placement in probes(operator, limit):
            if several or 0 not in placement:
                found = _real(trial, placement, several)
                outcomes[key_of(trial, placement)] = [found.verdict, list(found.devices)]
    return {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "outcomes": outcomes}


def _real(trial: Trial, placement: Placement, several: bool) -> Outcome:
    """Call on real devices; a single one plays ``cuda:1``."""
    copies = [tensor.detach().clone() for tensor in trial.tensors]
    try:
        moved = [
            t if i is None else t.to(f"cuda:{i if several else 0}") for t, i in zip(copies, placement, strict=True)
        ]
        results = trial.call(moved)
        torch.cuda.synchronize()
    except Exception as error:
        return failure(error)
    devices = tuple(str(result.device) for result in results)
    return Outcome("accepted", devices if several else tuple(d.replace("cuda:0", "cuda:1") for d in devices))
