"""Real processes over gloo: whichever of them is wrong, all stop with the same report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightning_devcheck._check.agreement import can_agree

RANKS = Path(__file__).parent / "helpers" / "ranks.py"
ROOT = RANKS.parents[2]

pytestmark = pytest.mark.ddp


def run(strategy: str, processes: int, wrong: str, batch: int):
    """Run the small DDP script; the process group and whatever it started has to end by itself."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, str(RANKS), strategy, str(processes), wrong, str(batch)]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120)


def reports(result) -> list[str]:
    """Every report that was printed, from its headline on."""
    return re.findall(
        r"DeviceMismatchError:\s+(self\.balance\[0\] is an nn\.Parameter.*)", result.stdout + result.stderr
    )


@pytest.mark.parametrize(("wrong", "spelled"), [("0", "global rank 0 of 2"), ("0,1", "global ranks 0-1 of 2")])
def test_all_processes_stop_with_one_report(wrong, spelled):
    """At a scheduled check each process prints the same report, with the ranks that are wrong."""
    result = run("ddp_fork", 2, wrong, 0)
    found = reports(result)
    assert result.returncode != 0, result.stdout + result.stderr
    assert len(found) >= 2, result.stderr[-2000:]
    assert {line[line.index("(") :] for line in found} == {f"(step 0, {spelled})"}
    assert "finished" not in result.stdout


def test_between_scheduled_checks_the_wrong_process_says_it_first():
    """A mistake that begins between scheduled checks is printed by its process before it raises."""
    result = run("ddp_fork", 2, "1", 4)
    assert result.returncode != 0
    assert {line[line.index("(") :] for line in reports(result)} == {"(step 4, global rank 1 of 2)"}
    assert "finished" not in result.stdout


def test_clean_processes_finish():
    """Where no process is wrong, training ends as ever."""
    result = run("ddp_fork", 2, "", 0)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "rank 0 finished" in result.stdout
    assert reports(result) == []


def test_no_agreement_in_one_process():
    """One process has nobody to agree with, and nothing is sent."""

    class Trainer:
        world_size = 1

    assert not can_agree(Trainer())
    assert not torch.distributed.is_initialized()
