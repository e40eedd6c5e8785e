"""A training step of a model far larger than memory, followed by shapes and devices only: ``values=False``."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import check_devices, simulate_cuda
from tests.benchmarks._measure import Table, goal

COMMAND = "python -m tests.benchmarks large"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a Llama: layers, width, heads, heads of keys and values, width inside, words."""

    layers: int
    width: int
    heads: int
    shared_heads: int
    inside: int
    words: int = 128_256


TINY = Sizes(2, 64, 4, 2, 128, 100)
# as published for the Llama 3 models; the goals: seconds, MB
LLAMAS = {
    "70 billion": (Sizes(80, 8192, 64, 8, 28672), 30.0, 2000.0),
    "405 billion": (Sizes(126, 16384, 128, 8, 53248), 60.0, None),
}


class Block(nn.Module):
    """Attention with shared keys and values, and a gated feed-forward part."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.sizes = sizes.width, sizes
        self.head = width // sizes.heads
        shared = sizes.shared_heads * self.head
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        outs = (width, shared, shared, width)
        self.attention = nn.ModuleList(nn.Linear(width, out, bias=False) for out in outs)
        self.gate, self.up = (nn.Linear(width, sizes.inside, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.inside, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        inner, (query, key, value, out) = self.norms[0](x), self.attention
        heads = [part(inner).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (query, key, value)]
        times = self.sizes.heads // self.sizes.shared_heads
        keys, values = (part.repeat_interleave(times, 1) for part in heads[1:])
        seen = F.scaled_dot_product_attention(heads[0], keys, values, is_causal=True)
        x = x + out(seen.transpose(1, 2).flatten(2))
        inner = self.norms[1](x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Llama(nn.Module):
    """A language model of such sizes."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.layers)))
        self.norm, self.head = nn.RMSNorm(sizes.width), nn.Linear(sizes.width, sizes.words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of the next word."""
        return self.head(self.norm(self.blocks(self.words(ids))))  # type: ignore[no-any-return]


def _check(sizes: Sizes, queue: Any) -> None:
    """Build, step and check; put parameters, seconds of the wall and of the processor, and the peak in MB."""
    torch.set_num_threads(1)
    start, used = time.perf_counter(), time.process_time()
    with simulate_cuda(values=False):
        with torch.device("cuda:1"):
            model = Llama(sizes)
            ids = torch.randint(0, 100, (1, 512))
        optimizer = torch.optim.AdamW(model.parameters())
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        report = check_devices(loss, model)
        loss.backward()
        optimizer.step()
    assert report.ok, str(report)
    peak = int(Path("/proc/self/status").read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) / 1024
    count = sum(parameter.numel() for parameter in model.parameters())
    queue.put((count, time.perf_counter() - start, time.process_time() - used, peak))


def tables(quick: bool = False) -> list[Table]:
    """Seconds and peak memory of one training step, in a process of its own."""
    if not Path("/proc/self/status").exists():
        return []
    rows, goals = [], []
    context: Any = multiprocessing.get_context("fork" if quick else "spawn")
    for name, (sizes, seconds, megabytes) in LLAMAS.items():
        queue = context.SimpleQueue()
        process = context.Process(target=_check, args=(TINY if quick else sizes, queue))
        process.start()
        count, wall, processor, peak = queue.get()
        process.join()
        rows.append((name, f"{count / 1e9:.1f}", f"{wall:.1f}", f"{processor:.1f}", f"{peak:.0f}"))
        goals.append(goal(f"{name}: under {seconds:.0f} s of its own time", min(wall, processor), seconds, form=".1f"))
        if megabytes is not None:
            goals.append(goal(f"{name}: under {megabytes:.0f} MB", peak, megabytes, form=".0f"))
    columns = ("Llama-like model", "billion parameters", "wall, s", "processor, s", "peak of the process, MB")
    title = "One training step with AdamW, checked without values: building it, forward, check, backward, optimizer"
    return [Table(title, columns, tuple(rows), COMMAND, tuple(goals))]
