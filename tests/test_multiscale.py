"""The main job on real input: a photograph at six scales, and four real mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[1]
SCRIPT = "examples/multiscale.py"


def run(*command):
    """Run a command in the repository."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)


def test_without_a_mistake_it_trains():
    """The clean example exits with 0 and its loss falls from epoch to epoch."""
    result = run(sys.executable, SCRIPT, "--epochs", "3")
    assert result.returncode == 0, result.stderr[-1000:]
    losses = [float(value) for value in re.findall(r"epoch \d: loss ([\d.]+)", result.stdout)]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    ("mistake", "rule", "line"),
    [
        ("zeros", "mixed-devices", "loss = torch.zeros(1)"),
        ("cpu", "loss-device", "return sum((term / 2 ** (i + 1)).cpu() for i, term in enumerate(terms))"),
        ("list", "unregistered-parameter", "self.balance = [nn.Parameter(torch.zeros(())) for _ in range(SCALES)]"),
        ("rank", "wrong-rank-device", 'terms = [term.to("cuda:0") for term in terms]'),
    ],
)
def test_each_mistake_ends_with_its_report(mistake, rule, line):
    """Each mistake exits with 1, and the report has its rule and the line to mend."""
    result = run(sys.executable, SCRIPT, "--mistake", mistake)
    assert result.returncode == 1
    assert f"Rule: {rule} (docs/rules.md#{rule})" in result.stderr
    assert line in result.stderr


@pytest.mark.parametrize("mistake", ["zeros", "cpu", "list"])
def test_the_command_line_reports_the_same(mistake):
    """Under the command line the same script ends with the report and exit code 1."""
    result = run(sys.executable, "-m", "lightning_devcheck", "run", SCRIPT, "--mistake", mistake)
    assert result.returncode == 1, result.stderr[-1000:]
    assert "Fix (not tried): " in result.stdout or "Hint: " in result.stdout
    assert "Fix: " not in result.stdout
