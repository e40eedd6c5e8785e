"""The processes of a run stop together: none is left in a collective by one that stopped."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import threading
import time
import warnings
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._compat import default_store, has_comm_hook, is_joining
from lightning_devcheck._observe.expectation import kind_of
from lightning_devcheck._report.errors import DeviceCheckWarning, DeviceMismatchError
from lightning_devcheck._report.records import Finding
from lightning_devcheck._report.report import Report, merge_reports, write_text

# how long a process waits for the others to say an error
SAYING = timedelta(seconds=5)
# how often a process looks whether another one has posted an error
POLL_S = 0.5
# how often one that has posted looks whether all have taken notice
TELL_S = 0.02

# fits of this process; every process of a run makes the same ones
_fits = itertools.count()
log = logging.getLogger("lightning_devcheck")


class Agreement:
    """Tells every process of an error that one of them found, before any of them goes on.

    It talks over a gloo group of its own, on CPU tensors: the device under suspicion may be the
    very one that the run's own process group needs, no device is made to wait, and the program's
    collectives stay in their order.
    """

    def __init__(self) -> None:
        self._group: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the process group behind: it means nothing in another process."""
        return {"_group": None}

    def reach(self, report: Report) -> Report:
        """Give every process the reports of all, if one has an error; else each its own.

        Every process must call it at the same backward (`can_agree`). It costs one all-reduce of
        one number, and one gather of the reports where there is an error.
        """
        try:
            return self._exchange(report)
        except RuntimeError:
            # another process has ended, for a reason of its own or one that it has posted: so will
            # this one
            log.debug("an agreement was broken off", exc_info=True)
            return report

    def _exchange(self, report: Report) -> Report:
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        wrong = torch.tensor(len(report.errors), device="cpu")
        dist.all_reduce(wrong, op=dist.ReduceOp.MAX, group=self._group)
        if not wrong.item():
            return report
        reports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reports, report.to_dict(), group=self._group)
        return merge_reports(map(Report.from_dict, reports))

    def wait(self) -> None:
        """Wait until every process is here: a launcher ends all when the first has failed.

        Called after an agreement on an error, by all processes.
        """
        try:
            dist.monitored_barrier(self._group, timeout=SAYING)
        except RuntimeError:  # another one is gone, or has no more to say
            return


class Notice:
    """Word of an error between processes that must not wait for each other.

    The first process to post an error is heard by all, by a thread of each that looks into the
    run's store, so that even one that waits in a collective of the program's can say the report.
    Without an error nobody waits, and the processes talk over no process group.

    Args:
        store: The store of the run's processes.
        world_size: How many they are.

    Attributes:
        report: The report that was posted; None where nobody has posted one.
    """

    def __init__(self, store: Any, world_size: int) -> None:
        self.report: Report | None = None
        self._store = dist.PrefixStore(f"lightning_devcheck/{next(_fits)}", store)
        self._world_size = world_size
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._listen, name="lightning_devcheck", daemon=True).start()

    def __reduce__(self) -> tuple[Any, ...]:
        """Be None in another process, and in a copy: neither has the thread."""
        return type(None), ()

    def post(self, report: Report) -> Report:
        """Tell all processes of a report with errors, and wait a while until each has said it.

        Returns:
            The report that was posted first, which may be another process's.
        """
        text = json.dumps(report.to_dict())
        first = self._store.compare_set("report", "", text)
        posted = self._take(first)
        self.wait()
        return posted

    def wait(self) -> None:
        """Wait until all have said the report: a launcher ends all when the first has failed."""
        limit = time.monotonic() + SAYING.total_seconds()
        told = 0
        try:
            while told < self._world_size and time.monotonic() < limit:
                time.sleep(TELL_S)
                told = self._store.add("told", 0)
        except Exception:
            # the process that keeps the store has ended, or the launcher ends this one: no reason
            # to wait on
            log.debug("waiting for other processes ended", exc_info=True)

    def raise_if_told(self) -> None:
        """Stop this process where another one has posted an error.

        Raises:
            DeviceMismatchError: With the report that was posted.
        """
        if self.report is not None:
            self.wait()
            raise DeviceMismatchError(self.report)

    def close(self, exception: BaseException | None = None) -> None:
        """Let the thread end; what another process said goes with an exception that came of it."""
        self._closed.set()
        if exception is None or isinstance(exception, DeviceMismatchError) or self.report is None:
            return
        exception.add_note(f"\nAnother process has stopped the run:\n{self.report}")

    def _listen(self) -> None:
        try:
            while not self._closed.wait(POLL_S):
                if self._store.check(["report"]):
                    self._take(self._store.get("report"))
                    return
        except Exception:
            # the process that keeps the store has ended: nobody has anything more to say
            log.debug("listening to other processes ended", exc_info=True)

    def _take(self, text: bytes) -> Report:
        """Say a report that was posted, once, and let the others know."""
        with self._lock:
            if self.report is not None:
                return self.report
            self.close()
            report = Report.from_dict(json.loads(text))
            say(DeviceMismatchError(report))
            self.report = report
            self._store.add("told", 1)
            return report


def say(error: DeviceMismatchError) -> None:
    """Write an error in one piece: other processes write to the same place."""
    write_text(f"{type(error).__name__}: {error}", sys.stderr)


def warn(finding: Finding, text: str) -> None:
    """Say a finding at the user's line, where that is known."""
    if not text:
        return
    if finding.origin is None:
        warnings.warn(text, DeviceCheckWarning, stacklevel=3)
    else:
        line = finding.origin
        warnings.warn_explicit(text, DeviceCheckWarning, line.filename, line.lineno)


def can_agree(trainer: Any) -> bool:
    """Whether several processes run, and this backward itself waits for all of them.

    Then all come to it, and may wait for each other before it. Where gradients are not exchanged in
    the backward, each process may make as many as it likes: one may leave a batch out or run out of
    data before the others (``torch.distributed.algorithms.Join``).
    """
    if not are_several(trainer):
        return False
    model = trainer.strategy.model
    automatic = trainer.lightning_module.automatic_optimization
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        # where the model is sharded, forward and backward wait for all
        return bool(automatic and kind_of(trainer.strategy) == "sharded")
    if is_joining(model):
        return False
    # Lightning sees to it that all make the same backwards
    if automatic:
        return True
    if has_comm_hook(model) or not model.require_backward_grad_sync:
        return False
    return dist.get_world_size(model.process_group) == dist.get_world_size()


def open_notice(trainer: Any) -> Notice | None:
    """Have processes told of an error that cannot be agreed on.

    None where there is one process, or no store to tell it by.
    """
    if not are_several(trainer):
        return None
    if trainer.lightning_module.automatic_optimization and can_agree(trainer):
        return None  # they wait for each other at every backward
    store = default_store()
    return None if store is None else Notice(store, trainer.world_size)


def are_several(trainer: Any) -> bool:
    """Whether the run has several processes that can talk."""
    return trainer.world_size > 1 and dist.is_available() and dist.is_initialized()
