"""Ten mistakes, what torch says about each and what the report says: the last section of the two error pages.

``python -m tests.helpers.beside`` writes the section of each page anew.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from lightning_devcheck import explain, simulate_cuda

DOCS = Path(__file__).parents[2] / "docs"
HEADER = """\
import functools

import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MeanMetric


"""


@dataclass(frozen=True)
class Case:
    """A mistake.

    Attributes:
        english: Its heading.
        chinese: Its heading on the Chinese page.
        source: A file with a ``Model`` whose ``training_step`` takes a tensor.
    """

    english: str
    chinese: str
    source: str


CASES = (
    Case(
        "A running sum that starts on the CPU",
        "求和从 CPU 上的张量开始",
        """
        class Model(nn.Module):
            def training_step(self, x):
                loss = torch.zeros(1)
                for scale in (1, 2, 4):
                    loss += F.mse_loss(x[:, ::scale], x[:, ::scale]) / scale
                return loss
        """,
    ),
    Case(
        "Class weights in a plain attribute",
        "类别权重放在普通属性里",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 4)
                self.class_weights = torch.tensor([1.0, 2.0, 0.5, 1.0])

            def training_step(self, x):
                return F.cross_entropy(self.net(x), x.argmax(1), weight=self.class_weights)
        """,
    ),
    Case(
        "Layers in a plain list",
        "层放在普通列表里",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 4)
                self.heads = [nn.Linear(4, 1) for _ in range(3)]

            def training_step(self, x):
                return sum(head(self.net(x)).mean() for head in self.heads)
        """,
    ),
    Case(
        "A metric in a plain dict",
        "指标放在普通字典里",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 4)
                self.metrics = {"loss": MeanMetric()}

            def training_step(self, x):
                self.metrics["loss"].update(self.net(x).mean())
        """,
    ),
    Case(
        "A move whose result is thrown away",
        "移动的结果没有接住",
        """
        class Model(nn.Module):
            def training_step(self, x):
                mask = torch.ones(2, 1)
                mask.to(x.device)
                return (x * mask).mean()
        """,
    ),
    Case(
        "A device written out in the code",
        "写死的设备名",
        """
        class Model(nn.Module):
            def training_step(self, x):
                target = torch.zeros(2, 4, device="cuda:0")
                return F.mse_loss(x, target)
        """,
    ),
    Case(
        "A device index into a CPU tensor",
        "用 GPU 上的下标索引 CPU 张量",
        """
        class Model(nn.Module):
            def training_step(self, x):
                marks = torch.zeros(4)
                marks[x[0].topk(2).indices] = 1.0
                return marks.sum()
        """,
    ),
    Case(
        "A custom backward",
        "自定义的 backward",
        """
        class Round(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.shape = x.shape
                return x.round()

            @staticmethod
            def backward(ctx, grad):
                return torch.full(ctx.shape, 0.1)


        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 4)

            def training_step(self, x):
                return Round.apply(self.net(x)).mean()
        """,
    ),
    Case(
        "A generator",
        "随机数生成器",
        """
        class Model(nn.Module):
            def training_step(self, x):
                source = torch.Generator().manual_seed(1)
                return x + torch.randn(x.shape, generator=source, device=x.device)
        """,
    ),
    Case(
        "A tensor inside a functools.partial",
        "functools.partial 里的张量",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 4)
                self.loss = functools.partial(F.cross_entropy, weight=torch.ones(4))

            def training_step(self, x):
                return self.loss(self.net(x), x.argmax(1))
        """,
    ),
)


def both(case: Case, folder: Path) -> tuple[str, str]:
    """Make the mistake in a file ``train.py`` of an empty folder; returns torch's message and the report."""
    script = folder / "train.py"
    script.write_text(HEADER + textwrap.dedent(case.source).lstrip(), encoding="utf-8")
    with _working_in(folder), simulate_cuda(devices=2):
        torch.manual_seed(0)
        torch.cuda.set_device(1)
        model = runpy.run_path(str(script))["Model"]().to("cuda:1")
        try:
            model.training_step(torch.rand(2, 4, device="cuda:1")).backward()
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}", str(explain(error, model))
    raise AssertionError(f"nothing is wrong with: {case.english}")


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def entry(heading: str, message: str, report: str) -> str:
    """One mistake as it stands on a page."""
    said = textwrap.fill(message, 110, break_long_words=False, break_on_hyphens=False)
    return f"### {heading}\n\ntorch:\n\n```text\n{said}\n```\n\nlightning_devcheck:\n\n```text\n{report}\n```\n"


def main() -> None:
    """Write the section of both pages anew."""
    results = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:  # sources are cached by file name
            results.append((case, *both(case, Path(folder).resolve())))
    for page, language in (("errors.md", "english"), ("errors.zh-CN.md", "chinese")):
        text = (DOCS / page).read_text(encoding="utf-8")
        start = text.index(f"### {getattr(CASES[0], language)}\n")
        entries = "\n".join(entry(getattr(case, language), message, report) for case, message, report in results)
        (DOCS / page).write_text(text[:start] + entries, encoding="utf-8")


if __name__ == "__main__":
    main()
