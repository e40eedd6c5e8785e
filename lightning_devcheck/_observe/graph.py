"""The graph behind a loss: its leaves, and the edges where the device changes.

NOTE [Freeing a walked graph]
A graph node that Python has touched keeps its Python object for life, and those are freed by recursion in C: a chain
of about 42,000 walked nodes kills the process when its loss goes away (torch 2.13; an unwalked graph of any depth is
freed in a loop). So a walk touches at most `MAX_NODES` inner nodes, nearest to the loss first, and says what it did not
reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import torch

from lightning_devcheck._compat import AccumulateGrad, node_device
from lightning_devcheck._observe.devices import device_of, normalize
from lightning_devcheck._report.records import Crossing, GraphRecord, Operator, Origin, TensorRecord
from lightning_devcheck._simulate.state import active
from lightning_devcheck._source.files import user_lines

MAX_NODES = 10_000
# Lightning divides and scales the loss: the user's own line is a few nodes below
MAX_TOP = 10
# graph nodes that copy between devices; Functions written in Python are looked at as well
COPIES = {"ToCopyBackward0", "CopyBackwards", "CopySlices"}
COMPILED = "CompiledFunctionBackward"
HIDING = {"CheckpointFunctionBackward": "a reentrant checkpoint hides the parameters used inside"}
OPAQUE = {COMPILED, *HIDING}


def walk(root: Any, max_nodes: int = MAX_NODES) -> tuple[list[Any], list[Any], bool]:
    """Visit the graph from ``root`` towards the leaves, nearest first.

    Returns:
        The inner nodes, the leaf nodes, and whether all was reached.
    """
    nodes: list[Any] = [root]
    leaves: dict[Any, None] = {}  # in the order in which they were met
    seen = {None, root}
    add_node, add_seen, leaf_type = nodes.append, seen.add, AccumulateGrad
    for node in nodes:
        if len(nodes) > max_nodes:
            return nodes, list(leaves), False
        for child, _ in node.next_functions:
            if type(child) is leaf_type:
                leaves[child] = None
            elif child not in seen:
                add_seen(child)
                add_node(child)
    return nodes, list(leaves), True


def plain_graph(loss: torch.Tensor) -> tuple[int, set[int]]:
    """The number of nodes and the ids of the leaves of a graph; without leaves where it needs a closer look."""
    root = loss.grad_fn
    if root is None:
        return 0, set()
    nodes, leaves, complete = walk(root)
    kinds = set(map(type, nodes))
    opaque = not complete or any(kind.__name__ in OPAQUE for kind in kinds)
    if opaque or any(True for node in _movers(nodes, kinds) for _ in _moves(node, {})):
        return 0, set()
    return len(nodes) + len(leaves), set(map(id, map(attrgetter("variable"), leaves)))


def record_graph(loss: torch.Tensor, name_of: Callable[[torch.Tensor], tuple[str, bool]]) -> GraphRecord:
    """Walk the graph behind a loss and write down what was seen; nothing of the graph is kept.

    Args:
        loss: The loss; with or without a graph, or itself a leaf.
        name_of: Gives a leaf's name and whether the module registers it.
    """
    root = loss.grad_fn
    if root is None:
        itself = (record_tensor(loss, *name_of(loss)),) if loss.requires_grad else ()
        return GraphRecord(record_tensor(loss, "loss"), itself)
    nodes, leaves, complete = walk(root)
    movers = _movers(nodes, set(map(type, nodes)))
    users = {child: node for node in reversed(nodes) for child, _ in node.next_functions}
    hidden = {reason for kind, reason in HIDING.items() for node in nodes if type(node).__name__ == kind}
    if not complete:
        hidden.add(f"the graph goes on behind the {MAX_NODES:,} nodes nearest to the loss")
    if any(type(node).__name__ == COMPILED for node in nodes):
        hidden.add("compiled regions are one graph node each: devices inside are not seen")
    return GraphRecord(
        loss=record_tensor(loss, "loss", trace=next(filter(None, map(trace_of, nodes[:MAX_TOP])), ())),
        leaves=tuple(_leaf(leaf.variable, users[leaf], name_of) for leaf in leaves),
        crossings=tuple(crossing for node in movers for crossing in _moves(node, users)),
        num_nodes=len(nodes) + len(leaves),
        not_checked=tuple(sorted(hidden)),
    )


def _leaf(tensor: torch.Tensor, user: Any, name_of: Callable[[torch.Tensor], tuple[str, bool]]) -> TensorRecord:
    """Write a leaf down, with the operator that took it and the line of that."""
    return record_tensor(tensor, *name_of(tensor), trace=trace_of(user), operator=operator_of(user))


def record_tensor(
    tensor: torch.Tensor, name: str, registered: bool = False, trace: tuple[Origin, ...] = (), operator: str = ""
) -> TensorRecord:
    """Write a tensor down."""
    lazy = torch.nn.parameter.is_lazy(tensor)
    return TensorRecord(
        name=name,
        device=device_of(tensor),
        dtype=tensor.dtype,
        shape=None if lazy else tuple(tensor.shape),
        registered=registered,
        is_parameter=isinstance(tensor, torch.nn.Parameter),
        trace=trace,
        operator=operator,
    )


def trace_of(node: Any) -> tuple[Origin, ...]:
    """The user's lines that made a node, where anomaly mode recorded them."""
    trace = node.metadata.get("traceback_")
    return user_lines(trace) if trace else ()


def operator_of(node: Any) -> str:
    """The operator that made a node: ``mse_loss`` for ``MseLossBackward0``, ``Round`` for the user's ``Round``."""
    name, numbered = re.subn(r"Backward\d+$", "", type(node).__name__)
    if numbered:  # torch's own; a Function of the user's has no number
        return re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", name).lower()
    return "" if isinstance(node, AccumulateGrad) else name.removesuffix("Backward")


def _movers(nodes: Iterable[Any], kinds: Iterable[type]) -> Iterable[Any]:
    """The nodes that may change the device; ``kinds`` has each type of theirs once."""
    custom = torch.autograd.function.BackwardCFunction
    moving = {kind for kind in kinds if kind.__name__ in COPIES or issubclass(kind, custom)}
    return [node for node in nodes if type(node) in moving] if moving else []


def _moves(node: Any, users: Mapping[Any, Any]) -> Iterable[Crossing]:
    """The device changes at one node; ``users`` has the node that takes each node's result."""
    declared = getattr(node, "source_device", None), getattr(node, "target_device", None)
    children = [child for child, _ in node.next_functions if child is not None]
    if declared[0] is not None and declared[1] is not None:
        pairs = dict.fromkeys([declared], next(iter(children), None))
    else:
        here = node_device(node)
        pairs = {(_named(child), _named(node)): child for child in children if node_device(child) != here}
    for (source, target), child in pairs.items():
        if source is not None and target is not None and normalize(source) != normalize(target):
            ends = normalize(source), normalize(target)
            yield Crossing(*ends, type(node).__name__, trace_of(node), _around(child, node, users, *ends))


def _around(
    before: Any, node: Any, users: Mapping[Any, Any], source: torch.device, target: torch.device
) -> tuple[Operator, ...]:
    """The operators before a move, of the move, and after it."""
    after = users.get(node)
    copies = type(node).__name__ == "ToCopyBackward0" or getattr(node, "source_device", None) is not None
    return (
        *([Operator(operator_of(before), str(source))] if before is not None and operator_of(before) else []),
        Operator("to" if copies else operator_of(node)),
        *([Operator(operator_of(after), str(target))] if after is not None else []),
    )


def _named(node: Any) -> torch.device | None:
    """The device of a node's result; a simulated device is ``meta`` to the graph, whatever its index."""
    if isinstance(node, AccumulateGrad):
        return device_of(node.variable)
    device, simulation = node_device(node), active()
    if device is not None and device.type == "meta" and simulation is not None:
        return torch.device("cuda", simulation.current)
    return device
