"""The error and the warning that carry a report."""

from __future__ import annotations

from typing import Any

from lightning_devcheck._report.report import Report


class DeviceMismatchError(RuntimeError):
    """Tensors of one training step are on devices where they do not belong.

    The message is the whole report; the data is on `report`, so that nobody has to parse text. It can be pickled:
    launchers that send a rank's exception to the parent process keep the report. It holds text and numbers only: no
    tensor is kept alive, on any device, by catching it.

    Args:
        report: What was found.

    Attributes:
        report: What was found.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.report,))


class DeviceCheckWarning(UserWarning):
    """A device finding that does not stop the run.

    It comes from a rule of severity ``warning``, or from any rule under ``DeviceCheck(on_mismatch="warn")``. Either
    mend what the text names, or accept it with ``DeviceCheck(allow=…)`` (a place that may be elsewhere) or
    ``DeviceCheck(ignore=…)`` (a rule not wanted). It holds text only, keeps no tensor alive, and comes once a finding.
    """


# tracebacks show the name that users import
for _public in (DeviceMismatchError, DeviceCheckWarning, Report):
    _public.__module__ = "lightning_devcheck"
