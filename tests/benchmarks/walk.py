"""The graph walk and the full check, beside a bare loop over ``next_functions``, on fresh graphs."""

from __future__ import annotations

from typing import Any

import torch

from lightning_devcheck import check_devices
from lightning_devcheck._graph import walk
from tests.benchmarks._measure import Ratio, Table, compare
from tests.benchmarks._models import MODELS

COMMAND = "python -m tests.benchmarks walk"


def bare(loss: torch.Tensor) -> int:
    """The least that visits every node once."""
    root = loss.grad_fn
    seen, stack = {root}, [root]
    while stack:
        for child, _ in stack.pop().next_functions:  # type: ignore[union-attr]
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)
    return len(seen)


def tables(quick: bool = False) -> list[Table]:
    """Ratios to the bare loop, model by model."""
    rounds = 2 if quick else 40
    rows, goals = [], []
    for name, build in MODELS.items():
        module, loss = build()
        contenders: dict[str, Any] = {
            "bare": bare,
            "walk": lambda value: walk(value.grad_fn),
            "full check": lambda value, module=module: check_devices(value, module),
            "backward": lambda value: value.backward(),
        }
        ratios = compare(contenders, setup=lambda loss=loss: loss(1), rounds=rounds)
        nodes, leaves, _ = walk(loss(1).grad_fn)
        share = len(leaves) / (len(leaves) + len(nodes))
        rows.append(_row(name, len(nodes) + len(leaves), share, ratios))
        limit = 1.6 if share > 0.4 else 1.3
        met = "met" if ratios["walk"].median <= limit else "missed"
        goals.append(f"{name}: walk at most {limit} of the bare loop: {ratios['walk'].median:.2f}, {met}")
    columns = ("graph", "nodes", "leaves", "bare, µs", "walk / bare", "full check / bare", "backward / bare")
    return [Table("Walk and full check against a bare loop, fresh graphs", columns, tuple(rows), COMMAND, tuple(goals))]


def _row(name: str, nodes: int, share: float, ratios: dict[str, Ratio]) -> tuple[str, ...]:
    bare_us = f"{1e6 * ratios['bare'].seconds:.0f}"
    return (
        name,
        f"{nodes:,}",
        f"{share:.0%}",
        bare_us,
        *(str(ratios[key]) for key in ("walk", "full check", "backward")),
    )
