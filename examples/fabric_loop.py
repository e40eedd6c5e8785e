"""Check a Fabric loop: one call before `fabric.backward`.

    python examples/fabric_loop.py                  trains, says nothing
    python examples/fabric_loop.py --mistake        the terms of the loss are collected with .cpu()

It runs on a GPU where there is one, else on a simulated one.
"""

import argparse
import contextlib

import torch
from lightning_fabric import Fabric
from torch import nn

from lightning_devcheck import check_devices, simulate_cuda


def train(mistake=False, steps=20):
    torch.manual_seed(0)
    fabric = Fabric(accelerator="gpu", devices=1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    inputs = torch.randn(64, 8)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs[:, :2] ** 2), batch_size=16)
    loader = fabric.setup_dataloaders(loader)
    seen = 0
    for _ in range(steps // len(loader)):
        for x, y in loader:
            terms = [nn.functional.mse_loss(a, b) for a, b in zip(model(x).unbind(1), y.unbind(1), strict=True)]
            loss = sum(term.cpu() for term in terms) if mistake else sum(terms)
            seen += 1
            if seen & (seen - 1) == 0:  # steps 1, 2, 4, 8, …
                report = check_devices(loss, model, expected=fabric.device)
                if not report.ok:
                    report.show()
                    return None
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    with contextlib.nullcontext() if torch.cuda.is_available() else simulate_cuda(devices=1):
        loss = train(args.mistake)
    raise SystemExit("stopped before backward" if loss is None else print(f"loss {loss:.3f}"))


if __name__ == "__main__":
    main()
