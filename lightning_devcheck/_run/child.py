"""Run somebody's script inside a simulation: what happens in the processes that `lightning-devcheck run` starts."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from lightning_devcheck._compat import namespaces
from lightning_devcheck._fix.overlay import Overlay
from lightning_devcheck._fix.trace import Trace
from lightning_devcheck._report.report import Report
from lightning_devcheck._run.backwards import watching_backwards
from lightning_devcheck._run.collector import explaining_ranks, is_explained, save_explained, with_check
from lightning_devcheck._run.parent import SETTINGS, START, Settings, flush_or_drop
from lightning_devcheck._run.recorder import recording
from lightning_devcheck._run.spool import save
from lightning_devcheck._simulate import simulate_cuda
from lightning_devcheck._simulate.patch import Change, Patches
from lightning_devcheck._simulate.state import running

PACKAGE = str(Path(__file__).parents[1])
PR_SET_PDEATHSIG = 1  # from linux/prctl.h
# strategies that share a model out, by the beginning of their name or class
SHARDING = ("fsdp", "deepspeed", "modelparallel")
# entry points of a Trainer that may be asked for a checkpoint that a short run does not write
AFTER_FIT = ("validate", "test", "predict")


def main() -> None:
    """Run the script that the command line names; exits as the script does, with 1 for an exception."""
    settings = Settings(**json.loads(os.environ[SETTINGS]))
    _end_with_parent()
    folder = Path(settings.folder)
    trace = None
    overlay: Iterable[Change] = ()
    if settings.compares:
        trace = Trace(folder)
        overlay = Overlay(folder).stand_ins()
        _seed()
    with (
        Patches(overlay),
        simulate_cuda(settings.devices, values=settings.values),
        Patches(_stand_ins(settings)),
        watching_backwards(folder, trace),
        contextlib.nullcontext() if settings.stop_at_first else recording(folder),
    ):
        if "LOCAL_RANK" not in os.environ:
            # a single process trains on the last device; "cuda" means the same one
            running().current = settings.devices - 1
        status = _guarded(sys.argv[1:], folder)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            flush_or_drop(stream)
    sys.exit(status)


def _seed() -> None:
    """Have the random numbers that the script does not seed be the same in each run."""
    random.seed(0)
    torch.manual_seed(0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


def _end_with_parent() -> None:
    """Die when the parent does, where the system can be asked to see to it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _guarded(argv: list[str], folder: Path) -> int:
    """Run the script; what it raises is shown without our own frames, and explained."""
    try:
        _run(argv)
    except SystemExit as end:
        return _status_of(end, folder)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        _tell(error, folder)
        return 1
    return 0


def _run(argv: list[str]) -> None:
    if argv[0] == "-m":
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path[0] = str(Path(argv[0]).resolve().parent)
        runpy.run_path(argv[0], run_name="__main__")


def _status_of(end: SystemExit, folder: Path) -> int:
    status = end.code if isinstance(end.code, int) else int(end.code is not None)
    if status:
        reason = f"the script called sys.exit({end.code!r})"
        print(reason, file=sys.stderr)
        _leave_word(folder, reason)
    return status


def _tell(error: BaseException, folder: Path) -> None:
    traceback.print_exception(type(error), error, _without_ours(error.__traceback__))
    if isinstance(error, EOFError):
        print("The script asked for input: under `lightning-devcheck run` there is none.", file=sys.stderr)
    sys.stderr.flush()
    reason = f"{type(error).__name__}: {error}"
    if not is_explained(error) and not save_explained(error, folder):
        save(Report(not_checked=(f"what comes after {reason}",)), folder)
    _leave_word(folder, reason)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback with the frames of the script and of what it calls, and none of ours."""
    if trace is None:
        return None
    below = _without_ours(trace.tb_next)
    filename = trace.tb_frame.f_code.co_filename
    if filename.startswith(PACKAGE) or runpy.__name__ in filename:
        return below
    return TracebackType(below, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _leave_word(folder: Path, reason: str) -> None:
    (folder / f"failed-{os.getpid()}").write_text(reason, encoding="utf-8", errors="backslashreplace")


def _stand_ins(settings: Settings) -> Iterator[Change]:
    """What to replace: Trainers run a few steps, and processes that a script starts are simulated too."""
    yield subprocess, "Popen", SimulatedRank
    yield from explaining_ranks(Path(settings.folder))
    for namespace in namespaces():
        trainer = namespace.Trainer
        yield trainer, "__init__", _limited(trainer.__init__, settings)
        yield trainer, "fit", _changing(trainer.fit, _without_checkpoint)
        for stage in AFTER_FIT:
            yield trainer, stage, _changing(getattr(trainer, stage), _of_this_model)


class SimulatedRank(subprocess.Popen):  # type: ignore[type-arg]
    """``subprocess.Popen``: a rank that a launcher starts with this Python runs under the simulation as well."""

    def __init__(self, args: Any, *rest: Any, **kwargs: Any) -> None:
        if "LOCAL_RANK" in (kwargs.get("env") or ()) and isinstance(args, (list, tuple)) and args[0] == sys.executable:
            given = list(args[1:])
            flags = [given.pop(0) for _ in range(len(given)) if given[0].startswith("-") and given[0] != "-m"]
            args = [args[0], *flags, "-c", START, *given]
        super().__init__(args, *rest, **kwargs)


def _limited(original: Callable[..., None], settings: Settings) -> Callable[..., None]:
    """A Trainer that runs a few steps, without logger and checkpoint, with a check, on devices that there are."""

    @functools.wraps(original)
    def limited(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["strategy"], reasons = simulated_strategy(kwargs.get("strategy", "auto"))
        callbacks = with_check(kwargs.get("callbacks"), Path(settings.folder), reasons)
        kwargs["callbacks"] = [given for given in callbacks if not _saves_config(given)]
        kwargs |= {"fast_dev_run": settings.steps, "num_nodes": 1, "barebones": False, "overfit_batches": 0}
        if kwargs.get("accelerator") != "cpu" and "devices" in kwargs:
            kwargs["devices"] = available(kwargs["devices"], settings.devices)
        original(self, *args, **kwargs)

    return limited


def _saves_config(callback: Any) -> bool:
    """Whether a callback is left out, as in Lightning's own short runs: there is no folder to save in."""
    return any(cls.__name__ == "SaveConfigCallback" for cls in type(callback).__mro__)


def simulated_strategy(wanted: Any) -> tuple[Any, tuple[str, ...]]:
    """What a Trainer's ``strategy`` becomes, and what is not checked for it: sharding ones need a real device.

    Raises:
        NotImplementedError: If the model itself is written for the strategy's devices.
    """
    names = [wanted] if isinstance(wanted, str) else [cls.__name__ for cls in type(wanted).__mro__]
    kind = next((kind for kind in SHARDING for name in names if name.lower().startswith(kind)), "")
    if kind == "modelparallel":
        raise NotImplementedError(
            "ModelParallelStrategy is not simulated: its device mesh needs real devices. Check the same model with "
            'strategy="ddp", without what its configure_model does with self.device_mesh.'
        )
    if not kind:
        return wanted, ()
    name = wanted if isinstance(wanted, str) else names[0]
    return "ddp", (f"strategy {name} was run as ddp: how it shards the model is not simulated",)


def available(wanted: Any, count: int) -> Any:
    """What a Trainer's ``devices`` becomes where there are ``count``: as many as there are, one on the last."""
    if isinstance(wanted, str) and wanted.strip().isdigit():
        wanted = int(wanted)
    if type(wanted) is int and wanted > 0:
        return [count - 1] if wanted == 1 else min(wanted, count)
    if isinstance(wanted, (list, tuple)) and any(index >= count for index in wanted):
        return list(range(min(len(wanted), count)))
    return wanted


def _changing(original: Callable[..., Any], change: Callable[[dict[str, Any]], None]) -> Callable[..., Any]:
    """A method whose arguments, by name, are changed on the way."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        change(bound.arguments)
        return original(*bound.args, **bound.kwargs)

    return call


def _without_checkpoint(arguments: dict[str, Any]) -> None:
    """``fit`` from the start: a checkpoint of a long run is past the end of a short one."""
    arguments.pop("ckpt_path", None)


def _of_this_model(arguments: dict[str, Any]) -> None:
    """``test`` and its like with the model as it is where the best checkpoint is asked for: none was written."""
    if arguments.get("ckpt_path") in (None, "best", "last"):
        arguments.pop("ckpt_path", None)
        if arguments.get("model") is None:
            arguments["model"] = arguments["self"].lightning_module
