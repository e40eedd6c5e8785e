"""A callback that saves what a process found, for a parent that sums up: ranks have no way back but files."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from lightning_devcheck._check.callback import Callback, DeviceCheck
from lightning_devcheck._explain import explain
from lightning_devcheck._report.records import Finding
from lightning_devcheck._run.backwards import EXPLAINED, current_watch
from lightning_devcheck._run.deadline import limit_join, note_line_when_asked
from lightning_devcheck._run.host_reads import ReadCounter
from lightning_devcheck._run.recorder import current_recorder
from lightning_devcheck._run.spool import save
from lightning_devcheck._simulate.api.distributed import start_stand_ins
from lightning_devcheck._simulate.patch import Change

# where there is a time limit already
FOREVER_S = 1e6


class Collector(Callback):
    """Saves the report of a `DeviceCheck`, and that of an exception, at the end of each run of a Trainer.

    Args:
        check: The check whose report is saved.
        folder: Where to.
        not_checked: What else the run does not check, and why.
    """

    def __init__(self, check: DeviceCheck, folder: Path, not_checked: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._check = check
        self._folder = folder
        self._not_checked = not_checked
        self._reads = ReadCounter()
        self._noted = False
        # what the check does on errors where the run does not go on from them
        self._action: Any = None
        self._explained: set[tuple[str, str]] = set()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        recorder = current_recorder()
        if recorder is not None:
            recorder.watch(trainer)
            self._action = self._action or self._check._act_as("ignore")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._reads.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._reads.stop()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        watch = current_watch()
        if watch is not None:
            watch.tell(loss, type(pl_module) if pl_module.automatic_optimization else None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._reads.stop()
        explained = save_explained(exception, self._folder, pl_module, **_place_of(trainer))
        self._explained = {(finding.rule, finding.name) for finding in explained}
        self._save(trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._save(trainer)
        if self._action is not None:
            self._check._act_as(self._action)
            self._action = None

    def _save(self, trainer: Any) -> None:
        report = self._check.report
        notes = self._reads.findings(trainer.global_rank) if not self._noted else ()
        self._noted = self._noted or bool(notes)
        # the exception's own report shows the line that failed as well
        own = [finding for finding in report.findings if not self._is_told(finding)]
        reasons = (*report.not_checked, *self._not_checked)
        save(dataclasses.replace(report, findings=(*own, *notes), not_checked=reasons), self._folder)

    def _is_told(self, finding: Finding) -> bool:
        """Whether another report says more of a finding."""
        watch = current_watch()
        is_cut = finding.rule == "detached-loss" and watch is not None and watch.has_cut
        return is_cut or (finding.rule, finding.name) in self._explained


def with_check(callbacks: Any, folder: Path, not_checked: tuple[str, ...] = ()) -> list[Any]:
    """Add what saves the report of a `DeviceCheck` to a Trainer's callbacks, and a quiet check where there is none.

    Args:
        callbacks: The Trainer's argument: one callback, several, or None.
        folder: Where to.
        not_checked: What else the run does not check, and why.
    """
    if not isinstance(callbacks, (list, tuple)):
        callbacks = [] if callbacks is None else [callbacks]
    check = next((given for given in callbacks if isinstance(given, DeviceCheck)), None)
    if check is not None:
        return [*callbacks, Collector(check, folder, not_checked)]
    check = DeviceCheck("ignore", every_n_steps=1, explain=False)
    return [*callbacks, check, Collector(check, folder, not_checked)]


def _place_of(trainer: Any) -> dict[str, Any]:
    return {"step": trainer.global_step, "global_rank": trainer.global_rank, "world_size": trainer.world_size}


def save_explained(
    exception: BaseException, folder: Path, module: Any = None, *, world_size: int = 1, **place: Any
) -> tuple[Finding, ...]:
    """Save what an exception that is about devices means, and where it was raised; another one is left alone.

    Returns:
        The findings.
    """
    report = explain(exception, module)
    if report is None:
        return ()
    vars(exception)[EXPLAINED] = True
    findings = tuple(dataclasses.replace(finding, **place) for finding in report.findings)
    save(dataclasses.replace(report, findings=findings, world_size=world_size), folder)
    return findings


def is_explained(error: BaseException) -> bool:
    """Whether an exception has been explained, here or by the process that failed."""
    from_rank = isinstance(error, (ProcessRaisedException, ProcessExitedException))
    return from_rank or EXPLAINED in vars(error)


def explaining_ranks(folder: Path, timeout_s: float = FOREVER_S) -> Iterator[Change]:
    """Have a rank explain its exception itself: its parent only gets the text.

    Args:
        folder: Where ranks leave what they found.
        timeout_s: Seconds after which all ranks are ended and their parent's ``join`` raises `TimeoutError`.
    """

    def limited(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **kwargs: Any) -> Any:
            context = original(_explaining, (fn, folder, nprocs, *args), nprocs, *rest, **kwargs)
            if context is not None:
                limit_join(context, folder, timeout_s)
            return context

        return start_processes

    return start_stand_ins(limited)


def _explaining(index: int, fn: Any, folder: Path, nprocs: int, *args: Any) -> None:
    recorder = current_recorder()
    if recorder is not None:
        recorder.start_rank()
    try:
        note_line_when_asked(functools.partial(fn, index, *args), index, folder)
    except Exception as error:
        if not is_explained(error):
            save_explained(error, folder, world_size=nprocs, global_rank=index)
        raise
    finally:
        if recorder is not None:
            recorder.save()
