"""`lightning-devcheck run` under bad conditions: hangs, Ctrl-C, prompts, checkpoints, too many devices, torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy

from lightning_devcheck._run.child import available, simulated_strategy

ROOT = Path(__file__).parents[1]
TRAIN = """
import sys, time
import torch
import pytorch_lightning as pl

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)
    def training_step(self, batch, batch_idx):
        if "wait" in sys.argv and self.global_rank == 1:
            time.sleep(1000)
        loss = self.net(batch).mean()
        if "mixed" in sys.argv:
            loss = loss + torch.zeros(1)
        if "read" in sys.argv and loss > 1e9:
            pass
        return loss
    def test_step(self, batch, batch_idx):
        self.net(batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    if "ask" in sys.argv:
        input("continue? ")
    strategy = next((word for word in sys.argv if word.startswith("ddp")), "auto")
    data = torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=2)
    trainer = pl.Trainer(accelerator="auto", devices=1 if strategy == "auto" else 4, strategy=strategy, max_epochs=50)
    print("training", flush=True)
    trainer.fit(Net(), data)
    trainer.test(dataloaders=data, ckpt_path="best")
    print("steps", trainer.global_step)
"""


@pytest.fixture
def script(tmp_path):
    """An unmodified training script."""
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def start(script, *arguments, before=()):
    """Start the command line, in the script's folder."""
    command = [sys.executable, "-m", "lightning_devcheck", "run", *before, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, cwd=script.parent, env=environment)


def processes_of(script):
    """The ids of processes that run a script, those of zombies left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            folder = os.readlink(path.parent / "cwd")
        except OSError:
            continue
        if folder == str(script.parent) and b"train.py" in b" ".join(words):
            found.append(int(path.parent.name))
    return found


def test_a_prompt_is_named(script):
    """A script that asks for input fails, with the reason."""
    process = start(script, "train.py", "ask")
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 3
    assert "The script asked for input: under `lightning-devcheck run` there is none." in errors


def test_nothing_is_written(script):
    """Loggers and checkpoints stay quiet, and the best checkpoint is not missed."""
    process = start(script, "train.py")
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors[-1000:]
    assert "steps 2" in output
    assert [path.name for path in script.parent.iterdir() if path.name != "__pycache__"] == ["train.py"]


def test_host_reads_are_notes(script):
    """A line that makes the host wait is a note with its count, and no finding that fails."""
    process = start(script, "train.py", "read")
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors[-1000:]
    assert "makes the host wait for cuda:1, once per training step" in output


@pytest.mark.ddp
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_a_hang_in_a_rank_ends_in_time(script, strategy):
    """A rank that hangs runs into the time limit; no process is left."""
    process = start(script, "train.py", strategy, "wait", before=["--timeout", "12"])
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 3
    assert "train.py did not end within 12 s" in errors
    assert processes_of(script) == []


@pytest.mark.ddp
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(script, sign):
    """Ctrl-C, and a polite request to end, end all ranks."""
    process = start(script, "train.py", "ddp", "wait")
    assert process.stdout.readline() == "training\n"
    time.sleep(1.0)  # the launcher is starting ranks, or has
    process.send_signal(sign)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: all processes were ended" in errors
    assert processes_of(script) == []


@pytest.mark.ddp
def test_ranks_of_one_cause_are_told_together(script):
    """Lightning starts the other ranks with the script's whole path; what all of them found is said once."""
    process = start(script, "train.py", "ddp", "mixed", before=["--devices", "2"])
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 1, errors[-1000:]
    assert output.count("torch.zeros(1) is on cpu") == 1
    assert "global ranks 0-1 of 2" in output


@pytest.mark.ddp
def test_torchrun(script):
    """Ranks that torchrun starts are simulated; both say what they found."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29541"]
    process = start(script, *launcher, "train.py", "ddp", "mixed")
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 1, errors[-1000:]
    assert "torch.zeros(1)" in output
    assert "cuda:0" in output


@pytest.mark.parametrize(
    ("wanted", "count", "given"),
    [
        (1, 2, [1]),
        ("1", 2, [1]),
        (1, 1, [0]),
        (4, 2, 2),
        ("4", 2, 2),
        (2, 4, 2),
        ([0], 2, [0]),
        ([2, 3], 2, [0, 1]),
        ("auto", 2, "auto"),
        (-1, 2, -1),
    ],
)
def test_devices_that_a_script_asks_for(wanted, count, given):
    """A script gets as many devices as there are, and a single one is the last."""
    assert available(wanted, count) == given


@pytest.mark.parametrize(
    ("wanted", "given", "reasons"),
    [
        ("auto", "auto", ()),
        ("ddp_find_unused_parameters_true", "ddp_find_unused_parameters_true", ()),
        ("fsdp", "ddp", ("strategy fsdp was run as ddp: how it shards the model is not simulated",)),
        (
            "deepspeed_stage_2_offload",
            "ddp",
            ("strategy deepspeed_stage_2_offload was run as ddp: how it shards the model is not simulated",),
        ),
    ],
)
def test_strategy_that_a_script_asks_for(wanted, given, reasons):
    """Strategies that shard are run as ddp, and the report says what that leaves out; others are as they are."""
    assert simulated_strategy(wanted) == (given, reasons)


def test_strategy_objects_that_a_script_makes():
    """An object of a sharding strategy counts as its name; one that needs a mesh of devices is refused."""
    ddp = DDPStrategy(find_unused_parameters=True)
    assert simulated_strategy(ddp) == (ddp, ())
    assert simulated_strategy(FSDPStrategy(cpu_offload=True))[0] == "ddp"
    with pytest.raises(NotImplementedError, match=r'ModelParallelStrategy is not simulated.*strategy="ddp"'):
        simulated_strategy(ModelParallelStrategy())


@pytest.mark.ddp
def test_a_script_with_fsdp_is_checked_as_ddp(script):
    """The mistake of a script that asks for FSDP is found, and the report says that the sharding was left out."""
    script.write_text(TRAIN.replace("strategy=strategy", "strategy='fsdp'"))
    process = start(script, "train.py", "ddp", "mixed", before=["--devices", "2"])
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 1, errors[-1000:]
    assert "torch.zeros(1) is on cpu" in output
    assert "strategy fsdp was run as ddp" in output


SPAWNING = """
import torch
import torch.multiprocessing

def work(rank):
    weights = torch.ones(3)
    print(torch.ones(3, device=f"cuda:{rank}") + weights)

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=2)
"""


@pytest.mark.ddp
def test_ranks_that_torch_spawns_explain_themselves(script):
    """The ranks of ``torch.multiprocessing.spawn`` name what failed in them, as those of a Trainer do."""
    script.write_text(SPAWNING)
    process = start(script, "train.py")
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 1, errors[-1000:]
    assert "weights is on cpu, what it met is on cuda:" in output
    assert "weights = torch.ones(3)" in output


CHECKED = """
import pytorch_lightning as pl
from lightning_devcheck import DeviceCheck
from pytorch_lightning.demos.boring_classes import BoringModel

class Net(BoringModel):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx)["loss"].cpu()

if __name__ == "__main__":
    check = DeviceCheck(ignore=["loss-device"])
    pl.Trainer(callbacks=check, accelerator="gpu", devices=1, max_epochs=1).fit(Net())
"""


def test_the_check_of_a_script_is_the_one_that_counts(script):
    """A script that has a `DeviceCheck` of its own is judged by that one: what it ignores is not reported."""
    script.write_text(CHECKED)
    process = start(script, "train.py", before=["--format", "json"])
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors[-1000:]
    assert '"loss-device"' not in output
    assert '"steps": 2' in output
