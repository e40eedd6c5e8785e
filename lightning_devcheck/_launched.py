"""What runs inside a script's own Trainer under ``lightning-devcheck run``: few steps, one report per rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning_devcheck._activation import REPORTS
from lightning_devcheck._callback import DeviceCheck
from lightning_devcheck._explain import explain
from lightning_devcheck._report import Report

STEPS = "LIGHTNING_DEVCHECK_STEPS"


class Launched(DeviceCheck):
    """Checks every step of a short run and saves what it found, and an exception's explanation, as files."""

    def __init__(self) -> None:
        super().__init__("ignore", every_n_steps=1, explain=False)
        self._folder, self._steps = Path(os.environ[REPORTS]), int(os.environ[STEPS])

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        trainer.limit_train_batches = self._steps
        trainer.limit_val_batches = self._steps
        trainer.limit_test_batches = self._steps
        trainer.limit_predict_batches = self._steps
        trainer.num_sanity_val_steps = 0
        trainer.fit_loop.max_epochs = 1

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception)
        report = explain(exception, pl_module)
        if report is not None:
            self._save(trainer, report, "exception")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        self._save(trainer, self.report, "check")

    def _save(self, trainer: Any, report: Report, kind: str) -> None:
        path = self._folder / f"{trainer.global_rank}-{os.getpid()}-{kind}.json"
        path.write_text(report.to_json(), encoding="utf-8")
