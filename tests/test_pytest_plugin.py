"""The fixture `simulated_cuda`, in a project's own test run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest, torch

def test_two(simulated_cuda):
    assert simulated_cuda == torch.cuda.device_count() == 2
    assert torch.ones(2, device="cuda:1").device == torch.device("cuda", 1)

@pytest.mark.parametrize("simulated_cuda", [4], indirect=True)
def test_four(simulated_cuda):
    assert torch.cuda.device_count() == 4

def test_mixed(simulated_cuda):
    with pytest.raises(RuntimeError, match="cuda:0 and cpu|cpu and cuda:0"):
        torch.ones(2, device="cuda") + torch.ones(2)

def test_none():
    assert not torch.cuda.is_initialized()
"""


def run(folder, *options):
    """Run pytest as a project does that has the plugin."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder, env=environment)


def plugin_options():
    """Load the plugin by hand where the package is not installed, as in a checkout."""
    from importlib.metadata import entry_points

    known = any(point.name == "lightning_devcheck" for point in entry_points(group="pytest11"))
    return () if known else ("-p", "lightning_devcheck._run.pytest_plugin")


def test_the_fixture(tmp_path):
    """Tests that ask for it run on as many simulated devices as they want; others run as before."""
    (tmp_path / "test_mine.py").write_text(TESTS)
    result = run(tmp_path, *plugin_options())
    assert "4 passed" in result.stdout, result.stdout + result.stderr


def test_idle_unless_used(tmp_path):
    """A test run that does not use it imports no Lightning for it."""
    (tmp_path / "test_mine.py").write_text(
        "import sys\ndef test_it():\n    assert not {'lightning', 'pytorch_lightning'} & set(sys.modules)\n"
    )
    result = run(tmp_path, *plugin_options())
    assert "1 passed" in result.stdout, result.stdout + result.stderr
