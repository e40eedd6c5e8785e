"""Check a plain torch loop: one call before backward.

    python examples/plain_loop.py                   trains, says nothing
    python examples/plain_loop.py --mistake         the temperature is a plain CPU tensor that wants a gradient

It runs on a GPU where there is one, else on a simulated one.
"""

import argparse
import contextlib

import torch
from torch import nn

from lightning_devcheck import DeviceMismatchError, check_devices, simulate_cuda


class Classifier(nn.Module):
    def __init__(self, mistake):
        super().__init__()
        self.layer = nn.Linear(8, 3)
        make = torch.Tensor.requires_grad_ if mistake else nn.Parameter
        self.temperature = make(torch.tensor(1.0))

    def forward(self, x):
        return self.layer(x) / self.temperature


def train(mistake=False, steps=20):
    torch.manual_seed(0)
    model = Classifier(mistake).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    inputs = torch.randn(64, 8, device="cuda")
    targets = inputs[:, :3].argmax(dim=1)
    for step in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if step == 0:  # the loop builds the same graph each time: once is enough
            report = check_devices(loss, model)
            if not report.ok:
                raise DeviceMismatchError(report)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    with contextlib.nullcontext() if torch.cuda.is_available() else simulate_cuda(devices=1):
        print(f"loss {train(args.mistake):.3f}")


if __name__ == "__main__":
    main()
