"""A run that goes on after device mistakes, against the CPU's: ``python -m tests.fidelity.gone_on``.

A case is a file with ``Model`` and ``make_batch()``; a script prints its figures with ``float.hex()``. Both sides start
from the same seed, and every loss and every weight at the end has to be equal, byte for byte. The CPU's side runs the
same text with the devices that it writes out replaced by the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from lightning_devcheck import preflight
from lightning_devcheck._run.preflight import QUIET
from tests.helpers.marked import ROOT, SCRIPTS, Run, put, run_script, start
from tests.helpers.source import load

CORPUS = ROOT.parent / "shared" / "corpus"
PROGRAMS = sorted(Path(__file__).with_name("gone_on_programs").glob("*.py"))
STEPS = 3
# cases that need two ranks, and what makes a script of one
SEVERAL = {"077_cpu_value_logged_with_sync"}
ON_TWO_RANKS = """

class Printer(pl.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, *rest):
        print("rank", trainer.global_rank, "loss", outputs["loss"].item().hex())


if __name__ == "__main__":
    torch.manual_seed(0)
    batches = [make_batch() for _ in range(6)]
    data = torch.utils.data.DataLoader(batches, batch_size=None)
    torch.manual_seed(1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=1, callbacks=[Printer()], **quiet)
    trainer.fit(MODEL(), data)
"""
# multi/multitask.py is a script that prints nothing: its model is run as a case
MULTITASK = CORPUS / "multi" / "multitask.py"
WRITTEN_OUT = (
    (re.compile(r"cuda:\d+"), "cpu"),
    (re.compile(r"\.cuda\(\d*\)"), ".cpu()"),
    (re.compile(r"([\"'])(?:cuda|gpu)\1"), r"\1cpu\1"),
)
WORDS = "loss|average|validated|tested|predicted|epoch"
FIGURES = re.compile(rf"^(?:rank (\d+) )?(?:{WORDS}) .+$", re.MULTILINE)
RAISED = re.compile(r"^\w*(?:Error|Exception)\b.*", re.MULTILINE)


@dataclass
class Trace:
    """What one side of a comparison gave: figures in their order, and why there are no more of them."""

    figures: list[str] = field(default_factory=list)
    ended: str = ""
    findings: int = 0


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    outcome: str
    why: str = ""
    findings: int = 0


class Recorder(pl.Callback):
    """Write down the bytes of each loss, and of the weights at the end."""

    def __init__(self, trace: Trace) -> None:
        self.figures = trace.figures
        self.ended = False

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self.figures.append(f"loss {bytes_of(loss)}")

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        for name, parameter in pl_module.named_parameters():
            self.figures.append(f"{name} {bytes_of(parameter)}")
        self.ended = True


def bytes_of(value: Any) -> str:
    """The bytes of a tensor; another value as Python writes it."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    flat = value.detach().cpu().reshape(-1).contiguous()
    return bytes(flat.view(torch.uint8).tolist()).hex()


def on_the_cpu(text: str) -> str:
    """A source text with all devices that it writes out replaced by the CPU."""
    for pattern, new in WRITTEN_OUT:
        text = pattern.sub(new, text)
    return text


def case_row(path: Path, model: str = "Model") -> Row:
    """Compare the model of a case, going on in a simulation, with the CPU's run."""
    text = path.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder, _quietly():
        cpu_file = Path(folder) / f"{path.stem}_cpu.py"
        cpu_file.write_text(on_the_cpu(text), encoding="utf-8")
        gone_on = _traced(_preflight, load(path, f"gone_on_{path.stem}"), model)
        cpu = _traced(_cpu, load(cpu_file, cpu_file.stem), model)
    return compared(path.stem, gone_on, cpu)


def _traced(run: Callable[..., int], case: ModuleType, model: str) -> Trace:
    trace = Trace()
    torch.manual_seed(0)
    batches = [_batch(case) for _ in range(STEPS)]
    data = DataLoader(batches, batch_size=None, collate_fn=_as_it_is)
    recorder = Recorder(trace)
    torch.manual_seed(1)
    try:
        trace.findings = run(getattr(case, model), data, recorder)
    except Exception as error:  # whatever ends a run is what the table says
        trace.ended = f"{type(error).__name__}: {error}"
    return trace


def _batch(case: ModuleType) -> Any:
    """A batch of a case, or one for the script that makes its own."""
    if hasattr(case, "make_batch"):
        return case.make_batch()
    return torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))


def _as_it_is(batch: Any) -> Any:
    return batch


def _preflight(model: Any, data: DataLoader, recorder: Recorder) -> int:
    report = preflight(model, data, steps=STEPS, callbacks=[recorder])
    told = [finding.what for finding in report.findings if finding.severity != "note"]
    if not recorder.ended:
        raise RuntimeError("; ".join(told) or "no finding says why")
    return len(told)


def _cpu(model: Any, data: DataLoader, recorder: Recorder) -> int:
    limits = {"limit_train_batches": STEPS, "limit_val_batches": STEPS}
    trainer = pl.Trainer(**{**QUIET, **limits, "accelerator": "cpu", "devices": 1, "callbacks": [recorder]})
    module = model()
    validates = type(module).validation_step is not pl.LightningModule.validation_step
    own = type(module).val_dataloader is not pl.LightningModule.val_dataloader
    trainer.fit(module, data, data if validates and not own else None)
    return 0


def ranks_row(path: Path, model: str = "Model") -> Row:
    """Compare the model of a case on two simulated ranks with two ranks of gloo on the CPU."""
    text = path.read_text(encoding="utf-8")
    return script_row(path, text + ON_TWO_RANKS.replace("MODEL", model))


def script_row(path: Path, text: str = "") -> Row:
    """Compare what a script prints under ``lightning-devcheck run`` with what it prints on the CPU.

    Args:
        path: Where the script is.
        text: What it says, where that is not what the file holds.
    """
    text = text or path.read_text(encoding="utf-8")
    with TemporaryDirectory() as name:
        folder = Path(name)
        put(folder, {path.name: text})
        gone_on = script_trace(run_script(folder, path.name, "--steps", str(STEPS)))
        put(folder, {path.name: script_on_the_cpu(text)})
        done = start([sys.executable, path.name], folder)
    return compared(path.stem, gone_on, Trace(printed(done.stdout), _raised(done.stderr)))


def script_trace(run: Run) -> Trace:
    """What a run of the command line gave."""
    return Trace(printed(run.output), _raised(run.errors), len(run.told))


def _raised(errors: str) -> str:
    """The last exception in what was printed for errors; empty where there is none."""
    if "Traceback" not in errors:
        return ""
    return RAISED.findall(errors)[-1]


def script_on_the_cpu(text: str) -> str:
    """A script's text for the CPU, with as many steps as the simulation lets it have."""
    return on_the_cpu(text).replace("pl.Trainer(", f"pl.Trainer(fast_dev_run={STEPS}, ")


def printed(output: str) -> list[str]:
    """The lines with figures that a script printed, those of each rank together."""
    found = list(FIGURES.finditer(output))
    return [match[0] for match in sorted(found, key=lambda match: int(match[1] or 0))]


def compared(name: str, gone_on: Trace, cpu: Trace) -> Row:
    """The table's row for two traces."""
    if cpu.ended or not cpu.figures:
        return Row(name, "not on the CPU", cpu.ended or "no figures", gone_on.findings)
    if gone_on.ended:
        return Row(name, "not gone on from", gone_on.ended, gone_on.findings)
    if gone_on.figures == cpu.figures:
        return Row(name, "equal", f"{len(cpu.figures)} figures", gone_on.findings)
    return Row(name, "different", _first_difference(gone_on.figures, cpu.figures), gone_on.findings)


def _first_difference(gone_on: list[str], cpu: list[str]) -> str:
    for ours, theirs in zip(gone_on, cpu, strict=False):
        if ours != theirs:
            return f"{ours[:60]} is {theirs[:60]} on the CPU"
    return f"{len(gone_on)} figures, {len(cpu)} on the CPU"


@contextlib.contextmanager
def _quietly() -> Any:
    """Keep Lightning's words out of the table."""
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def cases() -> list[Path]:
    """The corpus' cases that run in one process, where they are at hand."""
    return [path for path in sorted(CORPUS.glob("cases/*.py")) if path.stem not in SEVERAL]


def rows(model: str = "Model") -> list[Row]:
    """Compare the corpus' cases, with their mistakes (``Model``) or without (``Fixed``)."""
    return [case_row(path, model) for path in cases()]


def ranks_rows(model: str = "Model") -> list[Row]:
    """Compare the corpus' cases that need two ranks."""
    return [ranks_row(path, model) for path in sorted(CORPUS.glob("cases/*.py")) if path.stem in SEVERAL]


def program_rows() -> list[Row]:
    """Compare the programs of this folder, and the corpus' script with eight mistakes."""
    found = [case_row(path) for path in PROGRAMS]
    if MULTITASK.exists():
        found.append(case_row(MULTITASK, "Net"))
    return found


def table_of(found: Iterable[Row]) -> str:
    """All rows as text, and how many have each outcome."""
    listed = list(found)
    counts = Counter(row.outcome for row in listed)
    lines = [f"{row.outcome:16} {row.name}: {row.findings} findings; {row.why}" for row in listed]
    lines += [f"{count:4} {outcome}" for outcome, count in sorted(counts.items())]
    return "\n".join(lines)


def main() -> int:
    """Print the table; the exit code is 1 where a figure is different."""
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity.gone_on", description=__doc__)
    parser.add_argument("--fixed", action="store_true", help="the cases' corrected twins")
    parser.add_argument("--no-scripts", action="store_true", help="without the scripts of tests/multi")
    asked = parser.parse_args()
    model = "Fixed" if asked.fixed else "Model"
    found = rows(model) + ranks_rows(model) + program_rows()
    if not asked.no_scripts:
        found += [script_row(path) for path in SCRIPTS]
    print(table_of(found))
    return int(any(row.outcome == "different" for row in found))


if __name__ == "__main__":
    sys.exit(main())
