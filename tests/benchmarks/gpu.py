"""On a machine with a GPU, in under four minutes: ``python -m tests.benchmarks.gpu [--output FILE]``.

Kernels launched and host synchronisations of one `LossAccumulator.forward`, the check beside a real ResNet-50-sized
step, and each rule's small mistake on the real device. Absolute times are fine here: the machine is named beside them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

from lightning_devcheck import LossAccumulator, check_devices

DEVICE = torch.device("cuda", 0)


def kernels(call: Callable[[], Any]) -> int:
    """Count the CUDA kernels that one call launches."""
    call()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recording:
        call()
        torch.cuda.synchronize()
    return sum(event.count for event in recording.key_averages() if event.key.startswith("cudaLaunchKernel"))


def accumulator(terms: int) -> dict[str, Any]:
    """Kernels of one forward, and proof that it never waits for the device."""
    losses = [torch.rand((), device=DEVICE, requires_grad=True) for _ in range(terms)]
    metric = LossAccumulator(terms).to(DEVICE)
    metric(losses)
    torch.cuda.set_sync_debug_mode("error")
    try:
        metric(losses)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"terms": terms, "kernels": kernels(lambda: metric(losses)), "host_synchronisations": 0}


def block(channels: int) -> nn.Module:
    """One bottleneck of a residual network."""
    return nn.Sequential(
        nn.Conv2d(channels, channels // 4, 1, bias=False),
        nn.BatchNorm2d(channels // 4),
        nn.ReLU(),
        nn.Conv2d(channels // 4, channels // 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels // 4),
        nn.ReLU(),
        nn.Conv2d(channels // 4, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
    )


class Residual(nn.Module):
    """Sixteen bottlenecks, as many layers as ResNet-50."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 256, 7, stride=4, padding=3)
        self.blocks = nn.ModuleList(block(256) for _ in range(16))
        self.head = nn.Linear(256, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.blocks:
            x = F.relu(x + layer(x))
        return self.head(x.mean((2, 3)))


def check_beside_step(rounds: int = 30) -> dict[str, float]:
    """Median seconds of a training step and of a full check of its graph."""
    model = Residual().to(DEVICE)
    images, labels = torch.randn(32, 3, 224, 224, device=DEVICE), torch.randint(1000, (32,), device=DEVICE)
    steps, checks = [], []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = F.cross_entropy(model(images), labels)
        before = time.perf_counter()
        report = check_devices(loss, model)
        checks.append(time.perf_counter() - before)
        loss.backward()
        torch.cuda.synchronize()
        steps.append(time.perf_counter() - start - checks[-1])
        assert report.ok, str(report)
    step, check = statistics.median(steps), statistics.median(checks)
    return {"step_seconds": step, "check_seconds": check, "check_over_step": check / step}


def main() -> None:
    """Print the figures as JSON and save them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--output", type=Path, help="where to save the JSON")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device here; this script measures a real one")
    figures = {
        "device": torch.cuda.get_device_name(DEVICE),
        "torch": torch.__version__,
        "accumulator": [accumulator(terms) for terms in (3, 6, 20)],
        "check": check_beside_step(),
    }
    text = json.dumps(figures, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
