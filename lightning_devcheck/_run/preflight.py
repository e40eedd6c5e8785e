"""Run a few steps of a real Trainer on simulated devices, and report."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from lightning_devcheck._check.activation import NAMESPACES
from lightning_devcheck._check.callback import Callback
from lightning_devcheck._compat import fork_processes, isolate_rng, namespaces
from lightning_devcheck._judge.scan import scan
from lightning_devcheck._report.report import Report, merge_reports
from lightning_devcheck._run.backwards import watching_backwards
from lightning_devcheck._run.collector import explaining_ranks, is_explained, save_explained, with_check
from lightning_devcheck._run.recorder import recording
from lightning_devcheck._run.spool import saved
from lightning_devcheck._simulate import simulate_cuda
from lightning_devcheck._simulate.host_reads import NO_VALUES
from lightning_devcheck._simulate.patch import Patches

LOGGERS = (*NAMESPACES, "lightning.fabric", "lightning_fabric")
# modules whose warnings are hints about a run that is short on purpose
HINTS = r"(pytorch_lightning|lightning|lightning_fabric|lightning_utilities)\."
QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "max_epochs": 1,
}
# what may follow the name of a DDP strategy
DDP_OPTIONS = ("", "_find_unused_parameters_false", "_find_unused_parameters_true")
# a run that takes longer than this says how far it is
SILENT_S = 5.0


def preflight(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    data: Any,
    *,
    devices: int = 2,
    steps: int = 2,
    strategy: Any = "auto",
    timeout_s: float = 600.0,
    values: bool = True,
    stop_at_first: bool = False,
    **trainer_kwargs: Any,
) -> Report:
    """Run a few training and validation steps on simulated CUDA devices, and report every device finding.

    The real Trainer of the model's namespace runs with `DeviceCheck`, no logger and no checkpoint, inside
    `simulate_cuda`; no GPU is needed. One process runs on the *last* device, so that a written-out ``cuda:0`` shows;
    ``strategy="ddp"`` runs ``devices`` real processes over gloo. Your model, the random numbers and the environment are
    left as they were.

    Args:
        model: A LightningModule, of which a copy is run; or a callable that makes one, called inside the simulation, so
            that what ``__init__`` does with devices is seen.
        data: A DataLoader, a LightningDataModule, or an iterable of batches; also used for validation where the model
            has no loader of its own. None takes the model's own loaders.
        devices: How many devices to pretend, at least 1.
        steps: Training steps, and as many validation steps.
        strategy: ``"auto"`` for one process; ``"ddp"``, its variants, or a ``DDPStrategy`` for one process per device.
            The processes are forked, whatever the strategy would do.
        timeout_s: Seconds that several processes may take; then all are ended.
        values: False for a model larger than memory: only shapes, dtypes and devices are followed, as in
            `simulate_cuda`. A line that reads a value gets a stand-in, and a note in the report.
        stop_at_first: True ends the run at the first device error, as CUDA does. Otherwise the run goes on with the
            values that the CPU would have, so that one run reports every mistake.
        trainer_kwargs: Further arguments of the Trainer, such as ``precision``. A `DeviceCheck` among its ``callbacks``
            (with ``allow`` or ``ignore``) is used in place of the default one.

    Returns:
        The findings of all processes; ``report.ok`` where nothing is wrong. Takes the time of the steps on the CPU.

    Raises:
        TypeError: If ``model`` is neither a LightningModule nor a callable that makes one, or cannot be copied; if
            ``data`` holds no batches, or ``values`` is not True or False.
        ValueError: If ``devices`` or ``steps`` is not a positive integer, ``timeout_s`` not positive, or ``strategy``
            one that is not simulated.
        TimeoutError: If several processes did not end in time; it names those that hang and the line of each.
        Exception: What the run raises that was not recognized as a device error, as it is.

    Example:
        >>> import torch
        >>> from lightning.pytorch.demos.boring_classes import BoringModel
        >>> from lightning_devcheck import preflight
        >>> preflight(BoringModel, torch.randn(4, 2, 32)).ok
        True
    """
    for name, number in {"steps": steps, "devices": devices}.items():
        if type(number) is not int or number < 1:
            raise ValueError(f"preflight({name}={number!r}): the number of {name} is an integer of at least 1.")
    for name, flag in {"values": values, "stop_at_first": stop_at_first}.items():
        if not isinstance(flag, bool):
            raise TypeError(f"preflight({name}={flag!r}): use True or False.")
    if data is not None and not hasattr(data, "train_dataloader") and not isinstance(data, Iterable):
        raise TypeError(
            "preflight(data=…): a DataLoader, a LightningDataModule, an iterable of batches or None is needed; this "
            f"is a {type(data).__name__}."
        )
    if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
        raise ValueError(f"preflight(timeout_s={timeout_s!r}): the time limit is a number of seconds above 0.")
    if "accelerator" in trainer_kwargs:
        raise ValueError("preflight(accelerator=…): it always runs on simulated CUDA devices; leave the argument out.")
    strategy = _forked(strategy)
    copied = _copied(model) if isinstance(model, torch.nn.Module) else None
    with (
        tempfile.TemporaryDirectory() as place,
        _as_it_was(),
        simulate_cuda(devices, values=values),
        Patches(explaining_ranks(Path(place), timeout_s)),
        watching_backwards(Path(place)),
        contextlib.nullcontext() if stop_at_first else recording(Path(place)),
    ):
        folder, module = Path(place), copied
        try:
            module = _checked(model() if copied is None and callable(model) else copied, model)
            options = {"devices": [devices - 1] if strategy == "auto" else devices, "strategy": strategy}
            _fit(module, data, steps, folder, {**options, **trainer_kwargs})
        except Exception as error:
            if not _is_explained(error, module, folder):
                _add_findings(error, folder)
                raise
        found = [] if module is None else [scan(module)]
        return merge_reports([*saved(folder), *found])


def _fit(module: Any, data: Any, steps: int, folder: Path, options: dict[str, Any]) -> None:
    limits = {"limit_train_batches": steps, "limit_val_batches": steps}
    callbacks = [*with_check(options.pop("callbacks", None), folder), _Progress(steps)]
    trainer = _namespace(module).Trainer(**{**QUIET, **limits, "accelerator": "gpu", **options, "callbacks": callbacks})
    trainer.fit(module, **_loaders(module, data, steps))


def _is_explained(error: Exception, module: Any, folder: Path) -> bool:
    """Whether an exception is about devices; it is explained where no process has done so already."""
    if is_explained(error):
        return any(report.errors for report in saved(folder))
    return bool(save_explained(error, folder, module))


def _add_findings(error: Exception, folder: Path) -> None:
    """Put what was found before it on an exception that is about something else."""
    report = merge_reports(saved(folder))
    if report.findings:
        error.add_note(f"\nlightning_devcheck found before:\n{report}")


def _checked(module: Any, given: Any) -> Any:
    if not isinstance(module, torch.nn.Module) or _namespace(module) is None:
        kind = type(given if module is None else module).__name__
        raise TypeError(
            f"preflight(model=…): a LightningModule, or a callable that makes one, is needed; this is a {kind}."
        )
    return module


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise TypeError(
            f"preflight(model=…): this {type(model).__name__} cannot be copied ({error}). Give a callable that makes "
            "it: preflight(lambda: Model(...), data)."
        ) from error


def _namespace(module: torch.nn.Module) -> Any:
    """The Lightning package whose Trainer takes this module."""
    fitting = (found for found in namespaces() if isinstance(module, found.LightningModule))
    return next(fitting, None)


def _loaders(module: Any, data: Any, steps: int) -> dict[str, Any]:
    """The arguments of ``fit`` that hand over the data."""
    if data is None:
        return {}
    if hasattr(data, "train_dataloader"):
        return {"datamodule": data}
    loader = data if isinstance(data, torch.utils.data.DataLoader) else _Batches(data, steps)
    base = _namespace(module).LightningModule
    validates = type(module).validation_step is not base.validation_step
    own = type(module).val_dataloader is not base.val_dataloader
    return {"train_dataloaders": loader, **({"val_dataloaders": loader} if validates and not own else {})}


class _Batches:
    """The first batches of any iterable, those of a generator too, as often as asked for."""

    def __init__(self, data: Iterable[Any], steps: int) -> None:
        self._batches = list(islice(data, steps))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


def _forked(strategy: Any) -> Any:
    """The strategy with processes that are forked: what is simulated here is simulated there."""
    if strategy is None or strategy == "auto":
        return "auto"
    if isinstance(strategy, str) and strategy.startswith("ddp"):
        options = strategy.removeprefix("ddp").removeprefix("_spawn").removeprefix("_fork").removeprefix("_notebook")
        if options in DDP_OPTIONS:
            return f"ddp_fork{options}"
    elif fork_processes(strategy):
        return strategy
    raise ValueError(
        f"preflight(strategy={strategy!r}) is not simulated; use 'auto' for one process, 'ddp', or a DDPStrategy."
    )


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Put back what a run of a Trainer changes in this process, and keep Lightning's hints out of sight."""
    environment = dict(os.environ)
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    with isolate_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=HINTS)
        warnings.filterwarnings("ignore", message=NO_VALUES)  # the report has a note instead
        try:
            for name in LOGGERS:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
            os.environ.clear()
            os.environ.update(environment)


class _Progress(Callback):
    """Tells how far a long run is."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self._start = time.monotonic()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._say(trainer, f"training step {batch_idx + 1} of {self._steps}")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._say(trainer, "validation")

    def _say(self, trainer: Any, stage: str) -> None:
        elapsed = time.monotonic() - self._start
        if elapsed > SILENT_S and trainer.is_global_zero:
            print(f"preflight: {stage}, {elapsed:.0f} s", file=sys.stderr)
