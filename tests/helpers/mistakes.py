"""Models with one mistake each, for ``cuda:1`` of two devices; each says which rule names what."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.training import Clean


class CpuLoss(Clean):
    expected = frozenset({("loss-device", "terms")})

    def training_step(self, batch, batch_idx):
        terms = [F.mse_loss(self.net(batch), batch).cpu() for _ in range(2)]  # BUG
        return sum(terms)


class HostVector(Clean):
    expected = frozenset({("loss-device", "losses")})

    def training_step(self, batch, batch_idx):
        losses = torch.zeros(2)  # BUG
        losses[0] = F.mse_loss(self.net(batch), batch)
        return losses.mean()


class PartMovedAway(Clean):
    expected = frozenset({("parameter-device", "self.extra")})

    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(4, 4)

    def on_train_start(self):
        self.extra.cpu()  # BUG


class LossOnFirstDevice(Clean):
    expected = frozenset({("wrong-rank-device", "loss")})

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch), batch).to("cuda:0")  # BUG


class ParametersInList(Clean):
    expected = frozenset({("unregistered-parameter", "self.balance[0]")})

    def __init__(self):
        super().__init__()
        self.balance = [nn.Parameter(torch.zeros(()))]  # BUG

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch), batch) * torch.exp(self.balance[0])


class LeafAttribute(Clean):
    expected = frozenset({("leaf-device", "self.temperature")})

    def __init__(self):
        super().__init__()
        self.temperature = torch.tensor(0.5, requires_grad=True)  # BUG

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch) / self.temperature, batch)


class LateScalar(Clean):
    expected = frozenset({("parameter-device", "self.scale")})

    def on_train_start(self):
        self.scale = nn.Parameter(torch.ones(()))  # BUG

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch), batch) * self.scale


class LateLayer(Clean):
    expected = frozenset({("unoptimized-parameter", "self.head")})

    def on_train_start(self):
        self.head = nn.Linear(4, 4, device=self.device)  # BUG

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.head(self.net(batch)), batch)


class ReplacedParameter(Clean):
    expected = frozenset({("replaced-parameter", "self.scale")})

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(4))

    def on_train_start(self):
        self.scale = nn.Parameter(torch.ones(4, device=self.device))  # BUG

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch * self.scale), batch)


class KeptLosses(Clean):
    expected = frozenset({("kept-graph", "self.history")})
    fix = "self.history.append(loss.detach())"

    def __init__(self):
        super().__init__()
        self.history = []  # BUG

    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self.net(batch), batch)
        self.history.append(loss)
        return loss


class RunningSum(Clean):
    expected = frozenset({("kept-graph", "self.total")})
    fix = "self.total = (self.total + loss).detach()"

    def __init__(self):
        super().__init__()
        self.total = 0.0

    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self.net(batch), batch)
        self.total = self.total + loss  # BUG
        return loss


class StateLeftBehind(Clean):
    expected = frozenset({("optimizer-device", "self.net[0].weight")})

    def on_train_start(self):
        weight = self.net[0].weight
        state = {"step": torch.ones(()), "exp_avg": torch.zeros(8, 4), "exp_avg_sq": torch.zeros(8, 4)}
        self.optimizers().optimizer.state[weight] = state  # BUG


class NoPath(Clean):
    expected = frozenset({("loss-device", "loss"), ("detached-loss", "loss")})

    def training_step(self, batch, batch_idx):
        output = self.net(batch)
        if batch_idx == 0:
            return torch.zeros(1, requires_grad=True)  # BUG
        return F.mse_loss(output, batch)


class ScalarBufferMovedAway(Clean):
    expected = frozenset({("replaced-parameter", "self.scale")})

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def on_train_start(self):
        self.scale = torch.ones(())  # BUG

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch), batch) * self.scale


class RoundTrip(Clean):
    expected = frozenset({("device-round-trip", "hidden")})

    def training_step(self, batch, batch_idx):
        hidden = torch.softmax(self.net(batch).cpu(), -1)  # BUG
        return F.mse_loss(hidden.to(batch.device), batch)


class Rebuilt(Clean):
    expected = frozenset({("detached-loss", "loss")})

    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self.net(batch), batch)
        return torch.tensor(loss.item(), requires_grad=True, device=self.device)  # BUG


class LeftOut(Clean):
    expected = frozenset({("unoptimized-parameter", "self.extra.weight")})

    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(4, 4, bias=False)

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.extra(self.net(batch)), batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1)  # BUG


MISTAKES = (
    PartMovedAway,
    CpuLoss,
    HostVector,
    LossOnFirstDevice,
    ParametersInList,
    LeafAttribute,
    LateScalar,
    LateLayer,
    ReplacedParameter,
    NoPath,
    ScalarBufferMovedAway,
    RoundTrip,
    Rebuilt,
    LeftOut,
)


# seen from the second batch on
KEEPING = (KeptLosses, RunningSum)


class ScalarConstant(Clean):
    """A 0-dim CPU constant beside device tensors."""

    def training_step(self, batch, batch_idx):
        return torch.tensor(0.5) * F.mse_loss(self.net(batch), batch) + torch.tensor(1.0)


class CpuIndices(Clean):
    """CPU indices on a device tensor."""

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.net(batch)[torch.tensor([0])], batch[torch.tensor([0])])


class FrozenTeacher(Clean):
    """A frozen teacher that stays on the CPU and never meets the graph."""

    def __init__(self):
        super().__init__()
        self.teacher = nn.Linear(4, 4).requires_grad_(False)

    def on_fit_start(self):
        self.teacher.cpu()

    def training_step(self, batch, batch_idx):
        target = self.teacher(batch.cpu()).to(batch.device)
        return F.mse_loss(self.net(batch), target)


class TwoStages(Clean):
    """Model parallel: the last layer is on the host on purpose, with explicit moves both ways."""

    def on_fit_start(self):
        self.net[4].cpu()

    def training_step(self, batch, batch_idx):
        hidden = self.net[:4](batch).cpu()
        return F.mse_loss(self.net[4](hidden).to(batch.device), batch)


class OwnOptimizer(Clean):
    """Parameters that an optimizer of the module's own holds, in manual optimization."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def on_fit_start(self):
        self.own = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def training_step(self, batch, batch_idx):
        self.own.zero_grad()
        self.manual_backward(F.mse_loss(self.net(batch), batch))
        self.own.step()

    def configure_optimizers(self):
        return []


class KeptValues(Clean):
    """Losses kept without their graphs, and this batch's output with it."""

    def __init__(self):
        super().__init__()
        self.history = []

    def training_step(self, batch, batch_idx):
        self.output = self.net(batch)
        loss = F.mse_loss(self.output, batch)
        self.history.append(loss.detach())
        return loss


class Saliency(Clean):
    """An input that wants a gradient."""

    def training_step(self, batch, batch_idx):
        batch.requires_grad_(True)
        loss = self.net(batch).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, batch, create_graph=True)
        return loss + grad.pow(2).mean()


class UnusedBranch(Clean):
    """Parameters that this loss does not reach."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(4, 4)


class Shared(Clean):
    """One parameter under two names."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.second(self.first(self.net(batch))), batch)


class Builder(Clean):
    """A plain list that was only used to build a Sequential."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 8), nn.Linear(8, 4)]
        self.net = nn.Sequential(*self.layers)


class Adapter(Clean):
    """A frozen base with a trained adapter, as PEFT has it."""

    def __init__(self):
        super().__init__()
        self.net.requires_grad_(False)
        self.adapter = nn.Linear(4, 4)

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.adapter(self.net(batch)), batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.adapter.parameters(), lr=0.1)


class Lazy(Clean):
    """A lazy layer that gets its shape in the first forward."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 4))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class SparseTable(Clean):
    """A sparse embedding gradient."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4, sparse=True)

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.table(torch.tensor([1, 2], device=self.device)), batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


CLEAN = (
    Clean,
    ScalarConstant,
    CpuIndices,
    FrozenTeacher,
    TwoStages,
    OwnOptimizer,
    KeptValues,
    Saliency,
    UnusedBranch,
    Shared,
    Builder,
    Adapter,
    SparseTable,
)
