"""What optimizers hold, and which tensors are kept together with the graph of an earlier batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lightning_devcheck._compat import node_number
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.graph import record_tensor
from lightning_devcheck._observe.module_tree import OwnTensors
from lightning_devcheck._observe.unregistered import unregistered
from lightning_devcheck._report.records import Origin, TensorRecord
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.queries import attribute_origin, keeping_line, outside_origin


@dataclass(frozen=True, slots=True)
class Replaced:
    """A parameter in the place of one that an optimizer still holds.

    Attributes:
        new: The new parameter, under the name that both have.
        origin: The line that assigns it.
    """

    new: TensorRecord
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class MovedState:
    """A tensor in an optimizer's state that is not where its parameter is.

    Attributes:
        state: The tensor, under its parameter's name.
        expected: Where the parameter is.
    """

    state: TensorRecord
    expected: torch.device


@dataclass(frozen=True, slots=True)
class KeptGraph:
    """A tensor that the module keeps with the graph of an earlier batch.

    Attributes:
        name: What holds it, as typed.
        device: Where it is.
        origin: The line that makes what holds it.
        kept_at: The line that puts it there.
    """

    name: str
    device: torch.device
    origin: Origin | None
    kept_at: Origin | None


def parameter_names(module: torch.nn.Module) -> dict[int, str]:
    """The name of each parameter as typed, by the parameter's id."""
    own = OwnTensors(module)
    ids = map(id, own.parameters)
    return {key: own.names[key] for key in ids}


def optimized_ids(optimizers: Iterable[Any], module: torch.nn.Module) -> frozenset[int]:
    """The ids of all that an optimizer holds: the Trainer's, and those that the module keeps."""
    found: set[int] = set()
    kept = vars(module).values()
    own = (value for value in kept if isinstance(value, torch.optim.Optimizer))
    for optimizer in (*optimizers, *own):
        for group in getattr(optimizer, "param_groups", ()):
            found.update(map(id, group["params"]))
    return frozenset(found)


def replaced_parameters(
    before: Mapping[int, str],
    own: OwnTensors,
    optimized: frozenset[int],
) -> Iterator[Replaced]:
    """Parameters in the place of others that an optimizer still holds.

    Args:
        before: The parameters' names when the optimizers were made, by id.
        own: The tensors of the module that is trained.
        optimized: The ids of what the optimizers hold.
    """
    ids = list(map(id, own.parameters))
    if before.keys() <= set(ids):
        return  # every one is the module's still: the usual case, without the names
    names = map(own.names.get, ids)
    now = dict(zip(names, own.parameters, strict=True))
    for key, name in before.items():
        new = now.get(name)
        if key not in optimized or new is None:
            continue
        if id(new) != key and id(new) not in optimized:
            root = type(own.module)
            origin = outside_origin(root, Path.parse(name)) or _origin_of(own.module, name)
            yield Replaced(record_tensor(new, name), origin)


def moved_states(optimizers: Iterable[Any], own: OwnTensors) -> Iterator[MovedState]:
    """Optimizer state away from its parameter; a step counter on the CPU is as it should be."""
    for optimizer in optimizers:
        states = getattr(optimizer, "state", None) or {}
        for parameter, values in states.items():
            if not isinstance(parameter, torch.Tensor) or not isinstance(values, dict):
                continue
            here = device_of(parameter)
            for value in values.values():
                if not isinstance(value, torch.Tensor) or not value.ndim:
                    continue
                if device_of(value) != here:
                    name = own.names.get(id(parameter), "a parameter")
                    yield MovedState(record_tensor(value, name), here)
                    break


def kept_graphs(own: OwnTensors, first_node: int) -> Iterator[KeptGraph]:
    """Tensors that the module keeps together with the graph of an earlier batch.

    Args:
        own: The tensors of the module that is trained.
        first_node: The number of the first graph node of this batch.
    """
    module = own.module
    told: set[str] = set()
    for name, value, origin in _kept(own):
        path = Path.parse(name).container
        container = str(path)
        if container in told or not isinstance(value, torch.Tensor):
            continue
        if _is_old(value.grad_fn, first_node):
            told.add(container)
            kept_at = keeping_line(type(module), path)
            if len(path.links) == 1 or origin is None:
                origin = _origin_of(module, container)
            yield KeptGraph(container, device_of(value), origin, kept_at)


def _kept(own: OwnTensors) -> Iterator[tuple[str, Any, Origin | None]]:
    """What a module keeps that may have a graph: name, value, and the line where that is known."""
    for place in unregistered(own.module):
        yield place.name, place.value, place.made
    for buffer in own.buffers:
        if buffer.grad_fn is not None:
            yield own.names[id(buffer)], buffer, None


def _origin_of(module: torch.nn.Module, name: str) -> Origin | None:
    """The line that assigns the attribute of the module that a name as typed begins with."""
    return attribute_origin(type(module), Path.parse(name).attribute)


def _is_old(node: Any, first_node: int) -> bool:
    """Whether a graph node, or one that it leads to, was made before a batch."""
    if node is None:
        return False
    if node_number(node) < first_node:
        return True
    children = [child for child, _ in node.next_functions if child is not None]
    return any(node_number(child) < first_node for child in children)
