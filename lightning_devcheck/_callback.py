"""`DeviceCheck`: when to look, and what to do with what is found."""

from __future__ import annotations

import dataclasses
import logging
import sys
import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist

from lightning_devcheck._check import inspect
from lightning_devcheck._compat import callback_bases, sequence_number
from lightning_devcheck._errors import DeviceCheckWarning, DeviceMismatchError
from lightning_devcheck._policy import Expectation, of_trainer
from lightning_devcheck._records import Finding
from lightning_devcheck._report import Report, merge_reports
from lightning_devcheck._rules import RULES

if TYPE_CHECKING:
    from pytorch_lightning import Callback as _Base
else:
    _Base = type("_Base", callback_bases(), {})

Action = Literal["raise", "warn", "ignore"]
ACTIONS = ("raise", "warn", "ignore")
MAX_SHAPES = (
    16  # graphs of so many different shapes are looked at when they first appear; then the schedule alone decides
)

log = logging.getLogger("lightning_devcheck")


class DeviceCheck(_Base):
    """Stop a training run whose loss, graph leaves or parameters are on the wrong device, before backward.

    It compares the loss's device with the last one at every backward (a few microseconds), and walks the graph at
    batches 1, 2, 4, 8, … of a fit, and at once when the graph changes. At those scheduled batches the processes agree:
    if one found an error, all raise the same `DeviceMismatchError` before backward. It changes no result: it reads no
    value, draws no random number, keeps no tensor. A fault of its own is logged once and training goes on.

    The first batch's forward runs with anomaly mode recording source lines (several times slower, that batch alone).

    Args:
        on_mismatch: What an error does: ``"raise"`` stops the run on all ranks, ``"warn"`` says it once and goes on,
            ``"ignore"`` only keeps it in `report`. Findings that are warnings never stop a run.
        every_n_steps: Walk the graph every so many batches as well; None for the schedule above alone.
        allow: Glob patterns of names (``"teacher.*"``) or devices (``"cpu"``) that may be elsewhere.
        ignore: Ids of rules that are not wanted.
        explain: Whether a device error that torch raises gets a report as a note (printed on Python 3.10).

    Raises:
        ValueError: If ``on_mismatch`` is not one of the three, ``every_n_steps`` not a positive integer, or ``ignore``
            names a rule that does not exist.
        TypeError: If ``allow`` or ``ignore`` is a string or holds something that is none.

    Example:
        >>> from lightning_devcheck import DeviceCheck
        >>> check = DeviceCheck("warn", allow=["teacher.*"])
        >>> check.report.ok
        True
    """

    def __init__(
        self,
        on_mismatch: Action = "raise",
        *,
        every_n_steps: int | None = None,
        allow: Sequence[str] = (),
        ignore: Sequence[str] = (),
        explain: bool = True,
        _automatic: bool = False,
    ) -> None:
        super().__init__()
        if on_mismatch not in ACTIONS:
            choices = ", ".join(map(repr, ACTIONS))
            raise ValueError(f"DeviceCheck(on_mismatch={on_mismatch!r}) is not a known action; use one of {choices}.")
        if every_n_steps is not None and (type(every_n_steps) is not int or every_n_steps < 1):
            raise ValueError(f"DeviceCheck(every_n_steps={every_n_steps!r}): use a positive integer, or None.")
        self._on_mismatch = on_mismatch
        self._every_n_steps = every_n_steps
        self._allow = _texts("allow", allow)
        self._ignore = _texts("ignore", ignore)
        unknown = sorted(set(self._ignore) - set(RULES))
        if unknown:
            raise ValueError(
                f"DeviceCheck(ignore={list(ignore)!r}): no rule {unknown[0]!r}; there are {', '.join(RULES)}."
            )
        self._explain = explain
        self._automatic = _automatic
        self._faulty = False
        self._told: set[tuple[Any, ...]] = set()
        self._reports: list[Report] = []
        self._start()

    @property
    def report(self) -> Report:
        """All that was found and checked so far, of this process."""
        return merge_reports(self._reports)

    def _start(self) -> None:
        """Begin a fit."""
        self._batches = 0
        self._due = False
        self._tracing: tuple[bool, bool] | None = None
        self._first_node = 0
        self._shapes: set[tuple[Any, ...]] = set()
        self._expectation: Expectation | None = None
        self._active = True

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._start()
        others = [c for c in trainer.callbacks if isinstance(c, DeviceCheck) and c is not self]
        # one made by hand wins over the one that the environment asked for
        self._active = not (self._automatic and any(not other._automatic or other._active for other in others))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not self._active:
            return
        self._batches += 1
        count, every = self._batches, self._every_n_steps
        self._due = count & (count - 1) == 0 or (every is not None and count % every == 0)
        if count == 1:
            self._trace()
        self._first_node = sequence_number()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        if not self._active:
            return
        try:
            self._untrace()
            self._look(trainer, pl_module, loss)
        except DeviceMismatchError:
            raise
        except Warning:
            raise  # the user's filters make errors of warnings
        except Exception:
            self._confess()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._untrace()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._untrace()
        if self._active and self._explain and not isinstance(exception, DeviceMismatchError):
            _annotate(exception, pl_module)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._untrace()

    def _trace(self) -> None:
        """Record the source line of every graph node, until the hook."""
        self._tracing = (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        torch.autograd.set_detect_anomaly(True, check_nan=self._tracing[0] and self._tracing[1])

    def _untrace(self) -> None:
        if self._tracing is not None:
            torch.autograd.set_detect_anomaly(*self._tracing)
            self._tracing = None

    def _look(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        """Make the cheap check, and the full one where it is due or the graph is new."""
        shape = (type(loss.grad_fn), loss.device, sequence_number() - self._first_node)
        if not self._due and (shape in self._shapes or len(self._shapes) >= MAX_SHAPES):
            return
        self._shapes.add(shape)
        if self._expectation is None:
            self._expectation = of_trainer(trainer, pl_module)
        optimized = frozenset(id(p) for o in trainer.optimizers for group in o.param_groups for p in group["params"])
        found = self._accept(inspect(loss, pl_module, self._expectation, optimized=optimized), trainer)
        report = _agree(found, trainer) if self._due else found
        self._reports.append(found)
        self._act(report, found)

    def _accept(self, report: Report, trainer: Any) -> Report:
        """Leave out what the user allows and ignores; say which process and step."""
        findings = [
            dataclasses.replace(finding, step=trainer.global_step, global_rank=trainer.global_rank)
            for finding in report.findings
            if finding.rule not in self._ignore and not self._allows(finding)
        ]
        return Report(tuple(findings), {**report.checked, "steps": 1}, report.not_checked, trainer.world_size)

    def _allows(self, finding: Finding) -> bool:
        names = (finding.name, finding.name.removeprefix("self."), finding.device)
        return any(fnmatchcase(name, pattern) for pattern in self._allow for name in names)

    def _act(self, report: Report, own: Report) -> None:
        if self._on_mismatch == "ignore":
            return
        if report.errors and self._on_mismatch == "raise":
            raise DeviceMismatchError(report)
        for finding in own.findings:
            self._warn(finding, own.world_size)

    def _warn(self, finding: Finding, world_size: int) -> None:
        """Say a finding once, at the user's line where it is known."""
        key = (finding.rule, finding.name, finding.origin)
        if finding.severity == "note" or key in self._told:
            return
        self._told.add(key)
        text = str(Report((finding,), world_size=world_size))
        if finding.origin is None:
            warnings.warn(text, DeviceCheckWarning, stacklevel=2)
        else:
            warnings.warn_explicit(text, DeviceCheckWarning, finding.origin.filename, finding.origin.lineno)

    def _confess(self) -> None:
        """A fault of ours: say so once, and let training go on."""
        if not self._faulty:
            self._faulty = True
            log.warning("DeviceCheck failed and is of no use in this run; please report this.", exc_info=True)


def _texts(name: str, values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"DeviceCheck({name}={values!r}): a list of strings is needed.")
    return tuple(values)


def _agree(report: Report, trainer: Any) -> Report:
    """Let all processes know of an error that one found, before any of them goes on."""
    if trainer.world_size == 1 or not (dist.is_available() and dist.is_initialized()):
        return report
    if trainer.strategy.reduce_boolean_decision(not report.errors, all=True):
        return report
    reports: list[Any] = [None] * trainer.world_size
    dist.all_gather_object(reports, report.to_dict())
    return merge_reports(Report.from_dict(data) for data in reports)


def _annotate(exception: BaseException, module: torch.nn.Module) -> None:
    """Put a report on a device error that torch raised; the exception stays as it is."""
    try:
        from lightning_devcheck._explain import explain  # not needed before something fails

        report = explain(exception, module)
        if report is None:
            return
        if hasattr(exception, "add_note"):
            exception.add_note(f"\n{report}")
        else:
            print(f"\n{report}", file=sys.stderr, flush=True)
    except Exception:
        log.debug("explaining an exception failed", exc_info=True)  # never mask the exception itself
