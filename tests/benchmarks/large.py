"""What a training step of a model far larger than memory takes to check, with ``values=False``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks._measure import Table


@dataclass(frozen=True)
class Size:
    """A Llama-like model: layers, width, heads, key-value heads, inner width; and the goals in seconds and GiB."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    seconds: float
    gib: float = 2.0


SIZES = {
    "8 billion": Size(32, 4096, 32, 8, 14336, 30),
    "70 billion": Size(80, 8192, 64, 8, 28672, 30),
    "405 billion": Size(126, 16384, 128, 8, 53248, 60),
}
WORDS, LENGTH = 128256, 512


class Block(nn.Module):
    """Grouped-query attention with rotary positions, and a gated feed-forward part."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = size.heads, size.kv_heads, size.width // size.heads
        self.attention_norm, self.norm = nn.RMSNorm(size.width), nn.RMSNorm(size.width)
        self.queries = nn.Linear(size.width, size.width, bias=False)
        self.keys, self.values = (nn.Linear(size.width, size.kv_heads * self.head, bias=False) for _ in range(2))
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.gate, self.up = (nn.Linear(size.width, size.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Both parts, each added to its input."""
        normed = self.attention_norm(x)
        queries = rotate(self.queries(normed).unflatten(-1, (self.heads, self.head)).transpose(1, 2), cos, sin)
        keys = rotate(self.keys(normed).unflatten(-1, (self.kv_heads, self.head)).transpose(1, 2), cos, sin)
        values = self.values(normed).unflatten(-1, (self.kv_heads, self.head)).transpose(1, 2)
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        normed = self.norm(x)
        inner: torch.Tensor = self.down(F.silu(self.gate(normed)) * self.up(normed))
        return x + inner


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn pairs of features by the position's angle."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


class Llama(pl.LightningModule):
    """A decoder of words that learns to predict the next one."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm, self.head = nn.RMSNorm(size.width), nn.Linear(size.width, WORDS, bias=False)
        self.frequencies: torch.Tensor
        half = size.width // size.heads // 2
        self.register_buffer("frequencies", 500000.0 ** (-torch.arange(half) / half))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Cross-entropy of the next word."""
        angles = torch.arange(batch.shape[1], device=self.device)[:, None] * self.frequencies
        cos, sin = (torch.cat([turn, turn], -1) for turn in (angles.cos(), angles.sin()))
        x = self.words(batch)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The usual optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def check(name: str) -> dict[str, float]:
    """Build a model and check one training step; seconds, GiB and billions of parameters."""
    import resource

    from lightning_devcheck import preflight

    torch.set_num_threads(2)
    size, built = SIZES[name], []

    def build() -> Llama:
        built.append(Llama(size))
        return built[0]

    start = time.perf_counter()
    report = preflight(build, [torch.randint(0, WORDS, (1, LENGTH))], steps=1, values=False)
    seconds = time.perf_counter() - start
    if report.findings:
        raise RuntimeError(str(report))
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    billions = sum(parameter.numel() for parameter in built[0].parameters()) / 1e9
    return {"seconds": seconds, "gib": peak_gib, "billions": billions}


def tables(quick: bool = False) -> list[Table]:
    """Time and peak memory of one checked training step, each model in a process of its own."""
    rows, goals = [], []
    for name in list(SIZES)[: 1 if quick else None]:
        code = f"import json; from tests.benchmarks.large import check; print(json.dumps(check({name!r})))"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found, size = json.loads(run.stdout.splitlines()[-1]), SIZES[name]
        met = found["seconds"] <= size.seconds and found["gib"] <= size.gib
        rows.append((f"{found['billions']:.1f} billion", f"{found['seconds']:.1f}", f"{found['gib']:.2f}"))
        goals.append(f"{name}: at most {size.seconds:g} s and {size.gib:g} GiB: {'met' if met else 'missed'}")
    columns = ("Llama-like model, parameters", "seconds", "GiB, all of the process")
    title = "One training step, AdamW's included, checked with values=False"
    return [Table(title, columns, tuple(rows), "python -m tests.benchmarks large", tuple(goals))]
