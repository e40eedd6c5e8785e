"""Run a few steps of a real Trainer on simulated devices, and report."""

from __future__ import annotations

import copy
import importlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lightning_devcheck._callback import DeviceCheck
from lightning_devcheck._explain import explain
from lightning_devcheck._report import Report, merge_reports
from lightning_devcheck._simulate import simulate_cuda

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "max_epochs": 1,
}


def preflight(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    data: Any,
    *,
    devices: int = 2,
    steps: int = 2,
    strategy: Any = "auto",
    **trainer_kwargs: Any,
) -> Report:
    """Run a few training and validation steps on simulated CUDA devices, and report every device finding.

    The real Trainer of the model's namespace runs with `DeviceCheck`, no logger and no checkpoint, inside
    `simulate_cuda`; no GPU is needed. One process runs on the *last* device, so that a written-out ``cuda:0`` shows;
    ``strategy="ddp"`` runs ``devices`` real processes over gloo. Your model is left as it was.

    Args:
        model: A LightningModule, of which a copy is run; or a callable that makes one, called inside the simulation, so
            that what ``__init__`` does with devices is seen.
        data: A DataLoader, a LightningDataModule, or an iterable of batches.
        devices: How many devices to pretend, at least 1.
        steps: Training steps, and as many validation steps.
        strategy: The Trainer's strategy; ``"ddp"`` and ``"ddp_spawn"`` start their processes by forking.
        trainer_kwargs: Further arguments of the Trainer, such as ``precision``.

    Returns:
        The findings of all processes; ``report.ok`` where nothing is wrong. Takes the time of the steps on the CPU.

    Raises:
        TypeError: If ``model`` is neither a LightningModule nor a callable that makes one.
        ValueError: If ``devices`` or ``steps`` is not a positive integer.
        Exception: What the run raises that has nothing to do with devices, as it is.

    Example:
        >>> import torch
        >>> from lightning.pytorch.demos.boring_classes import BoringModel
        >>> from lightning_devcheck import preflight
        >>> preflight(BoringModel, torch.randn(4, 2, 32)).ok
        True
    """
    if type(steps) is not int or steps < 1:
        raise ValueError(f"preflight(steps={steps!r}): the number of steps is an integer of at least 1.")
    with simulate_cuda(devices), tempfile.TemporaryDirectory() as folder:
        module = _module(model)
        check = DeviceCheck("ignore", every_n_steps=1, explain=False)
        collector = _collector(module, check, Path(folder))
        alone = strategy in ("auto", None)
        trainer = _namespace(module).Trainer(
            **{
                **QUIET,
                "accelerator": "gpu",
                "devices": [devices - 1] if alone else devices,
                "strategy": strategy if alone else _forked(strategy),
                "limit_train_batches": steps,
                "limit_val_batches": steps,
                "callbacks": [check, collector],
                **trainer_kwargs,
            }
        )
        try:
            trainer.fit(module, data if _is_data(data) else list(data))
        except Exception:
            if not any(Path(folder).glob("*-exception.json")):
                raise  # nothing to do with devices
        return merge_reports(_saved(folder))


def _module(model: Any) -> Any:
    module = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model() if callable(model) else model
    if not isinstance(module, torch.nn.Module) or _namespace(module) is None:
        kind = type(module).__name__
        raise TypeError(
            f"preflight(model={model!r}): a LightningModule, or a callable that makes one; this is a {kind}."
        )
    return module


def _namespace(module: torch.nn.Module) -> Any:
    """The Lightning package whose Trainer takes this module."""
    bases = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(module).__mro__}
    found = [name for name in NAMESPACES if f"{name}.core.module.LightningModule" in bases]
    return importlib.import_module(found[0]) if found else None


def _is_data(data: Any) -> bool:
    return isinstance(data, torch.utils.data.DataLoader) or hasattr(data, "train_dataloader")


def _forked(strategy: Any) -> Any:
    """Processes are forked: what is simulated here is simulated there."""
    return "ddp_fork" if strategy in ("ddp", "ddp_spawn") else strategy


def _saved(folder: str) -> list[Report]:
    return [Report.from_dict(json.loads(path.read_text())) for path in sorted(Path(folder).glob("*.json"))]


def _collector(module: torch.nn.Module, check: DeviceCheck, folder: Path) -> Any:
    """A callback that saves each process's report: with several processes this one has none of its own."""
    base = _namespace(module).Callback

    class Collector(base):  # type: ignore[misc,valid-type]
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            report = explain(exception, pl_module)
            if report is not None:
                self._save(trainer, report, "exception")

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            self._save(trainer, check.report, "check")

        def _save(self, trainer: Any, report: Report, kind: str) -> None:
            (folder / f"{trainer.global_rank}-{kind}.json").write_text(report.to_json())

    return Collector()
