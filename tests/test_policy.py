"""What each strategy implies, read off strategy objects; `test_strategies` runs those that run on the CPU."""

from __future__ import annotations

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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from lightning_devcheck._observe.expectation import declared, learned, of_trainer

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


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


def make_deepspeed(**stage):
    """A strategy as Lightning's DeepSpeedStrategy is, which cannot be made without its package: a stand-in."""
    kind = type("DeepSpeedStrategy", (), {"root_device": GPU, "config": {"zero_optimization": stage}})
    return kind()


@pytest.mark.parametrize(
    ("stage", "elsewhere"),
    [
        ({"stage": 2}, set()),
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, {CPU}),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, {CPU}),
    ],
    ids=["stage 2", "optimizer offloaded", "parameters offloaded"],
)
def test_deepspeed(stage, elsewhere):
    """DeepSpeed shards; its parameters may be on the CPU only where its configuration offloads something."""
    expectation = read(make_deepspeed(**stage))
    assert expectation.devices == {GPU}
    assert expectation.parameter_devices == elsewhere
    assert expectation.sharded


@pytest.fixture
def mesh():
    """A device mesh of this one process."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_fsdp_2_offloaded(mesh):
    """FSDP 2 says with each module where its parts are kept: parts on the CPU are offloaded, other tensors are not."""
    strategy = ModelParallelStrategy()
    strategy.parallel_devices = [GPU]
    module = nn.Linear(2, 2)
    assert read(strategy, module).parameter_devices == set()
    assert read(strategy, fully_shard(module, mesh=mesh)).parameter_devices == {CPU}


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
    from lightning_devcheck._observe.expectation import STRATEGIES

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
