"""`DeviceCheck`: when to look, and what to do with what is found."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from lightning_devcheck._check.agreement import Agreement, Notice, can_agree, open_notice, say, warn
from lightning_devcheck._check.arguments import Action, check_arguments, known_rules, texts
from lightning_devcheck._check.check import inspect, inspect_training
from lightning_devcheck._compat import namespaces, sequence_number
from lightning_devcheck._observe.expectation import Expectation, of_trainer
from lightning_devcheck._observe.module_tree import OwnTensors
from lightning_devcheck._observe.training import optimized_ids, parameter_names
from lightning_devcheck._report.errors import DeviceMismatchError
from lightning_devcheck._report.records import Finding
from lightning_devcheck._report.report import Report

if TYPE_CHECKING:
    from pytorch_lightning import Callback as Callback
else:
    Callback = type("Callback", tuple(namespace.Callback for namespace in namespaces()), {})

_T = TypeVar("_T")
# graphs of so many shapes are looked at when they first appear; then the schedule alone decides
MAX_SHAPES = 16
# batches of a fit whose source lines are recorded: the first, and those after a finding that had none
MAX_TRACED = 3

log = logging.getLogger("lightning_devcheck")


class DeviceCheck(Callback):
    """Stop a training run whose loss, graph leaves or parameters are on the wrong device, before backward.

    It compares the loss's device with those seen before at every backward (a few microseconds), and walks the graph at
    batches 1, 2, 4, 8, … of a fit, and at once when the graph changes. At those scheduled batches the processes agree:
    if one found an error, all raise the same `DeviceMismatchError` before backward; they talk over a gloo group of
    their own, on the CPU. Where a backward does not wait for the other processes itself, as when gradients are
    exchanged by hand, no process waits for another: an error is passed on, and all say the same report. It changes no
    result: it reads no value, draws no random number, keeps no tensor. A fault of its own is logged once and training
    goes on.

    The first batch's forward runs with anomaly mode recording source lines: that batch alone takes several times as
    long, and about 20 times in a deep graph of cheap operators (3,000 nodes: 0.1 s become 2; 30,000: 1 s become 10 to
    20). After ``ddp_spawn`` or ``ddp_fork`` the `report` of the parent process is empty: each rank has its own.

    Args:
        on_mismatch: What an error does: ``"raise"`` stops the run on all ranks, ``"warn"`` says it once and goes on,
            ``"ignore"`` only keeps it in `report`. Findings that are warnings never stop a run.
        every_n_steps: Walk the graph every so many batches as well; None for the schedule above alone.
        allow: Glob patterns of names (``"teacher.*"``, ``'heads["b"].*'`` or ``"heads.b.*"``) or devices (``"cpu"``)
            that may be elsewhere.
        ignore: Ids of rules that are not wanted.
        explain: Whether a device error that torch raises gets a report as a note (printed where notes are not shown).

    Raises:
        ValueError: If ``on_mismatch`` is not one of the three, ``every_n_steps`` not a positive integer, or ``ignore``
            names a rule that does not exist.
        TypeError: If ``allow`` or ``ignore`` is no list of strings, or ``explain`` not True or False.

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
    ) -> None:
        super().__init__()
        check_arguments(on_mismatch, every_n_steps, explain)
        self._on_mismatch = on_mismatch
        self._every_n_steps = every_n_steps
        self._allow = texts("allow", allow)
        self._ignore = known_rules(ignore)
        self._explain = explain
        self._faulty = False
        self._found: dict[tuple[str, str, str], Finding] = {}
        self._checked: dict[str, float] = {}
        self._not_checked: dict[str, None] = {}
        self._world_size = 1
        self._start()

    @property
    def report(self) -> Report:
        """All that was found and checked so far, of this process; each finding once, with its count."""
        return Report(tuple(self._found.values()), dict(self._checked), tuple(self._not_checked), self._world_size)

    def _act_as(self, on_mismatch: Action) -> Action:
        """Take another action on errors from now on, and return the one before."""
        before, self._on_mismatch = self._on_mismatch, on_mismatch
        return before

    def _start(self) -> None:
        """Begin a fit."""
        self._batches = self._traced = 0
        self._due = self._tracing = False
        self._wants_lines = True
        self._anomaly = (False, True)
        self._first_node = self._batch_node = 0
        self._names: dict[int, str] = {}
        self._shapes: set[tuple[Any, ...]] = set()
        self._expectation: Expectation | None = None
        self._agreement = Agreement()
        self._notice: Notice | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._start()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._names = self._guard({}, parameter_names, pl_module)  # the optimizers are made

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._on_mismatch == "raise":
            self._notice = self._guard(None, open_notice, trainer)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._notice is not None:
            self._notice.raise_if_told()
        # without a call that is not needed: between steps of a real model even these lines are no longer in any cache
        try:
            self._batches = count = self._batches + 1
            every = self._every_n_steps
            self._due = count & (count - 1) == 0 or (every is not None and count % every == 0)
            if self._tracing:
                self._untrace()
            if self._wants_lines:
                self._trace()
            self._first_node = self._batch_node = sequence_number()
        except Exception:
            self._say_fault()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        if self._notice is not None:
            self._notice.raise_if_told()
        try:
            if self._tracing:
                self._untrace()
            # the cheap check: whether a loss like this, from as many graph nodes, was looked at in this fit
            number = sequence_number()
            shape = (loss.requires_grad, loss.device, number - self._first_node)
            self._first_node = number
            wanted = (shape not in self._shapes and self._is_new(shape)) or self._due
        except Exception:
            self._say_fault()
            wanted = self._due
        if wanted:
            self._check(trainer, pl_module, loss)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._tracing:
            self._untrace()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._tracing:
            self._untrace()
        self._guard(None, self._close, exception)
        if self._explain and not isinstance(exception, DeviceMismatchError):
            try:
                from lightning_devcheck._explain import annotate  # not needed before something fails

                annotate(exception, pl_module)
            except Exception:
                log.debug("explaining an exception failed", exc_info=True)  # never mask the exception itself

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self._tracing:
            self._untrace()
        self._guard(None, self._close)

    def _close(self, exception: BaseException | None = None) -> None:
        """Listen to the other processes no more."""
        notice, self._notice = self._notice, None
        if notice is not None:
            notice.close(exception)

    def _trace(self) -> None:
        """Record the source line of every graph node, until the hook; where it is done already, leave it."""
        self._wants_lines = False
        self._traced += 1
        if self._traced <= MAX_TRACED and not torch.is_anomaly_enabled():
            self._tracing, self._anomaly = True, (False, torch.is_anomaly_check_nan_enabled())
            torch.autograd.set_detect_anomaly(True, check_nan=False)

    def _untrace(self) -> None:
        """Put back what `_trace` changed; where the program has changed it meanwhile, wait until it is ours again."""
        enabled, checks_nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        # a context manager of the program's that is open now puts ours back when it ends
        if enabled and not checks_nan:
            self._tracing = False
            torch.autograd.set_detect_anomaly(*self._anomaly)

    def _is_new(self, shape: tuple[Any, ...]) -> bool:
        """Remember what a loss is like; whether it is worth a look."""
        if sum(seen[1] == shape[1] for seen in self._shapes) >= MAX_SHAPES:
            return False
        self._shapes.add(shape)
        return True

    def _check(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        """Make the full check; where it is due, decide with the other processes."""
        found = self._guard(Report(), self._inspect, trainer, pl_module, loss)
        together = self._due and self._on_mismatch == "raise" and self._guard(False, can_agree, trainer)
        report = found
        if together:
            # a process whose check failed takes part all the same: the others wait for it
            report = self._guard(found, self._agreement.reach, found)
            if self._notice is not None:
                self._notice.raise_if_told()
        elif found.errors and self._notice is not None:
            report = self._guard(found, self._notice.post, found)
        self._guard(None, self._keep, found)
        self._act(report, found, together=together)

    def _guard(self, otherwise: _T, step: Callable[..., _T], *args: Any) -> _T:
        """Run a part of the check; a fault in it is said once, and training goes on."""
        try:
            return step(*args)
        except Exception:
            self._say_fault()
            return otherwise

    def _say_fault(self) -> None:
        """Say once that the check itself failed."""
        if not self._faulty:
            self._faulty = True
            log.warning("DeviceCheck failed and is of no use in this run; please report this.", exc_info=True)

    def _inspect(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> Report:
        if self._expectation is None:
            self._expectation = of_trainer(trainer, pl_module)
        optimized = optimized_ids(trainer.optimizers, pl_module)
        own = OwnTensors(pl_module)
        report = inspect(
            loss,
            own,
            self._expectation,
            optimized=optimized,
            before=self._names,
            allowed=self._allow,
        )
        training = inspect_training(
            trainer,
            own,
            self._expectation,
            optimized=optimized,
            before=self._names,
            batch=self._batches,
            first_node=self._batch_node,
        )
        findings = [
            dataclasses.replace(finding, step=trainer.global_step, global_rank=trainer.global_rank)
            for finding in (*report.findings, *training)
            if finding.rule not in self._ignore
        ]
        return Report(tuple(findings), {**report.checked, "steps": 1}, report.not_checked, trainer.world_size)

    def _keep(self, report: Report) -> None:
        """Add to what was found so far: the same finding again is counted, and takes the lines where it has them."""
        for finding in report.findings:
            key = self._key(finding)
            first = self._found.get(key, dataclasses.replace(finding, count=0))
            origin, used = first.origin or finding.origin, first.used or finding.used
            self._found[key] = dataclasses.replace(first, count=first.count + 1, origin=origin, used=used)
            self._wants_lines |= origin is used is None
        for name, value in report.checked.items():
            self._checked[name] = self._checked.get(name, 0) + value
        self._not_checked.update(dict.fromkeys(report.not_checked))
        self._world_size = max(self._world_size, report.world_size)

    def _key(self, finding: Finding) -> tuple[str, str, str]:
        """What tells findings apart; where a later batch knows no lines, it may not know the name either."""
        key = (finding.rule, finding.name, finding.device)
        if key in self._found or finding.origin or finding.used:
            return key
        return next((k for k in self._found if (k[0], k[2]) == (finding.rule, finding.device)), key)

    def _act(self, report: Report, own: Report, *, together: bool) -> None:
        if self._on_mismatch == "ignore":
            return
        if report.errors and self._on_mismatch == "raise":
            error = self._guard(None, DeviceMismatchError, report)
            said = self._notice is not None and self._notice.report is not None
            # the launcher may end this process before its traceback is out, or shows that of one process only
            hidden = not together or multiprocessing.parent_process() is not None
            if error and report.world_size > 1 and hidden and not said:
                self._guard(None, say, error)
            if together:
                self._guard(None, self._agreement.wait)
            if error:
                raise error
        for finding in own.findings:
            warn(finding, self._guard("", self._text_to_warn, finding, own.world_size))

    def _text_to_warn(self, finding: Finding, world_size: int) -> str:
        """A finding in words; nothing for a note, and for one that was said before."""
        if finding.severity == "note" or self._found[self._key(finding)].count > 1:
            return ""
        return str(Report((finding,), world_size=world_size))
