"""Losses and layers of torch itself train on a simulated device, and end with the CPU's values."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lightning_devcheck import simulate_cuda


def floats(*shape):
    """Random numbers."""
    return torch.randn(*shape)


def signs(*shape):
    """Random signs."""
    return torch.randint(0, 2, shape) * 2.0 - 1


LOSSES = {
    nn.L1Loss(): lambda: (floats(4, 3),),
    nn.MSELoss(): lambda: (floats(4, 3),),
    nn.SmoothL1Loss(): lambda: (floats(4, 3),),
    nn.HuberLoss(): lambda: (floats(4, 3),),
    nn.CrossEntropyLoss(weight=torch.ones(3), label_smoothing=0.1): lambda: (torch.randint(0, 3, (4,)),),
    nn.NLLLoss(): lambda: (torch.randint(0, 3, (4,)),),
    nn.PoissonNLLLoss(full=True): lambda: (floats(4, 3).abs(),),
    nn.GaussianNLLLoss(): lambda: (floats(4, 3), floats(4, 3).abs()),
    nn.KLDivLoss(reduction="batchmean"): lambda: (floats(4, 3).softmax(-1),),
    nn.BCEWithLogitsLoss(pos_weight=torch.ones(3)): lambda: (floats(4, 3).sigmoid(),),
    nn.SoftMarginLoss(): lambda: (signs(4, 3),),
    nn.HingeEmbeddingLoss(): lambda: (signs(4, 3),),
    nn.MultiLabelMarginLoss(): lambda: (torch.tensor([[0, 2, -1]] * 4),),
    nn.MultiLabelSoftMarginLoss(): lambda: (floats(4, 3).sigmoid(),),
    nn.MultiMarginLoss(): lambda: (torch.randint(0, 3, (4,)),),
    nn.MarginRankingLoss(): lambda: (floats(4, 3), signs(4, 3)),
    nn.CosineEmbeddingLoss(): lambda: (floats(4, 3), signs(4)),
    nn.TripletMarginLoss(): lambda: (floats(4, 3), floats(4, 3)),
    nn.AdaptiveLogSoftmaxWithLoss(3, 6, [2, 4], div_value=1.0): lambda: (torch.randint(0, 6, (4,)),),
}
LAYERS = {
    nn.Conv1d(3, 4, 3, padding="same"): (2, 3, 8),
    nn.ConvTranspose2d(3, 4, 3): (2, 3, 8, 8),
    nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU(), nn.AdaptiveMaxPool2d(2)): (2, 3, 8, 8),
    nn.Sequential(nn.Unfold(2), nn.GroupNorm(3, 12), nn.Dropout(), nn.InstanceNorm1d(12)): (2, 3, 8, 8),
    nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GLU(), nn.Softmax(-1)): (2, 5, 3),
    nn.TransformerEncoderLayer(4, 2, 8): (5, 2, 4),
    nn.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.5): (5, 2, 3),
    nn.GRU(3, 4, batch_first=True): (2, 5, 3),
    nn.Sequential(nn.Upsample(scale_factor=2, mode="bicubic"), nn.PixelUnshuffle(2), nn.Conv2d(12, 1, 1)): (2, 3, 4, 4),
}


def train(module, inputs, rest, device):
    """Two steps; the loss and the module's numbers after each, on the CPU."""
    torch.manual_seed(1)
    module, rest = copy.deepcopy(module).to(device), [tensor.to(device) for tensor in rest]
    inputs = inputs.clone().to(device).requires_grad_()
    optimizer, seen = torch.optim.SGD([inputs, *module.parameters()], 0.1), []
    for _ in range(2):
        optimizer.zero_grad()
        out = module(inputs, *rest)
        while isinstance(out, tuple):
            out = out[-1] if out[-1] is not None and not isinstance(out[-1], tuple) and out[-1].ndim == 0 else out[0]
        out.square().mean().backward()
        optimizer.step()
        seen += [tensor.detach().cpu().clone() for tensor in (out, inputs, *module.state_dict().values())]
    return seen


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_losses(loss):
    """Every loss of torch gives the CPU's values on a device."""
    inputs, rest = floats(4, 3), LOSSES[loss]()
    expected = train(loss, inputs, rest, "cpu")
    with simulate_cuda():
        found = train(loss, inputs, rest, "cuda:1")
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_layers(layer):
    """Layers give the CPU's values on a device, recurrent ones up to rounding: the CPU fuses them."""
    inputs = floats(*LAYERS[layer])
    expected = train(layer, inputs, [], "cpu")
    with simulate_cuda():
        found = train(layer, inputs, [], "cuda:1")
    torch.testing.assert_close(found, expected)
