"""What each strategy implies: on which devices a process's tensors belong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from lightning_devcheck._observe.devices import devices_of, normalize

# By class name along the strategy's bases, so that no Lightning namespace is imported:
#   whole    every process holds all of the model on its root device
#   sharded  parameters are views, flat or distributed; leaves of the graph need not be the module's
STRATEGIES = {
    "SingleDeviceStrategy": "whole",
    "DDPStrategy": "whole",
    "FSDPStrategy": "sharded",
    "ModelParallelStrategy": "sharded",
    "DeepSpeedStrategy": "sharded",
    "XLAStrategy": "whole",
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """Where a process's tensors belong.

    Attributes:
        devices: Where the loss, the leaves and the parameters may be; empty where nothing is known.
        parameter_devices: Where parameters may be besides, such as the CPU when they are offloaded.
        sharded: Whether the graph's leaves need not be the module's own parameters.
        not_checked: What cannot be judged, and why.
    """

    devices: frozenset[torch.device]
    parameter_devices: frozenset[torch.device] = field(default_factory=frozenset)
    sharded: bool = False
    not_checked: tuple[str, ...] = ()


def learned(module: torch.nn.Module, reason: str = "") -> Expectation:
    """Take the devices that the trainable parameters are on as the expected ones."""
    parameters = list(module.parameters())
    return learned_from(parameters, devices_of(parameters), reason)


def learned_from(parameters: Collection[torch.Tensor], devices: Set[torch.device], reason: str = "") -> Expectation:
    """Of all the devices that parameters are on, expect those of the trained ones; where none is trained, all."""
    if len(devices) > 1:
        devices = devices_of([p for p in parameters if p.requires_grad] or parameters)
    devices = devices - {torch.device("meta")}
    reasons = [reason] if reason else []
    if not devices:
        reasons.append("the module has no materialized parameter: no device to expect")
    elif len(devices) > 1:
        reasons.append(f"the parameters are on {len(devices)} devices: taken as model parallel, each of them is right")
    return Expectation(frozenset(devices), not_checked=tuple(reasons))


def declared(devices: Iterable[torch.device | str]) -> Expectation:
    """Expect the devices that the caller names."""
    return Expectation(frozenset(normalize(device) for device in devices))


def of_trainer(trainer: Any, module: torch.nn.Module) -> Expectation:
    """Read the expectation off a Trainer's strategy."""
    strategy = trainer.strategy
    kind = kind_of(strategy)
    if kind is None:
        return learned(
            module, f"strategy {type(strategy).__name__} is unknown: devices were learned from the parameters"
        )
    root = normalize(strategy.root_device)
    if root.type == "cpu" and _is_foreign(trainer.accelerator) and learned(module).devices != {root}:
        return learned(
            module, "strategy.root_device is cpu under a third-party accelerator: learned from the parameters"
        )
    if kind == "whole":
        return Expectation(frozenset({root}))
    offloaded = frozenset({torch.device("cpu")}) if _offloads(strategy) or _keeps_parts_on_cpu(module) else frozenset()
    note = f"{type(strategy).__name__} shards parameters: which leaf belongs to the module is not checked"
    return Expectation(frozenset({root}), offloaded, sharded=True, not_checked=(note,))


def kind_of(strategy: Any) -> str | None:
    """How a strategy places a model, in the words of `STRATEGIES`; None for one that is not known."""
    return next((STRATEGIES[c.__name__] for c in type(strategy).__mro__ if c.__name__ in STRATEGIES), None)


def _is_foreign(accelerator: Any) -> bool:
    """Whether an accelerator is not one of Lightning's own (whose root device is right)."""
    return type(accelerator).__module__.partition(".")[0] not in ("lightning", "pytorch_lightning", "lightning_fabric")


def _offloads(strategy: Any) -> bool:
    """Whether a sharding strategy keeps parameters on the CPU between uses."""
    if getattr(getattr(strategy, "cpu_offload", None), "offload_params", False):
        return True
    config = getattr(strategy, "config", None)  # DeepSpeed
    stage = config.get("zero_optimization", {}) if isinstance(config, dict) else {}
    return bool(stage.get("offload_param") or stage.get("offload_optimizer"))


def _keeps_parts_on_cpu(module: torch.nn.Module) -> bool:
    """Whether a part of a distributed parameter is on the CPU: FSDP 2 is told to offload module by module."""
    return any(type(p).__name__ == "DTensor" and p.device.type == "cpu" for p in module.parameters())
