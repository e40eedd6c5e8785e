"""The graph behind a loss: its leaves, and the edges where the device changes.

NOTE [Freeing a walked graph] A graph node that Python has touched keeps its Python object for life,
and those are freed by recursion in C: a chain of about 42,000 walked nodes kills the process when
its loss goes away (torch 2.13; an unwalked graph of any depth is freed in a loop). So a walk
touches at most `MAX_NODES` inner nodes, nearest to the loss first, and says what it did not reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch

from lightning_devcheck._compat import AccumulateGrad, node_device
from lightning_devcheck._observe.devices import device_of, normalize
from lightning_devcheck._report.records import Crossing, GraphRecord, Operator, Origin, TensorRecord
from lightning_devcheck._simulate.state import active
from lightning_devcheck._simulate.tensor.places import decided_line
from lightning_devcheck._source.files import user_lines

MAX_NODES = 10_000
# Lightning divides and scales the loss: the user's own line is a few nodes below
MAX_TOP = 10
# graph nodes that may copy between devices; Functions written in Python are looked at as well
COPYING = {"ToCopyBackward0", "CopyBackwards", "CopySlices"}
# graph nodes that hide others, and what is not seen for that
HIDING = {
    "CheckpointFunctionBackward": "a reentrant checkpoint hides the parameters used inside",
}
COMPILED = "compiled regions are one graph node each: devices inside are not seen"
HIDING["CompiledFunctionBackward"] = COMPILED
Name = Callable[[torch.Tensor], tuple[str, bool]]
Users = Mapping[Any, Any]


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
    """Count a graph's nodes and list its leaves' ids; no leaves where it needs a closer look."""
    root = loss.grad_fn
    if root is None:
        return 0, set()
    nodes, leaves, complete = walk(root)
    kinds = set(map(type, nodes))
    if not complete or _hidden(kinds):
        return 0, set()
    if any(True for _ in _crossings(nodes, kinds, {})):
        return 0, set()
    tensors = map(attrgetter("variable"), leaves)
    return len(nodes) + len(leaves), set(map(id, tensors))


def record_graph(loss: torch.Tensor, name_of: Name) -> GraphRecord:
    """Walk the graph behind a loss and write down what was seen; nothing of the graph is kept.

    Args:
        loss: The loss; with or without a graph, or itself a leaf.
        name_of: Gives a leaf's name and whether the module registers it.
    """
    root = loss.grad_fn
    if root is None:
        itself = []
        if loss.requires_grad:
            itself.append(record_tensor(loss, *name_of(loss)))
        return GraphRecord(record_tensor(loss, "loss"), tuple(itself))
    nodes, leaves, complete = walk(root)
    kinds = set(map(type, nodes))
    hidden = _hidden(kinds)
    if not complete:
        hidden.add(f"the graph goes on behind the {MAX_NODES:,} nodes nearest to the loss")
    users = {child: node for node in reversed(nodes) for child, _ in node.next_functions}
    traces = filter(None, map(trace_of, nodes[:MAX_TOP]))
    record = record_tensor(loss, "loss", trace=next(traces, ()))
    records = []
    for leaf in leaves:
        tensor, user = leaf.variable, users[leaf]
        named = name_of(tensor)
        record_of_leaf = record_tensor(tensor, *named, trace_of(user), operator_of(user))
        strays = _strays(record_of_leaf, user)
        records.append(replace(record_of_leaf, strays=True) if strays else record_of_leaf)
    crossings = tuple(_crossings(nodes, kinds, users))
    num_nodes = len(nodes) + len(leaves)
    return GraphRecord(record, tuple(records), crossings, num_nodes, tuple(sorted(hidden)))


def _hidden(kinds: Iterable[type]) -> set[str]:
    """Say what nodes of these types hide."""
    reasons = (HIDING.get(kind.__name__) for kind in kinds)
    return set(filter(None, reasons))


def record_tensor(
    tensor: torch.Tensor,
    name: str,
    registered: bool = False,
    trace: tuple[Origin, ...] = (),
    operator: str = "",
) -> TensorRecord:
    """Write a tensor down."""
    shape = None
    if not torch.nn.parameter.is_lazy(tensor):
        shape = tuple(tensor.shape)
    own = registered, isinstance(tensor, torch.nn.Parameter)
    decided = decided_line(tensor)
    device = device_of(tensor)
    return TensorRecord(name, device, tensor.dtype, shape, *own, trace, operator, decided)


def trace_of(node: Any) -> tuple[Origin, ...]:
    """The user's lines that made a node, where anomaly mode recorded them."""
    trace = node.metadata.get("traceback_")
    return user_lines(trace) if trace else ()


def operator_of(node: Any) -> str:
    """Name the operator that made a node, ``mse_loss`` for ``MseLossBackward0``.

    A Function of the user's has its own name.
    """
    name, numbered = re.subn(r"Backward\d+$", "", type(node).__name__)
    if numbered:  # torch's own; a Function of the user's has no number
        return re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", name).lower()
    if isinstance(node, AccumulateGrad):
        return ""
    return name.removesuffix("Backward")


def _crossings(nodes: Iterable[Any], kinds: Iterable[type], users: Users) -> Iterator[Crossing]:
    """Find where the device changes.

    Args:
        nodes: The nodes.
        kinds: Each type of theirs once.
        users: The node that takes each node's result.
    """
    moving = set(filter(_may_move, kinds))
    if moving:
        for node in nodes:
            if type(node) in moving:
                yield from _crossings_at(node, users)


def _may_move(kind: type) -> bool:
    custom = torch.autograd.function.BackwardCFunction
    return kind.__name__ in COPYING or issubclass(kind, custom)


def _crossings_at(node: Any, users: Users) -> Iterator[Crossing]:
    source, target = getattr(node, "source_device", None), getattr(node, "target_device", None)
    children = [child for child, _ in node.next_functions if child is not None]
    if source is not None and target is not None:
        moves = {(source, target): next(iter(children), None)}
    else:
        here = node_device(node)
        moves = {}
        for child in children:
            if node_device(child) != here:
                moves[_result_device(child), _result_device(node)] = child
    for (source, target), child in moves.items():
        if source is None or target is None:
            continue
        source, target = normalize(source), normalize(target)
        if source != target:
            kind = type(node).__name__
            around = _around(child, node, users.get(node), source, target)
            yield Crossing(source, target, kind, trace_of(node), around)


def _strays(leaf: TensorRecord, user: Any) -> bool:
    """Whether the operator that took a leaf worked on another kind of device, and moved nothing."""
    if _may_move(type(user)):
        return False
    worked_on = _result_device(user)
    return worked_on is not None and worked_on.type != leaf.device.type


def _around(
    before: Any,
    node: Any,
    after: Any,
    source: torch.device,
    target: torch.device,
) -> tuple[Operator, ...]:
    """Name the operators before a move, of the move, and after it."""
    found = []
    name = "" if before is None else operator_of(before)
    if name:
        found.append(Operator(name, str(source)))
    name = operator_of(node)
    if name == "to_copy" or getattr(node, "source_device", None) is not None:
        name = "to"
    found.append(Operator(name))
    if after is not None:
        name = operator_of(after)
        found.append(Operator(name, str(target)))
    return tuple(found)


def _result_device(node: Any) -> torch.device | None:
    """Find where a node's result is; to the graph every simulated device is ``meta``."""
    if isinstance(node, AccumulateGrad):
        return device_of(node.variable)
    device, simulation = node_device(node), active()
    if device is not None and device.type == "meta" and simulation is not None:
        return torch.device("cuda", simulation.current)
    return device
