"""What is wrong with the training itself, wherever things are: what optimizers hold, graphs that are kept alive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from lightning_devcheck._compat import node_number, owned_tensors
from lightning_devcheck._judge.scan import unregistered
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.expectation import Expectation
from lightning_devcheck._observe.module_tree import attribute_of, spell_path
from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.rules import make_finding
from lightning_devcheck._source.files import attribute_origin, statement_at
from lightning_devcheck._source.naming import keeping_line
from lightning_devcheck._source.statements import detached

# what needs a look at all of the module or all optimizer state is done at full checks up to this batch
MAX_BATCH = 8


def inspect_training(
    trainer: Any,
    module: Any,
    expectation: Expectation,
    before: Mapping[int, str],
    *,
    batch: int,
    first_node: int,
) -> list[Finding]:
    """Judge what holds wherever things are.

    Args:
        trainer: The Trainer, whose optimizers are looked at.
        module: The LightningModule.
        expectation: Where things belong; nothing is judged where parameters are sharded.
        before: The parameters' names when the optimizers were made, by id.
        batch: The batch of this fit, counted from 1.
        first_node: The number of the first graph node of this batch.
    """
    if expectation.sharded:
        return []
    optimized = optimized_ids(trainer.optimizers, module)
    devices = set(map(str, expectation.devices))
    found = [finding for finding in replaced_parameters(before, module, optimized) if finding.device in devices]
    if batch <= MAX_BATCH:
        found += misplaced_states(trainer.optimizers, parameter_names(module))
    # with manual optimization the losses of several batches may be kept for one backward
    if 1 < batch <= MAX_BATCH and module.automatic_optimization:
        found += kept_graphs(module, first_node)
    return found


def parameter_names(module: torch.nn.Module) -> dict[int, str]:
    """The name of each parameter as typed, by the parameter's id."""
    return {id(parameter): spell_path(module, name) for name, parameter in module.named_parameters()}


def optimized_ids(optimizers: Iterable[Any], module: torch.nn.Module) -> frozenset[int]:
    """The ids of all that an optimizer holds: the Trainer's, and those that the module keeps for itself."""
    own = [value for value in vars(module).values() if isinstance(value, torch.optim.Optimizer)]
    groups = [group for optimizer in (*optimizers, *own) for group in getattr(optimizer, "param_groups", ())]
    return frozenset(id(parameter) for group in groups for parameter in group["params"])


def replaced_parameters(
    before: Mapping[int, str], module: torch.nn.Module, optimized: frozenset[int]
) -> Iterator[Finding]:
    """Parameters that an optimizer still holds and the module has no more.

    Args:
        before: The parameters' names when the optimizers were made, by id.
        module: The module that is trained.
        optimized: The ids of what the optimizers hold.
    """
    if before.keys() <= set(map(id, owned_tensors(module)[0])):
        return  # every one is the module's still: the usual case, without the names
    now = dict(module.named_parameters())
    names = {spell_path(module, name): name for name in now}
    for key, name in before.items():
        new = now.get(names.get(name, ""))
        if key in optimized and new is not None and id(new) != key and id(new) not in optimized:
            yield make_finding(
                "replaced-parameter",
                name=name,
                device=device_of(new),
                shape=tuple(new.shape),
                dtype=str(new.dtype).removeprefix("torch."),
                origin=origin_of(module, name),
            )


def misplaced_states(optimizers: Iterable[Any], names: Mapping[int, str]) -> Iterator[Finding]:
    """Optimizer state that is not where its parameter is; a step counter on the CPU is as it should be."""
    for optimizer in optimizers:
        state = getattr(optimizer, "state", None) or {}
        for parameter, values in state.items():
            if not isinstance(parameter, torch.Tensor) or not isinstance(values, dict):
                continue
            here = device_of(parameter)
            wrong = [v for v in values.values() if isinstance(v, torch.Tensor) and v.ndim and device_of(v) != here]
            if wrong:
                yield make_finding(
                    "optimizer-device",
                    name=names.get(id(parameter), "a parameter"),
                    device=device_of(wrong[0]),
                    expected=here,
                    shape=tuple(wrong[0].shape),
                    dtype=str(wrong[0].dtype).removeprefix("torch."),
                )


def kept_graphs(module: torch.nn.Module, first_node: int) -> Iterator[Finding]:
    """Tensors that the module keeps together with the graph of an earlier batch.

    Args:
        module: The module that is trained.
        first_node: The number of the first graph node of this batch.
    """
    kept = [(place.name, place.value, place.origin) for place in unregistered(module)]
    kept += [(spell_path(module, name), buffer, None) for name, buffer in module.named_buffers()]
    told: set[str] = set()
    for name, value, origin in kept:
        container = name.partition("[")[0]
        if isinstance(value, torch.Tensor) and container not in told and _is_old(value.grad_fn, first_node):
            told.add(container)
            kept_at = keeping_line(type(module), container.removeprefix("self."))
            keeping = statement_at(kept_at)
            yield make_finding(
                "kept-graph",
                name=container,
                device=device_of(value),
                origin=origin or origin_of(module, container),
                used=kept_at,
                fix="" if keeping is None else detached(keeping),
            )


def origin_of(module: torch.nn.Module, name: str) -> Origin | None:
    """The line that assigns what a name as typed begins with: the attribute of the module itself."""
    return attribute_origin(type(module), attribute_of(name))


def _is_old(node: Any, first_node: int) -> bool:
    """Whether a graph node, or one that it leads to, was made before a batch."""
    if node is None:
        return False
    numbers = [node_number(node), *(node_number(child) for child, _ in node.next_functions if child is not None)]
    return min(numbers) < first_node
