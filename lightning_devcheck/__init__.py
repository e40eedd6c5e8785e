"""Finds tensors on the wrong device in PyTorch Lightning training, before backward, and says which line and why."""

from lightning_devcheck._errors import DeviceCheckWarning, DeviceMismatchError
from lightning_devcheck._records import Finding
from lightning_devcheck._report import Report
from lightning_devcheck._version import __version__

__all__ = [
    "DeviceCheckWarning",
    "DeviceMismatchError",
    "Finding",
    "Report",
    "__version__",
]
