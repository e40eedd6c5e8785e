"""A loop with Fabric: gradients accumulated, two optimizers, an L-BFGS closure."""

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Mixture(nn.Module):
    """Experts and a gate."""

    def __init__(self):
        super().__init__()
        self.experts = [nn.Linear(4, 3) for _ in range(2)]  # BUG 1: self.experts[0].weight | model.experts[0].weight
        # FIX 1: self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(2))
        self.gate = nn.Linear(4, 2)

    def forward(self, x):
        chances = self.gate(x).softmax(1)
        load = torch.zeros(2)  # BUG 2: load
        # FIX 2: load = torch.zeros(2, device=x.device)
        load += chances.sum(0)
        out = torch.stack([expert(x) for expert in self.experts], 1)
        return (out * chances[..., None]).sum(1), load.var()


def main():
    """Train the gate first, the experts after it."""
    fabric = Fabric(accelerator="gpu", devices=1)
    fabric.launch()
    torch.manual_seed(0)
    model = Mixture()
    parameters = [*model.gate.parameters(), *(weight for expert in model.experts for weight in expert.parameters())]
    optimizer = torch.optim.Adamax(parameters, lr=0.05)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 3)), batch_size=4))
    smooth = torch.ones(3)  # BUG 3: smooth
    # FIX 3: smooth = torch.ones(3, device=fabric.device)
    history = []
    for number, (x, y) in enumerate(loader):
        guess, load = model(x)
        per_output = F.huber_loss(guess, y, reduction="none").mean(0)
        smooth = smooth.lerp(per_output.detach(), 0.2)
        loss = per_output.sum() + 0.1 * load
        fabric.backward(loss)
        told = loss.detach()
        if number == 2:
            told = told.cpu()  # BUG 4: history[2]
            # FIX 4: pass
        history.append(told)
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
        print("loss", loss.item().hex(), smooth.sum().item().hex())
    level = torch.nn.Parameter(torch.zeros(1))  # BUG 5: level
    # FIX 5: level = torch.nn.Parameter(torch.zeros(1, device=fabric.device))
    last = torch.optim.LBFGS([level], lr=0.5, max_iter=3)

    def closure():
        last.zero_grad()
        value = (x.mean(0) - level).square().sum()
        value.backward()
        return value

    last.step(closure)
    print("epoch", torch.stack(history).sum().item().hex(), level.item().hex())


if __name__ == "__main__":
    main()
