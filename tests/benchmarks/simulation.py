"""What a training step costs on a simulated device, against the same step on the CPU."""

from __future__ import annotations

import copy
import statistics
import time
from typing import Any

import torch
from torch import nn

from lightning_devcheck import simulate_cuda
from tests.benchmarks._measure import Table

# name: layers, width, heads, batch, sequence, and the ratio to stay below
TRANSFORMERS = {
    "transformer, 4 layers of width 64": (4, 64, 4, 8, 16, 4.0),
    "transformer, 12 layers of width 768": (12, 768, 12, 2, 64, 1.2),
}
RESNET, RESNET_GOAL = "ResNet-50, batch 4, 112 x 112", 1.3


def _transformer(layers: int, width: int, heads: int, batch: int, length: int) -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), torch.randn(batch, length, width)


def _step(model: nn.Module, inputs: torch.Tensor, optimizer: Any) -> float:
    start = time.perf_counter()
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    return time.perf_counter() - start


def _ratios(model: nn.Module, inputs: torch.Tensor, rounds: int) -> list[float]:
    """Steps alternate between the CPU and a simulated device; the first round warms up."""
    plain = (model, inputs, torch.optim.SGD(model.parameters(), 0.01))
    with simulate_cuda():
        moved = copy.deepcopy(model).to("cuda:1")
        simulated = (moved, inputs.to("cuda:1"), torch.optim.SGD(moved.parameters(), 0.01))
    found = []
    for _ in range(rounds + 1):
        base = _step(*plain)
        with simulate_cuda():
            found.append(_step(*simulated) / base)
    return found[1:]


def tables(quick: bool = False) -> list[Table]:
    """The ratio of a step's time for a tiny and a large transformer and, with torchvision, a ResNet-50."""
    rounds = 3 if quick else 20
    builds: dict[str, tuple[Any, float]] = {
        name: (lambda sizes=sizes: _transformer(*sizes), goal) for name, (*sizes, goal) in TRANSFORMERS.items()
    }
    try:
        from torchvision.models import resnet50
    except ImportError:
        pass  # the CPU environment may lack it; its row is left out
    else:
        builds[RESNET] = (lambda: (resnet50(weights=None), torch.randn(4, 3, 112, 112)), RESNET_GOAL)
    rows, goals = [], []
    for name, (build, goal) in builds.items():
        torch.manual_seed(0)
        ratios = _ratios(*build(), rounds)
        low, median, high = statistics.quantiles(ratios, n=4)
        rows.append((name, f"{median:.2f} ({low:.2f}-{high:.2f})"))
        goals.append(f"{name}: {median:.2f}, at most {goal}: {'met' if median <= goal else 'missed'}")
    command = "python -m tests.benchmarks simulation"
    return [Table("A simulated training step", ("model", "times the CPU step"), tuple(rows), command, tuple(goals))]
