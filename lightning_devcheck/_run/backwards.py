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
from lightning_devcheck._check.loop import Line, Look, name_of_trained
from lightning_devcheck._compat import is_transformed, no_torch_function
from lightning_devcheck._explain.program import Program
from lightning_devcheck._fix.trace import Trace
from lightning_devcheck._judge.loop import judge_shared
from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.report import Report
from lightning_devcheck._run.recorder import current_recorder
from lightning_devcheck._run.spool import save
from lightning_devcheck._simulate.patch import Change, Patches
from lightning_devcheck._simulate.state import active, running
from lightning_devcheck._source.files import is_installed
from lightning_devcheck._witness.places import Place

# of a program that makes its code as it runs
MAX_LINES = 1_000
# on an exception that was explained where it was raised, while everything was still where it was
EXPLAINED = "_lightning_devcheck_explained"

log = logging.getLogger("lightning_devcheck")


class BackwardWatch:
    """Is told of every backward in a simulation; looks at the first few calls of each line.

    Args:
        folder: Where reports are saved.
        trace: Where what is computed is written down; None where nobody compares runs.

    Attributes:
        has_cut: Whether torch refused a loss, which has no graph.
    """

    def __init__(self, folder: Path, trace: Trace | None = None) -> None:
        self._folder = folder
        self._trace = trace
        self._optimizers: weakref.WeakKeyDictionary[Any, Place]
        self._optimizers = weakref.WeakKeyDictionary()
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lines: dict[Place, Line] = {}
        self._found: dict[tuple[str, str, str], Finding] = {}
        self._checked: dict[str, float] = {}
        self._not_checked: dict[str, None] = {}
        self._name = ""
        self._told: tuple[int, type | None] = (0, None)
        self._faulty = False
        self.has_cut = False

    def _begin_in_fork(self) -> None:
        """Begin anew in a process that was forked: what its parent has found, that says."""
        if self._process != os.getpid():
            self._start()

    def tell(self, loss: torch.Tensor, step_of: type | None) -> None:
        """Know that a Trainer goes back from a loss next, and that its check has looked at that.

        Args:
            loss: The loss.
            step_of: The class whose ``training_step`` returned it; None where that calls backward.
        """
        self._begin_in_fork()
        self._told = (id(loss), step_of)

    def __call__(
        self,
        roots: Sequence[Any],
        gives_leaves_gradients: bool,
    ) -> AbstractContextManager[None]:
        """Look at what a backward begins with."""
        try:
            with no_torch_function():
                if self._trace is not None:
                    self._trace.note(roots, list(self._optimizers))
                return self._look(roots, trains=gives_leaves_gradients)
        except Exception:
            # a fault of the check's own never stops a run
            if not self._faulty:
                log.warning("looking at a backward failed; please report this.", exc_info=True)
            self._faulty = True
        return nullcontext()

    def _look(self, roots: Sequence[Any], *, trains: bool) -> AbstractContextManager[None]:
        self._begin_in_fork()
        tensors = [root for root in roots if isinstance(root, torch.Tensor)]
        cut = [tensor for tensor in tensors if not tensor.requires_grad]
        step_of = None
        told, owner = self._told
        if told in map(id, tensors):
            # looked at by a `DeviceCheck`, which can't know that torch is about to refuse it
            tensors, step_of = cut, owner
            self._told = (0, None)
        tensors = [tensor for tensor in tensors if not is_transformed(tensor)]
        if not tensors:
            return nullcontext()
        frame = _own_frame()
        line = self._line(running().places.here(frame))
        if line.looks >= MAX_BATCH and not cut:
            return nullcontext()
        optimized = self._optimized()
        has_refused = _what_was_refused()
        self._add(Report(checked={"backwards": 1}))
        for number, tensor in enumerate(tensors):
            program = Program(frame, number, step_of)
            look = Look(tensor, line, program, optimized, trains, has_refused)
            report, devices = look.inspect()
            self._add(report)
            if len(devices) == 1 and trains:
                self._compare(tensor, str(*devices), program)
        line.looks += 1
        self.save()
        if not cut:
            return nullcontext()
        self.has_cut = True
        return _explained()

    def _line(self, place: Place) -> Line:
        """Find what is known of the line that calls; where there are too many, one that is done."""
        if place not in self._lines and len(self._lines) >= MAX_LINES:
            return Line(looks=MAX_BATCH)
        return self._lines.setdefault(place, Line())

    def _optimized(self) -> dict[int, Origin | None]:
        """The line that made the optimizer which holds a tensor, by the tensor's id."""
        found: dict[int, Origin | None] = {}
        places = running().places
        for optimizer, place in list(self._optimizers.items()):
            line = places.line(place)
            for group in getattr(optimizer, "param_groups", ()):
                keys = map(id, group["params"])
                found.update(dict.fromkeys(keys, line))
        return found

    def made(self, optimizer: Any) -> None:
        """Know an optimizer, for as long as it lives."""
        self._optimizers[optimizer] = running().places.here()

    def _compare(self, loss: torch.Tensor, device: str, program: Program) -> None:
        """Compare where this process trains with where the others do, which leave word."""
        rank, count = _rank(), _world_size()
        local = int(os.environ.get("LOCAL_WORLD_SIZE", count))
        if count < 2 or not device.startswith("cuda") or running().devices < local:
            return
        # a launcher may show each process a device of its own, which is number 0 to it
        mine = json.dumps([device, os.environ.get("CUDA_VISIBLE_DEVICES")])
        (self._folder / f"trains-{rank}").write_text(mine, encoding="utf-8")
        for other in range(count):
            if other == rank or self._word_of(other) != mine:
                continue
            first, last = sorted((rank, other))
            if not self._claim(f"shared-{last}"):
                continue
            name, origin = name_of_trained(loss, program)
            expected = f"cuda:{last % local}"
            finding = judge_shared(name, device, expected, first, origin)
            finding = dataclasses.replace(finding, global_rank=last)
            self._add(Report((finding,)))

    def _word_of(self, rank: int) -> str:
        """What another process has left; empty where it has not come so far."""
        try:
            return (self._folder / f"trains-{rank}").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

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
            if key not in self._found:
                made = finding.decided or finding.origin
                rank = finding.global_rank or _rank()
                new = dataclasses.replace(finding, decided=made, global_rank=rank, count=0)
                self._found[key] = new
            known = self._found[key]
            self._found[key] = dataclasses.replace(known, count=known.count + 1)
        for name, value in report.checked.items():
            self._checked[name] = self._checked.get(name, 0) + value
        self._not_checked.update(dict.fromkeys(report.not_checked))

    def save(self) -> None:
        """Save what was found and looked at until now, in place of what was saved before."""
        findings = tuple(self._found.values())
        report = Report(findings, self._checked, tuple(self._not_checked), _world_size())
        self._name = save(report, self._folder, self._name)


def _what_was_refused() -> Callable[[Origin | None], bool]:
    """Give what knows whether something whose device a line decided was refused."""
    recorder = current_recorder()
    if recorder is None:
        return _nothing_refused
    return recorder.has_refused


def _nothing_refused(line: Origin | None) -> bool:
    """Say what is known of a line in a run that does not go on."""
    return False


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _rank() -> int:
    return dist.get_rank() if _has_group() else 0


def _world_size() -> int:
    return dist.get_world_size() if _has_group() else 1


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
def watching_backwards(
    folder: Path,
    trace: Trace | None = None,
) -> Iterator[BackwardWatch]:
    """Look at every backward that runs in the simulation, and save what was found."""
    watch = BackwardWatch(folder, trace)
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
