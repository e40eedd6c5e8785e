"""Switching `DeviceCheck` on for every Trainer with an environment variable."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lightning_devcheck import DeviceCheck
from lightning_devcheck._activation import callbacks_from_environment
from tests.helpers.mistakes import ParametersInList
from tests.helpers.training import make_loader, make_trainer

SCRIPT = """
import {namespace} as pl
from lightning_devcheck import DeviceCheck
trainer = pl.Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, callbacks=[{callbacks}])
print([c._on_mismatch for c in trainer.callbacks if isinstance(c, DeviceCheck)])
"""


@pytest.mark.parametrize("value", [None, "", "0"])
def test_idle_without_the_variable(monkeypatch, value):
    """Without the variable, or with it off, the entry point gives no callback."""
    monkeypatch.delenv("LIGHTNING_DEVCHECK", raising=False)
    if value is not None:
        monkeypatch.setenv("LIGHTNING_DEVCHECK", value)
    assert callbacks_from_environment() == []


@pytest.mark.parametrize(("value", "action"), [("1", "raise"), ("raise", "raise"), ("warn", "warn")])
def test_the_variable_gives_one_callback(monkeypatch, value, action):
    """Each known value gives one DeviceCheck with that action."""
    monkeypatch.setenv("LIGHTNING_DEVCHECK", value)
    (check,) = callbacks_from_environment()
    assert isinstance(check, DeviceCheck)
    assert check._on_mismatch == action


def test_an_unknown_value_is_refused(monkeypatch):
    """A wrong value is named with the choices."""
    monkeypatch.setenv("LIGHTNING_DEVCHECK", "on")
    with pytest.raises(ValueError, match="LIGHTNING_DEVCHECK='on' is not a known action; use one of 'raise', 'warn'"):
        callbacks_from_environment()


@pytest.mark.parametrize("namespace", ["pytorch_lightning", "lightning.pytorch"])
def test_entry_points_reach_every_trainer(namespace):
    """The installed entry point puts the callback into the Trainer of either namespace."""
    pytest.importorskip("importlib.metadata")
    from importlib.metadata import entry_points

    group = f"{namespace}.callbacks_factory"
    if not any(point.name == "lightning_devcheck" for point in entry_points(group=group)):
        pytest.skip("the package is not installed, only on the path")
    code = SCRIPT.format(namespace=namespace, callbacks="")
    environment = {**os.environ, "LIGHTNING_DEVCHECK": "warn"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "['warn']", run.stderr[-1000:]


def test_a_callback_made_by_hand_wins(monkeypatch):
    """Beside the user's own DeviceCheck the automatic one does nothing."""
    monkeypatch.setenv("LIGHTNING_DEVCHECK", "raise")
    own = DeviceCheck("ignore")
    (automatic,) = callbacks_from_environment()
    make_trainer(callbacks=[own, automatic]).fit(ParametersInList(), make_loader())
    assert not own.report.ok
    assert automatic.report.checked == {}


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
