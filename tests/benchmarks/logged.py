"""`LossAccumulator` in a Trainer, beside what people log with."""

from __future__ import annotations

import logging
import random
import statistics
import time
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_devcheck import LossAccumulator
from tests.benchmarks._measure import Table

COMMAND = "python -m tests.benchmarks logged"
SIZES = (3, 6, 20)


def logging_table(quick: bool) -> Table:
    """Inside a Trainer, where logging is part of the cost: one call in `training_step`."""
    cells: dict[str, list[str]] = {}
    for size in SIZES:
        times = _fit(size, 30 if quick else 400)
        base = times["self.log_dict(K losses)"]
        for name, values in times.items():
            ratio = statistics.median(theirs / mine for mine, theirs in zip(values, base, strict=True))
            cells.setdefault(name, []).append(f"{ratio:.2f} ({statistics.median(values) * 1e6:.0f} µs)")
    rows = tuple((name, *values) for name, values in cells.items())
    columns = ("one call in training_step, on_epoch", *(f"K = {size}: times faster" for size in SIZES))
    note = (
        "`self.log_dict(self.losses)` logs K + 1 values, the total too, so at small K it costs what K + 1 values cost: "
        "Lightning's own bookkeeping for each value, not the accumulation, which is the last row."
    )
    return Table("In a Trainer, one process", columns, rows, COMMAND, notes=(note,))


def _fit(size: int, steps: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, size)
            self.ours, self.quiet = LossAccumulator(size), LossAccumulator(size)
            self.ways = {
                "self.log_dict(K losses)": lambda losses: self._log(losses, sync_dist=False),
                "self.log_dict(K losses, sync_dist=True)": lambda losses: self._log(losses, sync_dist=True),
                "LossAccumulator and self.log_dict": self._accumulate,
                "LossAccumulator, compute() at the epoch's end": lambda losses: self.quiet(losses),
            }

        def _log(self, losses: list[Tensor], sync_dist: bool) -> None:
            names = (f"{sync_dist}_{i}" for i in range(size))
            values = dict(zip(names, losses, strict=True))
            self.log_dict(values, on_step=False, on_epoch=True, sync_dist=sync_dist)

        def _accumulate(self, losses: list[Tensor]) -> None:
            self.ours(losses)
            self.log_dict(self.ours, on_step=False, on_epoch=True)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            losses = list(self.layer(torch.ones(1)).square().unbind())
            names = list(self.ways)
            random.Random(batch_idx).shuffle(names)
            for name in names:
                start = time.perf_counter()
                self.ways[name](losses)
                times.setdefault(name, []).append(time.perf_counter() - start)
            return sum(losses)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        options: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_checkpointing"), False)
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **options)
        trainer.fit(Model(), torch.utils.data.DataLoader(range(steps)))  # type: ignore[arg-type]
    return {name: values[len(values) // 10 :] for name, values in times.items()}


def tables(quick: bool = False) -> list[Table]:
    """One table."""
    return [logging_table(quick)]
