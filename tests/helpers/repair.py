"""Write a report's edits into a file and check the file again."""

from __future__ import annotations

import difflib
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from torch.utils.data import DataLoader

from lightning_devcheck import Report, preflight
from lightning_devcheck._report.edits import apply
from tests.helpers.source import load

HEAD = """\
import copy
import functools
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_batch():
    return torch.ones(4, 8), torch.ones(4, 1)


"""
MODEL = """\
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)
{build}

    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self.net(x)
{step}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""


@dataclass(frozen=True)
class Repair:
    """What became of a file.

    Attributes:
        before: The report of the file as it was.
        text: The file with the edits; None where there are none that fit.
        lines: The lines that changed, with ``+`` and ``-``.
        after: The report of the changed file; None where there is none.
    """

    before: Report
    text: str | None
    lines: tuple[str, ...]
    after: Report | None


def model(build: str, step: str, before: str = "") -> str:
    """A small model's file."""
    body = MODEL.format(build=_indented(build), step=_indented(step))
    return HEAD + before + body


def _indented(text: str) -> str:
    return "\n".join(f"        {line}" for line in text.splitlines())


def check(path: Path) -> Report:
    """The report of the model in a file."""
    case = load(path, path.stem)
    return check_case(case)


def check_case(case: ModuleType) -> Report:
    """The report of a module's model."""
    data = DataLoader([case.make_batch() for _ in range(3)], batch_size=None, collate_fn=lambda batch: batch)
    options = {"strategy": "ddp_fork"} if getattr(case, "EXPECT", {}).get("needs_nccl") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return preflight(case.Model, data, devices=2, steps=2, **options)


def repair(text: str, folder: Path, name: str = "model", *, notes: bool = False) -> Repair:
    """Check a file, write the edits of its findings, and check it again.

    Args:
        text: The file's text.
        folder: Where to write it.
        name: Its name.
        notes: Whether edits of notes are written too.
    """
    path = folder / f"{name}_before.py"
    path.write_text(text, encoding="utf-8")
    before = check(path)
    told = [finding for finding in before.findings if notes or finding.severity != "note"]
    edits = [edit for finding in told for edit in finding.edits]
    changed = apply(text, edits) if edits else None
    if changed is None:
        return Repair(before, None, (), None)
    diff = list(difflib.unified_diff(text.splitlines(), changed.splitlines(), lineterm="", n=0))[2:]
    lines = tuple(line for line in diff if not line.startswith("@@"))
    path = folder / f"{name}_after.py"
    path.write_text(changed, encoding="utf-8")
    return Repair(before, changed, lines, check(path))
