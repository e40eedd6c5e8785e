"""Nothing that an operator or a backward does on simulated devices takes the interpreter down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_samples_with_errors_do_not_crash():
    """One process survives mixed devices, wrong gradients, double backwards and bad custom Functions."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fidelity._crash", "25"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
