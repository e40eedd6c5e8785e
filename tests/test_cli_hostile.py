"""The command line where things go wrong around it: files, streams, encodings, and what a target does when made."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAIN = """
import shutil, sys
import pytorch_lightning as pl
import torch

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)
    def training_step(self, batch, batch_idx):
        loss = self.net(batch).pow(2).mean()
        return loss.cpu() if "cpu" in sys.argv else loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    if "vanish" in sys.argv:
        shutil.rmtree("reports")
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)
    pl.Trainer(accelerator="gpu", devices=1, **quiet).fit(Net(), data)
    print("trained")
"""
MODELS = """
import os, sys
import torch
print("imported")
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        print("made")
        os.system("echo shouted")
        self.weights = torch.ones(3)
class Moving(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 2).cuda()
class Failing(torch.nn.Module):
    def __init__(self):
        raise KeyError("boom")
class Wanting(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
def number():
    return 3
def leaving():
    sys.exit("no")
def interrupted():
    raise KeyboardInterrupt
"""
FULL = Path("/dev/full")


@pytest.fixture
def folder(tmp_path):
    """A folder with a script and some models."""
    files = {"train.py": TRAIN, "models.py": MODELS, "quiet.py": MODELS.replace("print(", "str(").replace("echo", ":")}
    files |= {"broken.py": "def (", "raising.py": "raise RuntimeError('mine')", "leaving.py": "raise SystemExit(5)"}
    files |= {"needing.py": "import not_installed_here", "nb.ipynb": '{"cells": [], "metadata": null}'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.bin").write_bytes(b"\x7fELF\x00\x01\x02")
    return tmp_path


def run(folder, *arguments, shell="", **environment):
    """Run the command line, by a shell with redirections if asked to."""
    command = [sys.executable, "-W", "ignore", "-m", "lightning_devcheck", *map(str, arguments)]
    given = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    given.pop("PYTHONUNBUFFERED", None)
    wrapped = ["bash", "-c", f'set -o pipefail; "$@" {shell}', "bash", *command] if shell else command
    return subprocess.run(wrapped, capture_output=True, text=True, timeout=150, cwd=folder, env=given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--output", "/nonexistent/x", "train.py"], "--output /nonexistent/x: No such file or directory"),
        (["run", "--output", ".", "train.py"], "--output .: is a folder; name a file"),
        (["scan", "--output", "/nonexistent/x", "models:Net"], "--output /nonexistent/x: No such file or directory"),
        (["run", "nb.ipynb"], "nb.ipynb is a notebook: convert it (jupyter nbconvert --to script nb.ipynb)"),
        (["run", "binary.bin"], "binary.bin is no Python script: it is binary"),
        (["run", "."], ". is a folder; name a script, or a module with -m"),
        (["run", ""], "the script's name is empty"),
        (["run", "/dev/null"], "/dev/null is no regular file"),
        (["scan", "models:Wanting"], "missing a required argument: 'width'; name a function that makes it"),
        (["scan", "models:number"], "a torch.nn.Module is needed, this is a int"),
        (["scan", "absent.module:Net"], "No module named 'absent' in "),
        (["scan", ".models:Net"], "write MODULE:CLASS"),
    ],
    ids=str,
)
def test_wrong_usage_is_one_line_and_2(folder, arguments, message):
    """What cannot be run, scanned or written to is said in one line before anything is run."""
    result = run(folder, *arguments)
    assert result.returncode == 2, result.stderr[-2000:]
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr
    assert "trained" not in result.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("models:Failing", "raised KeyError: 'boom' (models.py:17  raise KeyError(\"boom\"))"),
        ("models:Moving", "(models.py:14  self.net = torch.nn.Linear(2, 2).cuda())"),
        ("models:leaving", 'raised SystemExit: no (models.py:24  sys.exit("no"))'),
        ("broken:Net", "raised SyntaxError: invalid syntax (broken.py, line 1)"),
        ("raising:Net", "raised RuntimeError: mine (raising.py:1"),
        ("leaving:Net", "raised SystemExit: 5 (leaving.py:1"),
        ("needing:Net", "raised ModuleNotFoundError: No module named 'not_installed_here' (needing.py:1"),
    ],
)
def test_what_a_scanned_target_raises_is_one_line_and_3(folder, target, message):
    """An exception of the target's own is what, where and why in one line, and no finding."""
    result = run(folder, "scan", target)
    assert result.returncode == 3, result.stderr[-2000:]
    assert len(result.stderr.splitlines()) == 1
    assert f"scan {target}: importing or making it raised" in result.stderr
    assert message in result.stderr


def test_an_interrupted_scan(folder):
    """Ctrl-C while a target is made ends with its own exit code."""
    result = run(folder, "scan", "models:interrupted")
    assert result.returncode == 130
    assert "Traceback" not in result.stderr


def test_json_of_a_scan_is_json(folder):
    """What the class, and a program that it starts, print goes to standard error."""
    result = run(folder, "scan", "--format", "json", "models:Net")
    assert json.loads(result.stdout)["findings"][0]["name"] == "self.weights"
    assert {"imported", "made", "shouted"} <= set(result.stderr.split())
    assert run(folder, "scan", "models:Net").stdout.count("imported\n") == 1


def test_an_existing_report_stays_until_there_is_a_new_one(folder):
    """Trying the file changes nothing in it, and leaves none where there was none."""
    (folder / "old.txt").write_text("old")
    assert run(folder, "scan", "--output", "old.txt", "models:Failing").returncode == 3
    assert run(folder, "scan", "--output", "new.txt", "models:Failing").returncode == 3
    assert (folder / "old.txt").read_text() == "old"
    assert not (folder / "new.txt").exists()


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_report_that_cannot_be_written_is_shown(folder):
    """Where the disk is full or the folder gone at the end, the report goes elsewhere, with a word."""
    result = run(folder, "scan", "--output", "/dev/full", "--format", "json", "quiet:Net")
    assert result.returncode == 1
    assert "--output /dev/full: No space left on device; the report goes to standard output" in result.stderr
    assert json.loads(result.stdout)["findings"][0]["rule"] == "unregistered-tensor"
    (folder / "reports").mkdir()
    result = run(folder, "run", "--output", "reports/x.txt", "train.py", "cpu", "vanish")
    assert result.returncode == 1
    assert "--output reports/x.txt: No such file or directory" in result.stderr
    assert "the loss is on cpu" in result.stdout


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("shell", [">/dev/full", ">&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full", "| head -1"])
def test_streams_that_are_closed_or_full(folder, shell):
    """The exit code says what was found, wherever the report can be shown; there is no traceback."""
    result = run(folder, "scan", "quiet:Net", shell=shell)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    shown = result.stdout + result.stderr
    assert ("self.weights is a tensor that the module does not register" in shown) == (
        shell in (">/dev/full", "| head -1")
    )


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("shell", [">/dev/full", ">&- 2>&- <&-"])
def test_a_clean_script_is_clean_without_streams(folder, shell):
    """A clean script's exit code is 0 where what it and we print cannot be written."""
    if "full" in shell and importlib.util.find_spec("pretty_errors"):
        pytest.skip("pretty_errors, of torchmetrics 1.4, hands each print of the script's on at once")
    assert run(folder, "run", "train.py", shell=shell).returncode == 0


@pytest.mark.parametrize(
    ("form", "spelled"), [("text", r"n\xe4me.py"), ("json", r"n\u00e4me.py"), ("html", "n&#228;me.py")]
)
def test_names_that_the_encoding_has_not(folder, form, spelled):
    """A report is shown with the escapes of its format."""
    (folder / "näme.py").write_text(TRAIN)
    result = run(folder, "run", "--format", form, "näme.py", "cpu", PYTHONIOENCODING="ascii")
    assert result.returncode == 1, result.stderr[-2000:]
    assert spelled in result.stdout
    assert "Traceback" not in result.stderr


def test_the_callback_speaks_any_encoding(folder):
    """The report that a script's own check raises is shown where the encoding has not its file's name."""
    (folder / "näme.py").write_text(TRAIN.replace("**quiet)", "callbacks=DeviceCheck(), **quiet)"))
    (folder / "näme.py").write_text("from lightning_devcheck import *\n" + (folder / "näme.py").read_text())
    result = run(folder, "run", "näme.py", "cpu", PYTHONIOENCODING="ascii")
    assert result.returncode == 1, result.stderr[-2000:]
    assert r"n\xe4me.py" in result.stderr + result.stdout
    assert "UnicodeEncodeError" not in result.stderr


def test_a_name_that_is_no_text(folder):
    """A file whose name is in no encoding is reported all the same."""
    name = os.fsdecode(b"b\xff.py")
    (folder / name).write_text(TRAIN)
    result = run(folder, "run", "--format", "json", "--output", "report.json", name, "cpu")
    assert result.returncode == 1, result.stderr[-2000:]
    assert name in json.dumps(json.loads((folder / "report.json").read_text()), ensure_ascii=False)


def test_a_package_that_fails_when_looked_for(folder):
    """A package above the module that raises is the script's failure, not ours."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("raise OSError('mine')")
    result = run(folder, "run", "-m", "pack.train")
    assert result.returncode == 3
    assert "OSError: mine" in result.stderr
