"""The graph walk: leaves, crossings, every kind of loss, and graphs too deep to recurse."""

from __future__ import annotations

import subprocess
import sys
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import simulate_cuda
from lightning_devcheck._observe.graph import MAX_NODES, record_graph, walk


def nameless(leaf):
    return "leaf", False


def test_leaves_have_device_dtype_and_shape():
    """Every leaf that wants a gradient is recorded once, the shared ones too."""
    layer = nn.Linear(3, 2)
    graph = record_graph((layer(torch.ones(4, 3)) + layer(torch.ones(4, 3))).sum(), nameless)
    assert sorted(leaf.detail for leaf in graph.leaves) == ["float32[2, 3]", "float32[2]"]
    assert {leaf.device.type for leaf in graph.leaves} == {"cpu"}


def test_node_count_is_that_of_a_bare_walk():
    """All nodes are counted, each once."""
    loss = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))(torch.ones(1, 4)).sum()
    seen, stack = {loss.grad_fn}, [loss.grad_fn]
    while stack:
        for child, _ in stack.pop().next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)
    assert record_graph(loss, nameless).num_nodes == len(seen)


@pytest.mark.parametrize(
    "leave",
    [
        lambda x: x.mean().cpu(),
        lambda x: x.mean().to("cpu"),
        lambda x: x.cpu().mean(),
        lambda x: torch.zeros(3).index_put((torch.tensor([0]),), x.mean().cpu()[None]).sum(),
    ],
)
def test_crossing_to_the_host_is_seen(leave):
    """The edge where the graph leaves the device is recorded with both devices."""
    with simulate_cuda(2):
        loss = leave(torch.ones(2, device="cuda:1", requires_grad=True) * 2)
        crossings = {(str(c.source), str(c.target)) for c in record_graph(loss, nameless).crossings}
    assert crossings == {("cuda:1", "cpu")}


def test_operators_around_a_crossing_are_named():
    """The operator before the move, the move and the operator after it are recorded, each with its device."""
    with simulate_cuda(2):
        x = torch.ones(2, device="cuda:1", requires_grad=True)
        (crossing,) = record_graph(F.mse_loss(x, x.detach()).cpu() / 2, nameless).crossings
    assert [(one.name, one.device) for one in crossing.operators] == [
        ("mse_loss", "cuda:1"),
        ("to", ""),
        ("div", "cpu"),
    ]


def test_operator_that_used_a_leaf_is_named():
    """A leaf knows the operator that took it; one that is itself the loss has none."""
    leaf = torch.ones(2, requires_grad=True)
    assert record_graph((leaf * 2).sum(), nameless).leaves[0].operator == "mul"
    assert record_graph(leaf, nameless).leaves[0].operator == ""


def test_writing_into_a_host_vector_is_a_crossing():
    """A device value assigned into a CPU vector crosses, though nobody wrote .cpu()."""
    with simulate_cuda(2):
        torch.cuda.set_device(1)
        losses = torch.zeros(3)
        losses[0] = torch.ones(2, device="cuda", requires_grad=True).sum()
        crossings = record_graph(losses.mean(), nameless).crossings
    assert [(str(c.source), str(c.target)) for c in crossings] == [("cuda:1", "cpu")]


def test_a_dtype_change_is_no_crossing():
    """A cast on one device is not a move."""
    with simulate_cuda(2):
        loss = torch.ones(2, device="cuda:1", requires_grad=True).double().half().float().sum()
        assert record_graph(loss, nameless).crossings == ()


def subclass():
    class Mine(torch.Tensor):
        pass

    return torch.ones(2, requires_grad=True).as_subclass(Mine).sum()


def created_graph():
    x = torch.ones(2, requires_grad=True)
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return grad.pow(2).sum()


@pytest.mark.parametrize(
    ("make", "leaves"),
    [
        (lambda: torch.ones(2, requires_grad=True).sum(), 1),
        (lambda: torch.ones((), requires_grad=True), 1),
        (lambda: torch.ones(()), 0),
        (lambda: torch.ones(2, dtype=torch.complex64, requires_grad=True).sum(), 1),
        (lambda: nn.Embedding(4, 2, sparse=True)(torch.tensor([1])).sum(), 1),
        (lambda: nn.Linear(2, 2)(torch.ones(1, 2)), 2),
        (created_graph, 1),
        (subclass, 1),
    ],
    ids=["plain", "leaf", "no graph", "complex", "sparse", "not a scalar", "create_graph", "subclass"],
)
def test_every_kind_of_loss(make, leaves):
    """A loss without a graph, a leaf, complex, sparse, a subclass: the right leaves, no crash."""
    graph = record_graph(make(), nameless)
    assert len(graph.leaves) == leaves
    assert graph.not_checked == ()


def test_a_huge_graph_is_walked_to_the_budget():
    """Beyond the budget the walk stops and says so; what is near the loss is seen."""
    leaf = loss = torch.zeros((), requires_grad=True)
    near = torch.zeros((), requires_grad=True)
    for _ in range(MAX_NODES + 10):
        loss = loss + 1
    graph = record_graph(loss * near, nameless)
    assert graph.not_checked == ("the graph goes on behind the 10,000 nodes nearest to the loss",)
    assert len(graph.leaves) == 1
    assert leaf.grad is None


@pytest.mark.parametrize("thread", [False, True], ids=["main thread", "other thread"])
def test_a_million_nodes_are_walked_and_freed(thread):
    """A chain of a million nodes is walked and freed, before and after backward, without ending the process."""
    code = f"""
import threading, torch
from lightning_devcheck._observe.graph import record_graph
def run():
    for backward in (False, True):
        loss = torch.zeros((), requires_grad=True)
        for _ in range(1_000_000):
            loss = loss + 1
        assert record_graph(loss, lambda leaf: ("leaf", False)).not_checked
        if backward:
            loss.backward()
        del loss
    print("alive")
if {thread}:
    worker = threading.Thread(target=run); worker.start(); worker.join()
else:
    run()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout.strip()) == (0, "alive"), run.stderr[-500:]


def test_nothing_is_kept_alive():
    """A record keeps neither loss nor leaf alive."""
    leaf = torch.ones(2, requires_grad=True)
    loss = leaf.sum()
    graph = record_graph(loss, nameless)
    gone = weakref.ref(loss), weakref.ref(leaf)
    del loss, leaf
    assert [reference() for reference in gone] == [None, None]
    assert graph.num_nodes == 2


def test_a_reentrant_checkpoint_is_listed():
    """What a reentrant checkpoint hides is said."""
    layer = nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True)
    loss = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).sum()
    assert record_graph(loss, nameless).not_checked == ("a reentrant checkpoint hides the parameters used inside",)


def test_walk_gives_each_leaf_once():
    """A leaf that several operators take is met once, and nothing is left out."""
    leaf = torch.ones(2, requires_grad=True)
    _, leaves, complete = walk((leaf * 2 + leaf.exp() * leaf).sum().grad_fn)
    assert [found.variable is leaf for found in leaves] == [True]
    assert complete


def test_the_operator_of_a_leaf_is_the_one_nearest_to_the_loss():
    """Of several operators that take a leaf, the one that the walk meets first is named."""
    leaf = torch.ones(2, requires_grad=True)
    assert record_graph((leaf.exp() * leaf).sum(), nameless).leaves[0].operator == "mul"
