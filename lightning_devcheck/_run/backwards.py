"""Every backward of a run is looked at, whoever calls it."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._check.check import MAX_BATCH
from lightning_devcheck._check.loop import Line, inspect_loop, name_of_trained
from lightning_devcheck._compat import is_transformed, no_torch_function
from lightning_devcheck._judge.loop import judge_shared
from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.report import Report
from lightning_devcheck._run.spool import save
from lightning_devcheck._simulate.patch import Change, Patches
from lightning_devcheck._simulate.state import active, running
from lightning_devcheck._source.files import is_installed
from lightning_devcheck._witness.places import NOWHERE, Place

# of a program that makes its code as it runs
MAX_LINES = 1_000
# on an exception that was explained where it was raised, while everything was still where it was
EXPLAINED = "_lightning_devcheck_explained"

log = logging.getLogger("lightning_devcheck")


class BackwardWatch:
    """Is told of every backward in a simulation; looks at the first few of each line, and keeps no tensor.

    Args:
        folder: Where reports are saved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._optimizers: weakref.WeakKeyDictionary[Any, Place] = weakref.WeakKeyDictionary()
        self._start()

    def _start(self) -> None:
        """Begin, also anew in a process that was forked: what its parent has found, that says."""
        self._process = os.getpid()
        self._lines: dict[Place, Line] = {}
        self._found: dict[tuple[str, str, str], Finding] = {}
        self._report = Report()
        self._name = ""
        self._told: tuple[int, type | None] | None = None
        self._has_cut = False
        self._faulty = False

    def tell(self, loss: torch.Tensor, step_of: type | None) -> None:
        """Know that a Trainer is about to go back from a loss, and that its check has looked at that.

        Args:
            loss: The loss.
            step_of: The class whose ``training_step`` returned it; None where that called backward itself.
        """
        self._told = id(loss), step_of

    @property
    def has_cut(self) -> bool:
        """Whether torch refused a loss, which has no graph."""
        return self._has_cut

    def __call__(self, roots: Sequence[Any], gives_leaves_gradients: bool) -> AbstractContextManager[None]:
        """Look at what a backward begins with."""
        try:
            with no_torch_function():
                return self._look(roots, trains=gives_leaves_gradients)
        except Exception:
            # a fault of the check's own never stops a run
            if not self._faulty:
                log.warning("looking at a backward failed; please report this.", exc_info=True)
            self._faulty = True
        return nullcontext()

    def _look(self, roots: Sequence[Any], *, trains: bool) -> AbstractContextManager[None]:
        if self._process != os.getpid():
            self._start()
        told, step_of = self._told or (0, None)
        is_told = told in map(id, roots)
        if is_told:
            self._told = None
        tensors = [root for root in roots if isinstance(root, torch.Tensor) and not is_transformed(root)]
        if is_told:
            tensors = [root for root in tensors if not root.requires_grad]
        frame = _own_frame()
        line = self._line(running().places.here(frame)) if tensors else None
        if line is None or line.looks >= MAX_BATCH:
            return nullcontext()
        self._inspect(tensors, line, frame, trains=trains, step_of=step_of if is_told else None)
        line.looks += 1
        if all(root.requires_grad for root in tensors):
            return nullcontext()
        self._has_cut = True
        return _explained()

    def _line(self, place: Place) -> Line | None:
        """What is known of the line that calls; None where there are too many."""
        if place not in self._lines and len(self._lines) >= MAX_LINES:
            return None
        return self._lines.setdefault(place, Line())

    def _inspect(
        self, tensors: Sequence[torch.Tensor], line: Line, frame: FrameType, *, trains: bool, step_of: type | None
    ) -> None:
        optimized = self._optimized()
        self._add(Report(checked={"backwards": 1}))
        for number, tensor in enumerate(tensors):
            report, devices = inspect_loop(tensor, number, line, frame, optimized, trains=trains, step_of=step_of)
            self._add(report)
            if len(devices) == 1 and trains:
                self._compare(tensor, next(iter(devices)), frame)
        self.save()

    def _optimized(self) -> dict[int, Origin | None]:
        """The line that made the optimizer which holds a tensor, by the tensor's id."""
        found: dict[int, Origin | None] = {}
        places = running().places
        for optimizer, place in list(self._optimizers.items()):
            line = places.line(place) if place != NOWHERE else None
            for group in getattr(optimizer, "param_groups", ()):
                found.update(dict.fromkeys(map(id, group["params"]), line))
        return found

    def made(self, optimizer: Any) -> None:
        """Know an optimizer, for as long as it lives."""
        self._optimizers[optimizer] = running().places.here()

    def _compare(self, loss: torch.Tensor, device: torch.device, frame: FrameType) -> None:
        """Compare where this process trains with where the others do, which leave word."""
        rank, count = _rank(), _world_size()
        if count < 2 or device.type != "cuda" or running().devices < _local_count(count):
            return
        # a launcher may show each process a device of its own, which is number 0 to it
        mine = json.dumps([str(device), os.environ.get("CUDA_VISIBLE_DEVICES")])
        (self._folder / f"trains-{rank}").write_text(mine, encoding="utf-8")
        for other in range(count):
            word = self._folder / f"trains-{other}"
            if other == rank or not word.exists() or word.read_text(encoding="utf-8") != mine:
                continue
            first, last = sorted((rank, other))
            if self._claim(f"shared-{last}"):
                name, origin = name_of_trained(frame, loss)
                expected = f"cuda:{last % _local_count(count)}"
                finding = judge_shared(name, str(device), expected, first, origin)
                self._add(Report((dataclasses.replace(finding, global_rank=last),)))

    def _claim(self, name: str) -> bool:
        """Be the one process that says something; False where another one was faster."""
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _add(self, report: Report) -> None:
        """Add to what was found; the same again is counted."""
        for finding in report.findings:
            key = (finding.rule, finding.name, finding.device)
            first = self._found.get(key)
            if first is None:
                made = finding.decided or finding.origin
                rank = finding.global_rank or _rank()
                first = dataclasses.replace(finding, decided=made, global_rank=rank, count=0)
            self._found[key] = dataclasses.replace(first, count=first.count + 1)
        checked = dict(self._report.checked)
        for name, value in report.checked.items():
            checked[name] = checked.get(name, 0) + value
        reasons = dict.fromkeys((*self._report.not_checked, *report.not_checked))
        self._report = Report((), checked, tuple(reasons))

    def save(self) -> None:
        """Save what was found and looked at until now, in place of what was saved before."""
        report = dataclasses.replace(self._report, findings=tuple(self._found.values()), world_size=_world_size())
        self._name = save(report, self._folder, self._name)


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _local_count(count: int) -> int:
    """How many processes of the run are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", count))


def _own_frame() -> FrameType:
    """The innermost running frame of the program's own; of a library where there is none."""
    frame = sys._getframe(1)
    found: FrameType | None = frame
    while found is not None and is_installed(found.f_code.co_filename):
        found = found.f_back
    return found or frame


@contextmanager
def _explained() -> Iterator[None]:
    """Mark what torch raises of a loss without a graph, which the report has."""
    try:
        yield
    except RuntimeError as error:
        vars(error)[EXPLAINED] = True
        raise


@contextmanager
def watching_backwards(folder: Path) -> Iterator[BackwardWatch]:
    """Look at every backward that runs in the simulation, and save what was found."""
    watch = BackwardWatch(folder)
    simulation = running()
    before, simulation.watch_backward = simulation.watch_backward, watch
    try:
        with Patches(_optimizer_stand_ins(watch)):
            yield watch
    finally:
        simulation.watch_backward = before


def current_watch() -> BackwardWatch | None:
    """The one that looks at backwards in this process."""
    simulation = active()
    watch = None if simulation is None else simulation.watch_backward
    return watch if isinstance(watch, BackwardWatch) else None


def _optimizer_stand_ins(watch: BackwardWatch) -> Iterator[Change]:
    """What to replace: optimizers make themselves known."""
    original: Callable[..., None] = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if active() is not None:
            watch.made(self)

    yield torch.optim.Optimizer, "__init__", make
