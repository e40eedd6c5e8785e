"""Small models with the graphs of real ones."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Build = Callable[[], tuple[nn.Module, Callable[[int], torch.Tensor]]]


def mlp(layers: int, width: int = 32) -> tuple[nn.Module, Callable[[int], torch.Tensor]]:
    """Linear layers with ReLU between."""
    net = nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())))
    return net, lambda batch: net(torch.randn(batch, width)).mean()


class Bottleneck(nn.Module):
    """A residual block of three convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        sizes = [(1, 0), (3, 1), (1, 0)]
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, k, padding=p, bias=False) for k, p in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the block to its input."""
        out = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            out = F.relu(norm(conv(out)))
        return x + out


class Residual(nn.Module):
    """A block of ResNet-50: three convolutions, the middle one with the stride, beside a projected input."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.inner = nn.Sequential(
            *normed(channels, width, 1, 1),
            nn.ReLU(inplace=True),
            *normed(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *normed(width, out, 1, 1),
        )
        self.beside = nn.Sequential()
        if stride != 1 or channels != out:
            self.beside = nn.Sequential(*normed(channels, out, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the block to its input."""
        return self.relu(self.inner(x) + self.beside(x))


def normed(channels: int, out: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """A convolution and its normalisation."""
    convolution = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(out)


def resnet50() -> nn.Module:
    """ResNet-50, layer by layer as torchvision has it, which need not be installed."""
    layers: list[nn.Module] = [*normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Residual(channels, width, 1 if block else stride))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def residual(blocks: int = 16, channels: int = 8) -> tuple[nn.Module, Callable[[int], torch.Tensor]]:
    """As many layers as ResNet-50: nearly every second node is a leaf."""
    net = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *(Bottleneck(channels) for _ in range(blocks)))
    return net, lambda batch: net(torch.randn(batch, 3, 8, 8)).mean()


def transformer(layers: int, width: int = 32) -> tuple[nn.Module, Callable[[int], torch.Tensor]]:
    """Encoder layers with attention and a feed-forward part."""
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
    net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    return net, lambda batch: net(torch.randn(batch, 8, width)).mean()


def dense(layers: int = 40, growth: int = 4) -> tuple[nn.Module, Callable[[int], torch.Tensor]]:
    """Every layer reads all earlier ones, as in DenseNet."""
    net = nn.ModuleList(nn.Linear(growth * (i + 1), growth) for i in range(layers))

    def loss(batch: int) -> torch.Tensor:
        features = [torch.randn(batch, growth)]
        for layer in net:
            features.append(F.relu(layer(torch.cat(features, 1))))
        return torch.cat(features, 1).mean()

    return net, loss


def recurrent(steps: int = 1000, width: int = 16) -> tuple[nn.Module, Callable[[int], torch.Tensor]]:
    """One cell over many steps: few leaves, a deep graph."""
    net = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])

    def loss(batch: int) -> torch.Tensor:
        hidden, inputs = torch.zeros(batch, width), torch.randn(steps, batch, width)
        for step in inputs:
            hidden = torch.tanh(net[0](step) + net[1](hidden))
        return hidden.mean()

    return net, loss


def chain(nodes: int) -> tuple[nn.Module, Callable[[int], torch.Tensor]]:
    """One addition after the other: the deepest graph of its size."""
    net = nn.Linear(1, 1)

    def loss(batch: int) -> torch.Tensor:
        value = net(torch.ones(1))
        for _ in range(nodes - 5):  # the layer and the mean make the others
            value = value + 1
        return value.mean()

    return net, loss


def pictured(build: Callable[..., nn.Module], size: int = 64) -> tuple[nn.Module, Callable[[int], torch.Tensor]]:
    """A model of torchvision's, on small pictures."""
    net = build(weights=None)
    return net, lambda batch: net(torch.randn(1 + batch, 3, size, size)).mean()


def _torchvision() -> dict[str, Build]:
    """ResNet-50 and DenseNet-121, where torchvision is installed."""
    if importlib.util.find_spec("torchvision") is None:
        return {}
    models = importlib.import_module("torchvision.models")
    return {
        "ResNet-50": lambda: pictured(models.resnet50),
        "DenseNet-121": lambda: pictured(models.densenet121),
    }


MODELS: dict[str, Build] = {
    "MLP, 10 layers": lambda: mlp(10),
    "MLP, 100 layers": lambda: mlp(100),
    **_torchvision(),
    "residual, 48 convolutions": residual,
    "dense, 40 layers": dense,
    "transformer, 12 layers": lambda: transformer(12),
    "transformer, 48 layers": lambda: transformer(48),
    "RNN, 1,000 steps": recurrent,
}
