"""Real processes under manual optimization: none waits for another because of the check, and all hear of an error."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lightning_devcheck._check.agreement import Notice
from lightning_devcheck._report.report import Report

SCRIPT = Path(__file__).parent / "helpers" / "uneven.py"
ROOT = SCRIPT.parents[2]
KINDS = ("local", "each", "optimizers", "no_sync", "ddp")

pytestmark = pytest.mark.ddp


def run(kind: str, processes: int, wrong: str, batch: int = 0) -> tuple[int, str, str]:
    """Run the small script; a hang ends it, and with it the test."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(SCRIPT), kind, str(processes), wrong, str(batch)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes) as process:
        try:
            output, errors = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    return process.returncode, output, errors


def said(errors: str) -> list[str]:
    """Where each report that a process said has its mistake."""
    return re.findall(
        r"^DeviceMismatchError: self\.balance\[0\] is an nn\.Parameter.*(\(step.*\))", errors, re.MULTILINE
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_run_ends_as_without_the_check(kind):
    """Whatever number of backwards each rank makes, the run ends, quietly and with the same weights."""
    code, without, errors = run(kind, 2, "none")
    assert code == 0, errors[-2000:]
    code, with_check, errors = run(kind, 2, "")
    assert code == 0, errors[-2000:]
    assert with_check == without
    assert with_check.startswith("finished")
    assert "DeviceCheck" not in errors


@pytest.mark.parametrize(("kind", "wrong"), [*((kind, "1") for kind in KINDS), ("each", "0"), ("no_sync", "0")])
def test_all_ranks_say_the_report_of_one(kind, wrong):
    """A mistake of one rank is said by both, also by one that waits in a collective of the program's."""
    code, output, errors = run(kind, 2, wrong)
    assert code != 0
    assert "finished" not in output
    # on torch 2.6 a rank that waits inside DDP ends with the broken connection (docs/compatibility.md)
    told = 1 if kind == "no_sync" and torch.__version__ < "2.7" else 2
    assert said(errors) == [f"(step 0, global rank {wrong} of 2)"] * told, errors[-3000:]
    assert "is of no use" not in errors


def test_three_ranks_with_a_mistake_each_say_one_report():
    """Where all of three are wrong, one report is said by all."""
    code, _, errors = run("each", 3, "0,1,2")
    assert code != 0
    assert len(said(errors)) == 3, errors[-3000:]
    assert len(set(said(errors))) == 1


def test_a_mistake_between_scheduled_checks_is_said_by_all():
    """A mistake that begins in a batch that is not scheduled is heard by the others too."""
    code, _, errors = run("each", 2, "1", 4)
    assert code != 0
    assert said(errors) == ["(step 4, global rank 1 of 2)"] * 2, errors[-3000:]


def test_the_first_report_counts(capfd):
    """Of two reports that are posted the first is everybody's; a copy of what listens is nothing."""
    store = dist.HashStore()
    first = Notice(store, 2)
    second = Notice(store, 2)
    second._store = first._store  # as in another process, where fits have the same numbers
    reports = [Report(not_checked=(name,)) for name in ("first", "second")]
    first._world_size = 1
    assert first.post(reports[0]) == reports[0]
    assert second.post(reports[1]) == reports[0]
    assert second.report == reports[0]
    assert capfd.readouterr().err.count("DeviceMismatchError: ") == 2
    assert pickle.loads(pickle.dumps(first)) is None
