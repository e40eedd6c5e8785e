"""What each strategy implies: on which devices a process's tensors belong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from lightning_devcheck._compat import owned_tensors
from lightning_devcheck._observe.devices import devices_of, normalize

Kind = Literal["whole", "sharded"]
# By class name along the strategy's bases, so that no Lightning namespace is imported:
#   whole    every process holds all of the model on its root device
#   sharded  parameters are views, flat or distributed; leaves of the graph need not be the module's
STRATEGIES: dict[str, Kind] = {
    "SingleDeviceStrategy": "whole",
    "DDPStrategy": "whole",
    "FSDPStrategy": "sharded",
    "ModelParallelStrategy": "sharded",
    "DeepSpeedStrategy": "sharded",
    "XLAStrategy": "whole",
}


FOREIGN = "strategy.root_device is cpu under a third-party accelerator: learned from the parameters"
LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")


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
    parameters, _ = owned_tensors(module)
    return learned_from(parameters, devices_of(parameters), reason)


def learned_from(
    parameters: Collection[torch.Tensor],
    devices: Set[torch.device],
    reason: str = "",
) -> Expectation:
    """Expect the devices of the parameters that are trained; where none is, of all."""
    if len(devices) > 1:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        devices = devices_of(trained or parameters)
    devices = devices - {torch.device("meta")}
    reasons = list(filter(None, [reason]))
    if not devices:
        reasons.append("the module has no materialized parameter: no device to expect")
    elif len(devices) > 1:
        several = f"the parameters are on {len(devices)} devices"
        reasons.append(f"{several}: taken as model parallel, each of them is right")
    return Expectation(frozenset(devices), not_checked=tuple(reasons))


def declared(devices: Iterable[torch.device | str]) -> Expectation:
    """Expect the devices that the caller names."""
    return Expectation(frozenset(normalize(device) for device in devices))


def of_trainer(trainer: Any, module: torch.nn.Module) -> Expectation:
    """Read the expectation off a Trainer's strategy."""
    strategy = trainer.strategy
    name = type(strategy).__name__
    kind = kind_of(strategy)
    if kind is None:
        reason = f"strategy {name} is unknown: devices were learned from the parameters"
        return learned(module, reason)
    root = normalize(strategy.root_device)
    here = Expectation(frozenset({root}))
    if root.type == "cpu" and _is_foreign(trainer.accelerator):
        found = learned(module, FOREIGN)
        if found.devices != here.devices:
            return found
    if kind == "whole":
        return here
    note = f"{name} shards parameters: which leaf belongs to the module is not checked"
    here = replace(here, sharded=True, not_checked=(note,))
    if _offloads(strategy) or _keeps_parts_on_cpu(module):
        return replace(here, parameter_devices=frozenset({torch.device("cpu")}))
    return here


def kind_of(strategy: Any) -> Kind | None:
    """Say how a strategy places a model, as `STRATEGIES` does; None for an unknown one."""
    for cls in type(strategy).__mro__:
        if cls.__name__ in STRATEGIES:
            return STRATEGIES[cls.__name__]
    return None


def _is_foreign(accelerator: Any) -> bool:
    """Whether an accelerator is not one of Lightning's own (whose root device is right)."""
    package = type(accelerator).__module__.partition(".")[0]
    return package not in LIGHTNING


def _offloads(strategy: Any) -> bool:
    """Whether a sharding strategy keeps parameters on the CPU between uses."""
    cpu_offload = getattr(strategy, "cpu_offload", None)
    if getattr(cpu_offload, "offload_params", False):
        return True
    config = getattr(strategy, "config", None)  # DeepSpeed
    if not isinstance(config, dict):
        return False
    stage = config.get("zero_optimization", {})
    return bool(stage.get("offload_param") or stage.get("offload_optimizer"))


def _keeps_parts_on_cpu(module: torch.nn.Module) -> bool:
    """Tell whether parts of parameters are on the CPU: FSDP 2 offloads module by module."""
    parameters, _ = owned_tensors(module)
    parts = (parameter for parameter in parameters if type(parameter).__name__ == "DTensor")
    return any(part.device.type == "cpu" for part in parts)
