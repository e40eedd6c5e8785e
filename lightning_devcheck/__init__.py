"""Finds tensors on the wrong device in PyTorch Lightning training, before backward, and says which line and why."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lightning_devcheck._report.errors import DeviceCheckWarning, DeviceMismatchError
from lightning_devcheck._report.records import Finding
from lightning_devcheck._report.report import Report
from lightning_devcheck._version import __version__

if TYPE_CHECKING:
    from lightning_devcheck._check.callback import DeviceCheck
    from lightning_devcheck._check.check import check_devices
    from lightning_devcheck._explain import explain
    from lightning_devcheck._judge.scan import scan
    from lightning_devcheck._metric import LossAccumulator
    from lightning_devcheck._run.preflight import preflight
    from lightning_devcheck._simulate import simulate_cuda

__all__ = [
    "DeviceCheck",
    "DeviceCheckWarning",
    "DeviceMismatchError",
    "Finding",
    "LossAccumulator",
    "Report",
    "__version__",
    "check_devices",
    "explain",
    "preflight",
    "scan",
    "simulate_cuda",
]

# imported when first asked for: Lightning and torchmetrics take seconds, and an idle entry point needs neither
_LAZY = {
    "DeviceCheck": "_check.callback",
    "LossAccumulator": "_metric",
    "check_devices": "_check.check",
    "explain": "_explain",
    "preflight": "_run.preflight",
    "scan": "_judge.scan",
    "simulate_cuda": "_simulate",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
