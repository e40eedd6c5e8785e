"""Switching `DeviceCheck` on for every Trainer with an environment variable."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from lightning_devcheck._check.activation import _add_check, callbacks_from_environment
from tests.helpers.training import make_trainer

SCRIPT = """
import warnings
import torch
import {namespace} as pl
from lightning_devcheck import DeviceCheck

warnings.simplefilter("ignore")
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)
    def on_fit_start(self):
        kinds = [type(c).__name__ for c in self.trainer.callbacks]
        checks = [c._on_mismatch for c in self.trainer.callbacks if isinstance(c, DeviceCheck)]
        print("during", checks, kinds[-1])
    def training_step(self, batch, batch_idx):
        return self.net(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

callbacks = [{callbacks}]
quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir={folder!r})
trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=1, callbacks=callbacks, **quiet)
print("before", len([c for c in trainer.callbacks if isinstance(c, DeviceCheck)]))
for _ in range(2):
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(4, 4)))
print("after", len([c for c in trainer.callbacks if isinstance(c, DeviceCheck)]))
"""


def run(namespace, folder, callbacks=""):
    """What a script with a Trainer says of the checks in it, with the variable set."""
    code = SCRIPT.format(namespace=namespace, callbacks=callbacks, folder=str(folder))
    environment = {**os.environ, "LIGHTNING_DEVCHECK": "warn"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-1000:]
    return result.stdout.split("\n")[:-1]


@pytest.mark.parametrize("value", [None, "", "0"])
def test_idle_without_the_variable(monkeypatch, value):
    """Without the variable, or with it off, the entry point gives no callback."""
    monkeypatch.delenv("LIGHTNING_DEVCHECK", raising=False)
    if value is not None:
        monkeypatch.setenv("LIGHTNING_DEVCHECK", value)
    assert callbacks_from_environment() == []


def test_an_unknown_value_is_refused(monkeypatch):
    """A wrong value is named with the choices."""
    monkeypatch.setenv("LIGHTNING_DEVCHECK", "on")
    with pytest.raises(ValueError, match="LIGHTNING_DEVCHECK='on' is not a known action; use one of 'raise', 'warn'"):
        callbacks_from_environment()


@pytest.fixture
def installed():
    """Skip where the package is only on the path: its entry points are not there."""
    found = entry_points(group="pytorch_lightning.callbacks_factory")
    if not any(point.name == "lightning_devcheck" for point in found):
        pytest.skip("the package is not installed")


@pytest.mark.parametrize("namespace", ["pytorch_lightning", "lightning.pytorch"])
def test_every_trainer_runs_with_a_check(namespace, tmp_path, installed):
    """While a Trainer of either namespace runs there is one check, before what saves checkpoints; else none."""
    during = "during ['warn'] ModelCheckpoint"
    assert run(namespace, tmp_path) == ["before 0", during, during, "after 0"]


def test_a_callback_made_by_hand_wins(tmp_path, installed):
    """Beside the user's own DeviceCheck none is added."""
    during = "during ['ignore'] ModelCheckpoint"
    found = run("pytorch_lightning", tmp_path, 'DeviceCheck("ignore")')
    assert found == ["before 1", during, during, "after 1"]


@pytest.mark.parametrize(("value", "action"), [("1", "raise"), ("raise", "raise"), ("warn", "warn")])
def test_known_values(monkeypatch, value, action):
    """Each known value gives a DeviceCheck with that action."""
    trainer = make_trainer()
    monkeypatch.setenv("LIGHTNING_DEVCHECK", value)
    assert _add_check(trainer)._on_mismatch == action
    assert _add_check(trainer) is None


@pytest.mark.parametrize("namespace", ["pytorch_lightning", "lightning.pytorch"])
def test_the_namespace_in_use_keeps_its_messages(namespace):
    """Importing the other namespace for its base class does not send this one's messages elsewhere."""
    code = (
        f"import {namespace}, lightning_utilities.core.rank_zero as messages\n"
        "from lightning_devcheck import DeviceCheck\n"
        "print(messages.log.name)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == f"{namespace}.utilities.rank_zero", run.stderr[-500:]
