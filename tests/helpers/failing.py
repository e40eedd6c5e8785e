"""What `explain` makes of a step that fails on simulated devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_devcheck import Finding, explain, simulate_cuda


def failure(step: Callable[[torch.Tensor], Any]) -> Exception:
    """The exception that a step raises for a tensor of shape (2, 4) on ``cuda:1`` of two simulated devices.

    What the simulation has seen is gone when it ends: what explains it then knows no more than on a real GPU.
    """
    with simulate_cuda(devices=2):
        torch.cuda.set_device(1)
        return _raised(step)


def explained(step: Callable[[torch.Tensor], Any], module: torch.nn.Module | None = None) -> Finding:
    """The finding that `explain` makes of it, in the simulation."""
    with simulate_cuda(devices=2):
        torch.cuda.set_device(1)
        report = explain(_raised(step), module)
    assert report is not None
    return report.findings[0]


def explained_afterwards(step: Callable[[torch.Tensor], Any], module: torch.nn.Module | None = None) -> Finding:
    """The finding that `explain` makes of it when the simulation is over, as on a real GPU."""
    report = explain(failure(step), module)
    assert report is not None
    return report.findings[0]


def _raised(step: Callable[[torch.Tensor], Any]) -> Exception:
    try:
        step(torch.ones(2, 4, device="cuda:1"))
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")
