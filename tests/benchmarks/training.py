"""What `DeviceCheck` costs in a training run: whole steps beside other checks, and the hooks' own time.

NOTE [The check of transformers' Trainer]
After each step transformers' Trainer compares the step's loss with the running loss (`_tr_loss`) and raises
"Calculated loss must be on the original device" where the devices differ; before that its NaN filter reads the loss on
the host. `LossDevice` is that comparison and that filter as a callback.
"""

from __future__ import annotations

import logging
import random
import statistics
import time
from typing import Any

import pytorch_lightning as pl
import torch

from lightning_devcheck import DeviceCheck
from tests.benchmarks._measure import Ratio, Table, extra, goal, ratio
from tests.benchmarks._models import Build, mlp, residual, transformer

COMMAND = "python -m tests.benchmarks training"
# name: model, batch, and the step in ms and the share of it that the hooks' goal speaks of
RUNS: dict[str, tuple[Build, int, float, float]] = {
    "CNN": (lambda: residual(6, 16), 44, 20.0, 0.002),
    "transformer, 4 layers": (lambda: transformer(4, 64), 52, 20.0, 0.002),
    "MLP, 100 layers, batch 1": (lambda: mlp(100, 8), 1, 2.6, 0.0075),
}
PLAIN = "no callback"
RECORDED = "anomaly mode"


class Empty(pl.Callback):
    """The three hooks of `DeviceCheck`, doing nothing."""

    def on_train_batch_start(self, *args: Any) -> None:
        """Do nothing."""

    def on_before_backward(self, *args: Any) -> None:
        """Do nothing."""

    def on_train_batch_end(self, *args: Any) -> None:
        """Do nothing."""


class LossDevice(pl.Callback):
    """What transformers' Trainer does with each step's loss."""

    def __init__(self) -> None:
        self.total = torch.zeros(())

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        """Read the loss for NaN, and compare its device with the running loss's."""
        step = loss.detach()
        if torch.isnan(step) or torch.isinf(step):
            return
        if self.total.device != step.device:
            raise ValueError("Calculated loss must be on the original device")
        self.total += step


class Training(pl.LightningModule):
    """Trains one of the benchmark models; every step may have other callbacks."""

    def __init__(self, build: Build, batch: int, ways: dict[str, list[pl.Callback]], plan: list[str]) -> None:
        super().__init__()
        (self.module, self._loss), self._batch = build(), batch
        self.ways, self.plan = ways, plan
        self.times: list[tuple[str, float]] = []
        self._began = (0.0, 0.0)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Note what the last step took, and put the next one's callbacks in place."""
        wall, used = time.perf_counter(), time.thread_time()
        if batch_idx:
            self.times.append((self.plan[batch_idx - 1], min(wall - self._began[0], used - self._began[1])))
        name = self.plan[batch_idx]
        torch.autograd.set_detect_anomaly(name == RECORDED, check_nan=False)
        self.trainer.callbacks[:] = self.ways[name]  # type: ignore[attr-defined]
        self._began = (time.perf_counter(), time.thread_time())
        for callback in self.ways[name]:  # the Trainer has called those of the step before
            callback.on_train_batch_start(self.trainer, self, batch, batch_idx)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The model's loss."""
        return self._loss(self._batch)

    def on_train_end(self) -> None:
        """Leave nothing switched on."""
        torch.autograd.set_detect_anomaly(False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD: the smallest step to stand beside."""
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def fit(module: pl.LightningModule, steps: int, callbacks: list[pl.Callback]) -> None:
    """Train for so many steps, quietly."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    options: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_checkpointing"), False)
    trainer = pl.Trainer(accelerator="cpu", max_steps=steps, enable_model_summary=False, callbacks=callbacks, **options)
    trainer.fit(module, torch.utils.data.DataLoader(torch.zeros(steps), batch_size=1))


def ways() -> dict[str, list[pl.Callback]]:
    """What may look at a step."""
    return {
        PLAIN: [],
        "empty callback": [Empty()],
        "transformers' loss check": [LossDevice()],
        "DeviceCheck, a step without full check": [DeviceCheck()],
        "DeviceCheck, full check every step": [DeviceCheck(every_n_steps=1)],
        RECORDED: [],
    }


def steps_of(build: Build, batch: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of whole steps; those that look alternate step by step, in shuffled rounds."""
    contenders, order = ways(), random.Random(0)
    plan: list[str] = []
    for _ in range(rounds):
        names = list(contenders)
        order.shuffle(names)
        plan += names
    module = Training(build, batch, contenders, [*plan, PLAIN])
    checks = [callback for callbacks in contenders.values() for callback in callbacks]
    fit(module, len(module.plan), checks)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for name, seconds in module.times[rounds // 10 * len(contenders) :]:
        times[name].append(seconds)
    return times


def steps_table(quick: bool) -> Table:
    """Whole steps as times the step without a callback."""
    columns, cells, recorded = ["a step with"], {name: [] for name in ways()}, []
    for name, (build, batch, _, _) in RUNS.items():
        times = steps_of(build, batch, 3 if quick else 200)
        columns += [f"{name}: {1e3 * statistics.median(times[PLAIN]):.1f} ms"]
        for way, values in times.items():
            found = ratio(values, times[PLAIN])
            cells[way].append(f"{found.median:.3f} ({found.low:.3f}-{found.high:.3f})")
        more: Ratio = extra(times[RECORDED], times[PLAIN], times[PLAIN])
        recorded.append(f"{name} {1e3 * more.median * statistics.median(times[PLAIN]):.1f} ms")
    rows = tuple((name, *values) for name, values in cells.items())
    note = (
        "Differences below 2 % drown in noise: the hooks' own time, below, is the figure to trust. transformers' check "
        "is its Trainer's own comparison of the loss's device and NaN filter, as a callback. DeviceCheck records "
        "source lines in the forward of the first batch alone, at less than what anomaly mode adds to a whole step: "
        f"{', '.join(recorded)}."
    )
    return Table("Training steps: times the step without a callback", tuple(columns), rows, COMMAND, notes=(note,))


def clocked(base: type[pl.Callback]) -> Any:
    """A callback of a class that measures its own three hooks, step by step."""

    class Timed(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.own: list[float] = []
            self.ends: list[float] = []

        def on_train_batch_start(self, *args: Any) -> None:
            start = time.perf_counter()
            super().on_train_batch_start(*args)
            self.own.append(time.perf_counter() - start)

        def on_before_backward(self, *args: Any) -> None:
            start = time.perf_counter()
            super().on_before_backward(*args)
            self.own[-1] += time.perf_counter() - start

        def on_train_batch_end(self, *args: Any) -> None:
            start = time.perf_counter()
            super().on_train_batch_end(*args)
            self.ends.append(time.perf_counter())
            self.own[-1] += self.ends[-1] - start

    return Timed()


def hooks_table(quick: bool) -> Table:
    """The hooks' own time over a run with the default settings, for three models."""
    steps = 20 if quick else 1000
    rows, goals, bars = [], [], []
    for name, (build, batch, step_ms, limit) in RUNS.items():
        check, empty = clocked(DeviceCheck), clocked(Empty)
        fit(Training(build, batch, {PLAIN: [empty, check]}, [PLAIN] * steps), steps, [empty, check])
        plain, full = _split(check.own)
        clock = statistics.median(empty.own)
        step = statistics.median(b - a for a, b in zip(check.ends, check.ends[1:], strict=False))
        own = statistics.mean(check.own) - clock
        share, of_goal = own / step, own / (step_ms / 1e3)
        times = (f"{1e6 * value:.1f}" for value in (plain, clock, plain - clock, statistics.median(full), own))
        rows.append((name, f"{1e3 * step:.1f}", *times, f"{share:.3%}", f"{of_goal:.3%} of {step_ms:g} ms"))
        goals.append(goal(f"{name}: at most 10 µs on a step without full check", 1e6 * (plain - clock), 10, form=".1f"))
        goals.append(goal(f"{name}: at most {limit:.2%} of a step of {step_ms:g} ms", of_goal, limit, form=".3%"))
        bars.append((name, 100 * of_goal))
    columns = (
        "run",
        "step, ms",
        "plain step, µs as timed",
        "the clock itself, µs",
        "plain step, µs",
        "with full check, µs",
        f"a step of {steps} on average, µs",
        "share of its step",
        "share of the goal's step",
    )
    unit = "% of a step of 20 ms (MLP: 2.6 ms)"
    title = f"DeviceCheck's hooks over a run of {steps} steps, default settings"
    note = (
        "Three hooks run in a step; empty ones timed alike are the clock's own part, and are taken off. The limit is "
        "that part: Lightning calls the hooks of any callback. Full checks (ten in 1,000 steps) are most of the rest."
    )
    marks = tuple(100 * limit for *_, limit in RUNS.values())
    return Table(title, columns, tuple(rows), COMMAND, tuple(goals), (note,), tuple(bars), unit, marks)


def _split(own: list[float]) -> tuple[float, list[float]]:
    """The median of the steps without full check, and those with: the schedule's batches 1, 2, 4, 8, ...."""
    full = [seconds for number, seconds in enumerate(own, 1) if number & (number - 1) == 0]
    return statistics.median(s for number, s in enumerate(own, 1) if number & (number - 1)), full


def tables(quick: bool = False) -> list[Table]:
    """Whole steps, and the hooks' own time."""
    return [steps_table(quick), hooks_table(quick)]
