"""What each strategy implies. FSDP 2 really runs, on two gloo processes; the others are read off strategy objects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning.accelerators import Accelerator, CPUAccelerator
from pytorch_lightning.strategies import (
    DDPStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
    Strategy,
)
from torch import nn

from lightning_devcheck._policy import declared, learned, of_trainer

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)
SHARDED = Path(__file__).parent / "helpers" / "sharded.py"


def read(strategy, module=None, accelerator=None):
    """The expectation of a Trainer with this strategy."""
    trainer = SimpleNamespace(strategy=strategy, accelerator=accelerator or CPUAccelerator())
    return of_trainer(trainer, module or nn.Linear(1, 1))


@pytest.mark.parametrize(
    "strategy",
    [lambda: SingleDeviceStrategy(GPU), lambda: DDPStrategy(parallel_devices=[GPU])],
    ids=["single device", "ddp"],
)
def test_whole_models_belong_on_the_root_device(strategy):
    """Where a process holds all of the model, everything is expected on its root device."""
    expectation = read(strategy())
    assert expectation.devices == {GPU}
    assert not expectation.parameter_devices
    assert not expectation.sharded
    assert expectation.not_checked == ()


@pytest.mark.parametrize(("offload", "elsewhere"), [(False, set()), (True, {CPU})])
def test_sharded_models(offload, elsewhere):
    """FSDP's parameters may be on the CPU only where they are offloaded; its leaves need not be the module's."""
    expectation = read(FSDPStrategy(parallel_devices=[GPU], cpu_offload=offload))
    assert expectation.devices == {GPU}
    assert expectation.parameter_devices == elsewhere
    assert expectation.sharded
    assert expectation.not_checked == (
        "FSDPStrategy shards parameters: which leaf belongs to the module is not checked",
    )


def test_model_parallel_strategy_shards():
    """FSDP 2 and tensor parallel under ModelParallelStrategy are sharded too."""
    strategy = ModelParallelStrategy()
    strategy.parallel_devices = [GPU]
    assert read(strategy).sharded


def test_a_subclass_of_a_known_strategy_is_known():
    """A strategy of one's own is judged as the one it derives from."""

    class Mine(DDPStrategy):
        pass

    assert read(Mine(parallel_devices=[GPU])).devices == {GPU}


def test_an_unknown_strategy_is_learned_and_said():
    """Without an entry in the table the parameters' devices are taken, and the report says so."""

    class Unknown:
        pass

    expectation = read(Unknown(), nn.Linear(1, 1))
    assert expectation.devices == {CPU}
    assert expectation.not_checked == ("strategy Unknown is unknown: devices were learned from the parameters",)


def test_a_third_party_accelerator_under_auto():
    """Where the root device says cpu and no parameter is there, the root device is not trusted."""

    class Npu(Accelerator):
        setup_device = teardown = get_device_stats = parse_devices = None
        get_parallel_devices = auto_device_count = is_available = name = None

    Npu.__abstractmethods__ = frozenset()
    module = nn.Linear(1, 1, device="meta")
    expectation = read(SingleDeviceStrategy(CPU), module, Npu())
    assert "third-party accelerator" in expectation.not_checked[0]


def test_lightning_strategies_are_all_known():
    """Every strategy that can be built by name here has a base in the table."""
    from lightning_devcheck._policy import STRATEGIES

    def known(kind):
        return any(base.__name__ in STRATEGIES for base in kind.__mro__)

    kinds = [SingleDeviceStrategy, DDPStrategy, FSDPStrategy, ModelParallelStrategy]
    assert all(issubclass(kind, Strategy) and known(kind) for kind in kinds)


def test_learned_devices():
    """Trainable parameters decide; several devices are model parallel; none is said."""
    frozen = nn.Linear(1, 1, device="meta").requires_grad_(False)
    assert learned(nn.ModuleList([nn.Linear(1, 1), frozen])).devices == {CPU}
    assert learned(nn.ReLU()).not_checked == ("the module has no materialized parameter: no device to expect",)


def test_declared_devices_are_normalized():
    """A device without an index is the current one, the CPU has none."""
    assert declared(["cpu:0", torch.device("cuda:1")]).devices == {CPU, GPU}


@pytest.mark.ddp
@pytest.mark.parametrize("mistake", [False, True], ids=["clean", "mistake"])
def test_fsdp_2_really_runs(mistake):
    """Two processes with FSDP 2: no finding where all is right, the same report on both where the loss is elsewhere."""
    environment = {**os.environ, "PYTHONPATH": str(SHARDED.parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SHARDED), *(["mistake"] if mistake else [])]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if mistake:
        assert run.returncode != 0
        assert run.stderr.count("DeviceMismatchError: the loss is on meta, the model is on cpu") == 2, run.stderr[
            -2000:
        ]
    else:
        assert run.returncode == 0, run.stderr[-2000:]
        assert run.stdout.count("() ('ModelParallelStrategy shards parameters") == 2, run.stdout
