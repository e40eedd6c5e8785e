"""What `DeviceCheck` costs in a training run: the hook's own time, step by step."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from lightning_devcheck import DeviceCheck
from tests.benchmarks._measure import Table
from tests.benchmarks._models import mlp, residual, transformer

COMMAND = "python -m tests.benchmarks hook"


class Timed(DeviceCheck):
    """Measures its own hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[float] = []
        self.hooks: list[float] = []
        self.ends: list[float] = []

    def on_train_batch_start(self, *args: Any) -> None:
        """Time the schedule."""
        start = time.perf_counter()
        super().on_train_batch_start(*args)
        self.starts.append(time.perf_counter() - start)

    def on_before_backward(self, *args: Any) -> None:
        """Time the check."""
        start = time.perf_counter()
        super().on_before_backward(*args)
        self.hooks.append(time.perf_counter() - start)

    def on_train_batch_end(self, *args: Any) -> None:
        """Time the end of the batch, and note when it was."""
        start = time.perf_counter()
        super().on_train_batch_end(*args)
        self.starts[-1] += time.perf_counter() - start
        self.ends.append(time.perf_counter())


class Training(pl.LightningModule):
    """Trains one of the benchmark models."""

    def __init__(self, module: nn.Module, loss: Any, batch: int) -> None:
        super().__init__()
        self.module, self._loss, self._batch = module, loss, batch

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The model's loss."""
        return self._loss(self._batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD: the smallest step to stand beside."""
        return torch.optim.SGD(self.parameters(), lr=1e-4)


RUNS = {
    "small CNN": (lambda: residual(6, 16), 16, 0.002),
    "small transformer, 4 layers": (lambda: transformer(4, 64), 16, 0.002),
    "MLP, 100 layers, batch 1": (lambda: mlp(100, 8), 1, 0.0075),
}


def run(build: Any, batch: int, steps: int) -> Timed:
    """Train for some steps with the default settings."""
    check = Timed()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=check,
    )
    trainer.fit(Training(*build(), batch), torch.utils.data.DataLoader(torch.zeros(steps), batch_size=1))
    return check


def tables(quick: bool = False) -> list[Table]:
    """The hook's time on a plain step and over the run, for three models."""
    steps = 20 if quick else 1000
    rows, goals = [], []
    for name, (build, batch, goal) in RUNS.items():
        check = run(build, batch, steps)
        full = {number for number in range(1, steps + 1) if number & (number - 1) == 0}
        own = [a + b for a, b in zip(check.starts, check.hooks, strict=True)]
        plain = statistics.median(seconds for number, seconds in enumerate(own, 1) if number not in full)
        step = statistics.median(b - a for a, b in zip(check.ends, check.ends[1:], strict=False))
        share = sum(own) / (check.ends[-1] - check.ends[0])
        walk = statistics.median(seconds for number, seconds in enumerate(own, 1) if number in full)
        rows.append((name, f"{1e3 * step:.1f}", f"{1e6 * plain:.1f}", f"{1e6 * walk:.0f}", f"{share:.3%}"))
        goals.append(f"{name}: at most 10 µs on a plain step: {1e6 * plain:.1f}, {_met(plain, 10e-6)}")
        goals.append(f"{name}: at most {goal:.2%} of the run: {share:.3%}, {_met(share, goal)}")
    columns = ("run", "step, ms", "hook on a plain step, µs", "hook with a full check, µs", f"hooks over {steps} steps")
    return [Table("DeviceCheck's own time, default settings", columns, tuple(rows), COMMAND, tuple(goals))]


def _met(value: float, limit: float) -> str:
    return "met" if value <= limit else "missed"
