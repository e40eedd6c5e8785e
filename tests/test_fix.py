"""Fixes that are run: ``run --diff`` and ``run --fix``, as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightning_devcheck import Report, preflight

ROOT = Path(__file__).parents[1]

HEAD = """\
import torch
import torch.nn.functional as F
import lightning.pytorch as pl

"""
BASE = """
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)

    def training_step(self, batch, batch_idx):
        offset = torch.zeros(1, 4)
        return F.mse_loss(self.net(batch) + offset, batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

"""
TAIL = """
if __name__ == "__main__":
    data = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=2)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
    pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, **quiet).fit(Net(), data)
"""
SCRIPT = HEAD + BASE + TAIL
FIXED = SCRIPT.replace("torch.zeros(1, 4)", "torch.zeros(1, 4, device=self.device)")
LOOP = """\
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(8, 4, device="cuda")
    shift = torch.ones(8, 1)
    loss = (net(x) + shift).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOOP_FIXED = LOOP.replace("torch.ones(8, 1)", "torch.ones(8, 1, device=x.device)")


def call(folder, *arguments):
    """Run the command line in a folder."""
    command = [sys.executable, "-m", "lightning_devcheck", "run", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=environment
    )


def project(tmp_path, **files):
    """Make a project with some files."""
    (tmp_path / "pyproject.toml").touch()
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize("apply", [["git", "apply"], ["patch", "-p1"]])
def test_a_diff_of_what_is_proven(tmp_path, apply):
    """The diff stands alone on standard output, the report beside it calls the fix a fix."""
    folder = project(tmp_path, train=SCRIPT)
    result = call(folder, "--diff", "train.py")
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("--- a/train.py\n+++ b/train.py\n")
    assert "  Fix: offset = torch.zeros(1, 4, device=self.device)\n" in result.stderr
    assert "lines that did not run: the fixes were tried in 2 runs" in result.stderr
    assert (folder / "train.py").read_text() == SCRIPT
    subprocess.run(apply, input=result.stdout, text=True, cwd=folder, check=True, capture_output=True)
    assert (folder / "train.py").read_text() == FIXED


def test_a_fix_is_written_once(tmp_path):
    """What is proven is written; where nothing is left the exit code is 0, and a second time changes nothing."""
    folder = project(tmp_path, loop=LOOP)
    result = call(folder, "--fix", "loop.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "lightning-devcheck: wrote loop.py\n" in result.stderr
    fixed = (folder / "loop.py").read_text()
    assert fixed != LOOP
    again = call(folder, "--fix", "loop.py")
    assert again.returncode == 0, again.stderr
    assert (folder / "loop.py").read_text() == fixed
    assert sorted(path.name for path in folder.iterdir()) == ["loop.py", "pyproject.toml"]


def test_a_run_without_the_options_proves_nothing(tmp_path):
    """Without them the report has no fix that is just called so."""
    folder = project(tmp_path, train=SCRIPT)
    result = call(folder, "train.py")
    assert "Fix (not tried): offset = torch.zeros(1, 4, device=self.device)" in result.stdout
    assert "  Fix: " not in result.stdout


def test_the_report_beside_a_diff(tmp_path):
    """A report for machines goes to a file, with edits and what was shown of them."""
    folder = project(tmp_path, train=SCRIPT)
    output = folder / "report.json"
    result = call(folder, "--diff", "--format", "json", "--output", str(output), "train.py")
    assert result.stdout.startswith("--- a/train.py")
    (finding,) = json.loads(output.read_text())["findings"]
    assert finding["verified"] is True
    assert finding["edits"][0]["new"].endswith("device=self.device")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--all"], "--all goes with --fix"),
        (["--diff", "--fix"], "choose one"),
        (["--fix", "--baseline", "old.json"], "--baseline goes with neither --diff nor --fix"),
        (["--diff", "--format", "json"], "name a file for the json report with --output"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, options, word):
    """What has no meaning is refused with a word, before anything runs."""
    folder = project(tmp_path, loop=LOOP)
    (folder / "old.json").write_text(Report().to_json())
    result = call(folder, *options, "loop.py")
    assert result.returncode == 2
    assert word in result.stderr


def test_a_module_that_is_imported_is_edited(tmp_path):
    """The second run sees the edit of an imported file, whatever is compiled already; nothing stale is left."""
    text = HEAD + BASE
    folder = project(tmp_path, model=text, train="from model import *\n" + TAIL)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    result = call(folder, "--fix", "train.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "device=self.device" in (folder / "model.py").read_text()
    assert call(folder, "train.py").returncode == 0


def test_ranks_see_the_edits(tmp_path):
    """Ranks that a Trainer starts run the edited file."""
    script = SCRIPT.replace("devices=1", 'devices=2, strategy="ddp"')
    folder = project(tmp_path, train=script)
    result = call(folder, "--fix", "train.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert (folder / "train.py").read_text() != script


@pytest.mark.parametrize("page", ["fix.md", "fix.zh-CN.md"])
def test_the_readme_shows_the_diff_of_the_page(page):
    """The diff in the README is that of the page, whose commands another test runs."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    shown = text.partition("run --diff train.py\n")[2].partition("```")[0]
    readme = (ROOT / page.replace("fix", "README")).read_text(encoding="utf-8")
    assert f"```diff\n{shown}```" in readme


def test_what_is_saved_or_trained_waits_for_all(tmp_path):
    """`--fix` leaves what changes saved keys and trained parameters, and says so; `--all` writes it."""
    script = SCRIPT.replace(
        "self.net = torch.nn.Linear(4, 4)\n",
        "self.net = torch.nn.Linear(4, 4)\n        self.scale = [torch.nn.Parameter(torch.ones(1))]\n",
    ).replace("self.net(batch)", "self.net(batch) * self.scale[0]")
    folder = project(tmp_path, train=script)
    result = call(folder, "--fix", "train.py")
    written = (folder / "train.py").read_text()
    assert result.returncode == 1
    assert "its fix changes what is saved or trained: --fix --all writes it" in result.stderr
    assert ("device=self.device" in written, "ParameterList" in written) == (True, False)
    result = call(folder, "--fix", "--all", "train.py")
    assert result.returncode == 0, result.stderr
    assert (
        "self.scale = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(1))])" in (folder / "train.py").read_text()
    )


def test_a_tensor_without_a_better_edit_is_moved_where_it_is_used(tmp_path):
    """Where the line that makes it says nothing, it is moved to the device of what it meets; that is tried as well."""
    script = SCRIPT.replace("torch.zeros(1, 4)", "self.make(torch.zeros)").replace(
        "    def configure", "    def make(self, maker):\n        return maker(1, 4)\n\n    def configure"
    )
    folder = project(tmp_path, train=script)
    result = call(folder, "--fix", "train.py")
    assert result.returncode == 0, result.stderr
    assert "self.net(batch) + offset.to(batch.device), batch)" in (folder / "train.py").read_text()


def test_preflight_shows_a_diff_that_is_not_tried(tmp_path, monkeypatch):
    """A failing test can print the edits as a diff, marked as not tried."""
    folder = project(tmp_path, model=HEAD + BASE)
    monkeypatch.syspath_prepend(folder)
    from model import Net

    data = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2)
    diff = preflight(Net, data).diff()
    assert "+        offset = torch.zeros(1, 4, device=self.device)\n" in diff
    assert "not tried" in diff
