"""Scripts with several mistakes each: one run reports them all, and nothing else; corrected they are quiet."""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from tests.fidelity.gone_on import MULTITASK, STEPS, Trace, compared, printed, script_on_the_cpu, script_trace
from tests.helpers.marked import (
    SCRIPTS,
    Run,
    corrected,
    is_called,
    mistakes_in,
    mistakes_of,
    put,
    run_script,
    start,
)

RANKS = {"retrieval_two_ranks", "segmentation_two_ranks"}
ALONE = [path for path in SCRIPTS if path.stem not in RANKS]
EVERY = [*SCRIPTS, *([MULTITASK] if MULTITASK.exists() else [])]
# `multitask.py` says neither what the culprits are called nor what to write instead
MULTITASK_NAMES = {
    1: "self.perceptual.net.weight | self.net.weight",
    2: "self.class_weights",
    3: "self.scales[0]",
    4: "self.noise(image)",
    5: "total",
    6: "grid",
    7: "mask",
    8: "reg",
}
MULTITASK_FIXES = {
    "class PerceptualLoss:": "class PerceptualLoss(nn.Module):",
    "def __init__(self): self.net": "def __init__(self): super().__init__(); self.net",
    "self.class_weights = torch.tensor([1., 2., 1., 1., 3.])": (
        'self.register_buffer("class_weights", torch.tensor([1., 2., 1., 1., 3.]))'
    ),
    "[nn.Parameter(torch.ones(1)) for _ in range(2)]": (
        "nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(2)])"
    ),
    "torch.randn(x.shape)": "torch.randn(x.shape, device=x.device)",
    "torch.zeros(1)": "torch.zeros(1, device=image.device)",
    "torch.arange(8.), torch.arange(8.)": "*[torch.arange(8., device=image.device)] * 2",
    "torch.ones(image.shape[0])": "torch.ones(image.shape[0], device=image.device)",
    "torch.zeros((1,))": "torch.zeros((1,), device=image.device)",
}


def corrected_text(path: Path) -> str:
    """A script without its mistakes."""
    text = path.read_text(encoding="utf-8")
    if path != MULTITASK:
        return corrected(text)
    for old, new in MULTITASK_FIXES.items():
        assert old in text
        text = text.replace(old, new)
    return text


@functools.cache
def run_of(path: Path) -> Run:
    """One run of a script as it stands."""
    with TemporaryDirectory() as folder:
        put(Path(folder), {path.name: path.read_text(encoding="utf-8")})
        return run_script(Path(folder), path.name, "--steps", str(STEPS))


@functools.cache
def cpu_outputs() -> dict[str, str]:
    """What the scripts of one process print on the CPU, by their file's name."""
    parts = re.split(r"^script (.+)$", cpu_output(ALONE), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def cpu_output(paths: list[Path]) -> str:
    """What scripts print on the CPU: one by itself, several in turn in one process."""
    texts = {path.name: script_on_the_cpu(path.read_text(encoding="utf-8")) for path in paths}
    with TemporaryDirectory() as folder:
        in_turn = put(Path(folder), texts)
        # a script of several ranks is started anew by its launcher
        name = in_turn if len(paths) > 1 else paths[0].name
        done = start([sys.executable, name], Path(folder))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def name_of(path: Path) -> str:
    """What a test of a script is called."""
    return path.stem


@pytest.mark.ddp
@pytest.mark.parametrize("path", EVERY, ids=name_of)
def test_one_run_reports_every_mistake_once(path):
    """Each marked statement has one finding in each process that it fails in, and there is no other finding."""
    mistakes = mistakes_in(path.read_text(encoding="utf-8"))
    run = run_of(path)
    shown = [(finding, mistakes_of(finding, mistakes)) for finding in run.told]
    assert [finding for finding, marked in shown if len(marked) != 1] == []
    counts = Counter((marked[0].number, finding.global_rank) for finding, marked in shown)
    assert {number for number, _ in counts} == {mistake.number for mistake in mistakes}, run.errors[-2000:]
    assert set(counts.values()) == {1}, counts
    assert run.status == 1


@pytest.mark.ddp
@pytest.mark.parametrize("path", EVERY, ids=name_of)
def test_every_mistake_has_its_name(path):
    """The finding of each marked statement calls the culprit what the user calls it."""
    mistakes = mistakes_in(path.read_text(encoding="utf-8"))
    wanted = {mistake.number: mistake.name or MULTITASK_NAMES[mistake.number] for mistake in mistakes}
    names = {
        mistake.number: finding.name for finding in run_of(path).told for mistake in mistakes_of(finding, mistakes)
    }
    wrong = {number: names.get(number) for number in wanted if not is_called(names.get(number, ""), wanted[number])}
    assert wrong == {}


@pytest.mark.skipif(torch.__version__ < "2.7", reason="gradients of GRU round in another way")
@pytest.mark.parametrize("path", ALONE, ids=name_of)
def test_the_figures_are_the_cpus(path):
    """What a script prints after its mistakes is what it prints on the CPU, byte for byte."""
    cpu = Trace(printed(cpu_outputs()[path.name]))
    row = compared(path.stem, script_trace(run_of(path)), cpu)
    assert row.outcome == "equal", row


@pytest.mark.ddp
@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.stem in RANKS], ids=name_of)
def test_the_figures_of_each_rank_are_the_cpus(path):
    """What each of two simulated ranks prints after its mistakes is what that rank prints with gloo on the CPU."""
    cpu = Trace(printed(cpu_output([path])))
    row = compared(path.stem, script_trace(run_of(path)), cpu)
    assert row.outcome == "equal", row
    assert Counter(line.split()[1] for line in cpu.figures) == {"0": STEPS, "1": STEPS}


def test_corrected_scripts_are_quiet(tmp_path):
    """The corrected twins, in turn in one process, have no finding and run to their end."""
    one_process = [path for path in EVERY if path.stem not in RANKS]
    in_turn = put(tmp_path, {path.name: corrected_text(path) for path in one_process})
    run = run_script(tmp_path, in_turn)
    assert run.told == []
    assert run.status == 0, run.errors[-2000:]


@pytest.mark.ddp
@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.stem in RANKS], ids=name_of)
def test_a_corrected_script_of_two_ranks_is_quiet(path, tmp_path):
    """The corrected twin has no finding on either rank."""
    put(tmp_path, {path.name: corrected_text(path)})
    run = run_script(tmp_path, path.name)
    assert run.told == []
    assert run.status == 0, run.errors[-2000:]


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_every_mistake_is_marked(path):
    """Each script has four to eight mistakes, numbered, each with a name and with what to write instead."""
    text = path.read_text(encoding="utf-8")
    mistakes = mistakes_in(text)
    assert sorted(mistake.number for mistake in mistakes) == list(range(1, len(mistakes) + 1))
    assert 4 <= len(mistakes) <= 8
    assert all(mistake.name and mistake.fix for mistake in mistakes)
    assert mistakes_in(corrected(text)) == []
