"""The command line, as a user runs it: through both spellings, on real scripts, with every exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAIN = """
import sys
import torch
import torch.nn.functional as F
import {namespace} as pl

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)
    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self.net(batch), batch)
        if "cpu" in sys.argv:
            return loss.cpu()
        if "first" in sys.argv:
            return loss.to("cuda:0")
        if "fail" in sys.argv:
            raise KeyError("mine")
        if "mixed" in sys.argv:
            offset = torch.zeros(1, 4)
            return (self.net(batch) + offset).mean()
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

if __name__ == "__main__":
    if "exit" in sys.argv:
        sys.exit(7)
    if "idle" not in sys.argv:
        strategy = next((word for word in sys.argv if word.startswith("ddp")), "auto")
        data = torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=2)
        quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
        devices = 1 if strategy == "auto" else 2
        trainer = pl.Trainer(accelerator="gpu", devices=devices, strategy=strategy, max_epochs=50, **quiet)
        trainer.fit(Net(), data)
"""


@pytest.fixture
def script(tmp_path):
    """An unmodified training script."""
    path = tmp_path / "train.py"
    path.write_text(TRAIN.format(namespace="pytorch_lightning"))
    return path


def run(*arguments, cwd=ROOT):
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "lightning_devcheck", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=cwd, env=environment)


def test_a_clean_script_exits_with_0(script):
    """A clean script trains two steps, whatever it asked for, and exits with 0."""
    result = run("run", script)
    assert result.returncode == 0, result.stderr[-1000:]
    assert "no findings (checked: 10 tensors, 12 graph nodes, 2 steps" in result.stdout


def test_findings_exit_with_1_and_are_printed(script):
    """A silent mistake is reported with its line, and the exit code is 1."""
    result = run("run", script, "cpu")
    assert result.returncode == 1
    assert "the loss is on cpu, the model is on cuda:1" in result.stdout
    assert "train.py:14  return loss.cpu()" in result.stdout


def test_an_error_of_torch_becomes_a_finding(script):
    """A device error that torch raises in forward is a finding, not a failure of the script."""
    result = run("run", script, "mixed")
    assert result.returncode == 1, result.stderr[-1000:]
    assert "offset" in result.stdout
    assert "mixed-devices" in result.stdout


def test_a_failing_script_exits_with_3(script):
    """Another exception is shown with the script's traceback and none of our frames."""
    result = run("run", script, "fail")
    assert result.returncode == 3
    assert "KeyError: 'mine'" in result.stderr
    assert "failed; its error was not recognized as a device error" in result.stderr
    assert "lightning_devcheck/_run/child" not in result.stderr


def test_a_failing_script_with_mere_notes_exits_with_3(script):
    """Notes of a script that fails for another reason are shown, and the failure decides."""
    script.write_text(script.read_text().replace("return loss\n", "return loss if loss.item() < 9 else None\n"))
    script.write_text(script.read_text() + "        raise KeyError('late')\n")
    result = run("run", script)
    assert "makes the host wait" in result.stdout
    assert "KeyError: 'late'" in result.stderr
    assert result.returncode == 3


def test_sys_exit_in_a_script_is_a_failure(script):
    """sys.exit with a code says which."""
    result = run("run", script, "exit")
    assert result.returncode == 3
    assert "sys.exit(7)" in result.stderr


def test_a_script_without_fit(script):
    """A script that never trains is told so."""
    result = run("run", script, "idle")
    assert result.returncode == 2
    assert "ended without calling Trainer.fit: nothing was checked" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.py"], "missing.py: no such file"),
        (["run", "-m", "missing.module"], "no module named missing.module"),
        (["run", "--devices", "0", "x.py"], "'0' is not a whole number of at least 1"),
        (["run", "--steps", "two", "x.py"], "'two' is not a whole number of at least 1"),
        (["scan", "json"], "write MODULE:CLASS, such as package.models:Net"),
        (["scan", "json:Missing"], "module 'json' has no attribute 'Missing'"),
        ([], "the following arguments are required: COMMAND"),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_2(arguments, message):
    """Wrong usage is named and exits with 2."""
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr


@pytest.mark.ddp
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn", "ddp_fork"])
def test_every_launcher_is_simulated(script, strategy):
    """Ranks that Lightning's launchers start are simulated too: a written-out cuda:0 shows on rank 1."""
    result = run("run", script, "first", strategy)
    assert result.returncode == 1, result.stderr[-1000:]
    assert "loss is on cuda:0, this process trains on cuda:1 (step 0, global rank 1 of 2" in result.stdout


def test_json_to_a_file(script, tmp_path):
    """--format json --output writes a report that can be read back."""
    output = tmp_path / "report.json"
    result = run("run", "--format", "json", "--output", output, script, "cpu")
    assert result.returncode == 1
    assert json.loads(output.read_text())["findings"][0]["rule"] == "loss-device"
    assert f"report written to {output}" in result.stderr


def test_html_to_a_file(script, tmp_path):
    """--format html writes one self-contained page."""
    output = tmp_path / "report.html"
    assert run("run", "--format", "html", "--output", output, script, "cpu").returncode == 1
    assert "loss-device" in output.read_text()


def test_a_module(script):
    """-m runs a module as Python does."""
    result = run("run", "-m", "train", "cpu", cwd=script.parent)
    assert result.returncode == 1, result.stderr[-1000:]
    assert "the loss is on cpu" in result.stdout


def test_scan(tmp_path):
    """The scan command makes a class and lists what Lightning will not move."""
    (tmp_path / "models.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.class_weights = torch.ones(3)\n"
    )
    result = run("scan", "models:Net", cwd=tmp_path)
    assert result.returncode == 1
    assert "self.class_weights is a tensor that the module does not register" in result.stdout


def test_help_shows_exit_codes_and_examples():
    """--help needs no manual beside it."""
    result = run("--help")
    assert result.returncode == 0
    assert "exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 the script failed" in result.stdout
    assert "lightning-devcheck run train.py" in result.stdout
