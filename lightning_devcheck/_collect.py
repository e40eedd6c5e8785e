"""A callback that saves what a process found, for a parent that sums up: ranks have no way back but files."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_devcheck._callback import DeviceCheck
from lightning_devcheck._compat import callback_bases
from lightning_devcheck._explain import explain
from lightning_devcheck._report import Report

if TYPE_CHECKING:
    from pytorch_lightning import Callback as _Base
else:
    _Base = type("_Base", callback_bases(), {})

_numbers = itertools.count()


class Collector(_Base):
    """Saves the report of a `DeviceCheck`, and that of an exception, at the end of each run of a Trainer.

    Args:
        check: The check whose report is saved.
        folder: Where to.
    """

    def __init__(self, check: DeviceCheck, folder: Path) -> None:
        super().__init__()
        self._check = check
        self._folder = folder

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        report = explain(exception, pl_module)
        if report is not None:
            findings = [
                dataclasses.replace(finding, step=trainer.global_step, global_rank=trainer.global_rank)
                for finding in report.findings
            ]
            save(dataclasses.replace(report, findings=tuple(findings), world_size=trainer.world_size), self._folder)
        save(self._check.report, self._folder)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        save(self._check.report, self._folder)


def save(report: Report, folder: Path) -> None:
    """Save a report under a name of its own; a half-written file is never seen."""
    name = f"{os.getpid()}-{next(_numbers)}.json"
    (folder / f".{name}").write_text(report.to_json(), encoding="utf-8")
    (folder / f".{name}").rename(folder / name)


def saved(folder: Path) -> list[Report]:
    """All reports in a folder, each process's in order."""
    paths = sorted(folder.glob("[0-9]*.json"), key=lambda path: [int(part) for part in path.stem.split("-")])
    return [Report.from_dict(json.loads(path.read_text(encoding="utf-8"))) for path in paths]
