"""What runs on several processes here: every launcher, FSDP 1 and 2, joined DDP, simulated ranks; clean and wrong."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.algorithms import Join
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from lightning_devcheck import DeviceCheck, simulate_cuda
from tests.helpers.mistakes import LossOnFirstDevice
from tests.helpers.training import Clean, make_loader, make_trainer
from tests.ranks._measure import LAUNCHERS, watch

HELPERS = Path(__file__).parent / "helpers"

pytestmark = pytest.mark.ddp


def run(script: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run a script of two gloo processes to its end."""
    environment = {**os.environ, "PYTHONPATH": str(HELPERS.parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HELPERS / script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_all_ranks_stop_together(launcher):
    """Whoever starts the processes, all end by themselves with the same report of the last rank's mistake."""
    ending = watch(launcher, 2, "1")
    assert ending.is_together, ending
    (report,) = ending.reports[0]
    assert report.startswith("self.balance[0] is an nn.Parameter in the loss that the module does not register")
    assert "(step 0, global rank 1 of 2)" in report


def test_fsdp_1():
    """Raw FSDP 1 is quiet, with flat parameters and with the module's own, and a loss that is elsewhere is named."""
    assert run("fsdp.py").stdout.count(": []\n") == 4
    found = re.findall(r"own parameters (\w+): (.*)", run("fsdp.py", "mistake").stdout)
    assert sorted(found) == sorted([(kept, str(["loss-device loss"] * 3)) for kept in ("False", "True")] * 2)


@pytest.mark.skipif(torch.__version__ < "2.7", reason="fully_shard of torch 2.6 asks the CPU for streams of CUDA's")
@pytest.mark.parametrize("mistake", [False, True], ids=["clean", "mistake"])
def test_fsdp_2(mistake):
    """FSDP 2 under ModelParallelStrategy: quiet where all is right, both ranks report a loss that is elsewhere."""
    result = run("sharded.py", *(["mistake"] if mistake else []))
    if mistake:
        assert result.returncode != 0
        said = result.stderr.count("DeviceMismatchError: the loss is on meta, the model is on cpu")
        assert said == 2, result.stderr[-2000:]
    else:
        assert result.returncode == 0, result.stderr[-2000:]
        assert result.stdout.count("() ('ModelParallelStrategy shards parameters") == 2, result.stdout


class Joined(Clean):
    """DDP under ``Join``, where no rank may wait for one that has run out of data; one rank may be wrong."""

    def __init__(self, wrong, folder):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.balance = [nn.Parameter(torch.zeros(()))]
        self.wrong, self.folder = wrong, folder

    def on_train_start(self):
        self.join = Join([self.trainer.strategy.model])
        self.join.__enter__()

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss + self.balance[0] if self.global_rank == self.wrong and batch_idx == 3 else loss

    def on_train_end(self):
        self.join.__exit__(None, None, None)
        (self.folder / f"ended-{self.global_rank}").touch()


def test_joined_ranks_are_not_made_to_wait(tmp_path):
    """Under Join there is no agreement, a clean run ends as ever."""
    make_trainer(devices=2, strategy="ddp_fork", callbacks=DeviceCheck()).fit(Joined(None, tmp_path), make_loader(8))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ended-0", "ended-1"]


def test_a_joined_rank_that_is_wrong_says_so_itself(tmp_path, capfd):
    """Under Join the rank with the mistake prints its report with its rank and raises; the other one ends too."""
    trainer = make_trainer(devices=2, strategy="ddp_fork", callbacks=DeviceCheck())
    with pytest.raises((ProcessRaisedException, ProcessExitedException)):
        trainer.fit(Joined(1, tmp_path), make_loader(8))
    said = re.findall(r"^DeviceMismatchError: self.balance\[0\] is .*", capfd.readouterr().err, re.MULTILINE)
    assert [line[line.index("(") :] for line in said] == ["(step 3, global rank 1 of 2)"]
    assert list(tmp_path.iterdir()) == []


class SlowWriter(io.TextIOBase):
    """A stream that takes its time for a report."""

    def write(self, text):
        """Write to the stream of the process, late."""
        time.sleep(1.0 if "DeviceMismatchError" in text else 0)
        return os.write(2, text.encode())


class SlowToSay(LossOnFirstDevice):
    """The process that is right is slow to say the report."""

    def on_train_start(self):
        """Slow down the first process."""
        if self.global_rank == 0:
            sys.stderr = SlowWriter()


def test_no_process_is_ended_before_its_report_is_out(capfd):
    """The launcher ends all processes once one has failed; they wait until each has said its report."""
    with simulate_cuda(devices=2):
        trainer = make_trainer(accelerator="gpu", devices=2, strategy="ddp_fork", callbacks=DeviceCheck())
        with pytest.raises((ProcessRaisedException, ProcessExitedException)):
            trainer.fit(SlowToSay(), make_loader(8))
    assert len(re.findall(r"^DeviceMismatchError: ", capfd.readouterr().err, re.MULTILINE)) == 2


def test_the_root_device_itself_is_in_question(capfd):
    """Where the loss of rank 1 is on rank 0's device, ranks agree on CPU tensors; their own group speaks NCCL there."""
    with simulate_cuda(devices=2):
        trainer = make_trainer(accelerator="gpu", devices=2, strategy="ddp_fork", callbacks=DeviceCheck())
        with pytest.raises((ProcessRaisedException, ProcessExitedException)):
            trainer.fit(LossOnFirstDevice(), make_loader(8))
    said = re.findall(r"^DeviceMismatchError: .*", capfd.readouterr().err, re.MULTILINE)
    assert len(said) == 2, said
    assert len(set(said)) == 1, said
    assert "is on cuda:0, this process trains on cuda:1 (step 0, global rank 1 of 2)" in said[0]
