"""Ways to train: each clean, where nothing may be said, and with a mistake in it, which is named all the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_devcheck import DeviceCheck, DeviceMismatchError
from tests.helpers.situations import KEPT, Situation, fit


class TwoOptimizers(Situation):
    """Manual optimization with two optimizers, as a GAN has them."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.automatic_optimization = False
        self.critic = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        for optimizer, loss in ((first, lambda: self.critic(self.net(batch).detach())), (second, self.fool(batch))):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(self.weigh(loss().mean()))
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def fool(self, batch):
        return lambda: -self.critic(self.net(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.critic.parameters(), 0.1), torch.optim.SGD(self.net.parameters(), 0.1)


class Closure(Situation):
    """LBFGS, which calls the step several times a batch."""

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.net.parameters(), max_iter=3)


class Checkpointed(Situation):
    """Gradient checkpointing that shows the parameters inside."""

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(checkpoint(self.net[4], self.net[:4](batch), use_reentrant=False), batch))


class Reentrant(Situation):
    """Gradient checkpointing that hides the parameters inside."""

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(checkpoint(self.net[4], self.net[:4](batch), use_reentrant=True), batch))


class Penalty(Situation):
    """A gradient penalty: a graph of a graph."""

    def training_step(self, batch, batch_idx):
        batch = batch.requires_grad_(True)
        output = self.net(batch)
        (grad,) = torch.autograd.grad(output.sum(), batch, create_graph=True)
        return self.weigh(F.mse_loss(output, batch.detach()) + grad.pow(2).mean())


class Frozen(Situation):
    """A frozen base with a trained head, as PEFT has it."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.net.requires_grad_(False)
        self.head = nn.Linear(4, 4)

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.head(self.net(batch)), batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.head.parameters(), 0.1)


class Materialized(Situation):
    """A model built in configure_model."""

    def configure_model(self):
        if not hasattr(self, "late"):
            self.late = nn.Linear(4, 4)

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.late(self.net(batch)), batch))


class SometimesNothing(Situation):
    """A step that returns None for some batches."""

    def training_step(self, batch, batch_idx):
        return None if batch_idx == 1 else super().training_step(batch, batch_idx)


class Tied(Situation):
    """Two layers with the same weight."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.first, self.last = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.last.weight = self.first.weight

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.last(self.net(self.first(batch))), batch))


class LazyLayer(Situation):
    """A layer whose parameters get their shapes in the first forward."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.lazy = nn.LazyLinear(4)

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.lazy(self.net(batch)), batch))


class Meta(Situation):
    """A layer that is built without memory and gets some in configure_model."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.large = nn.Linear(4, 4, device="meta")

    def configure_model(self):
        if self.large.weight.is_meta:
            self.large.to_empty(device="cpu")
            self.large.reset_parameters()

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.large(self.net(batch)), batch))


class Saliency(Situation):
    """The gradient of the loss with respect to the input, which is a leaf, beside the training itself."""

    def training_step(self, batch, batch_idx):
        batch = batch.requires_grad_(True)
        loss = F.mse_loss(self.net(batch), batch.detach())
        (saliency,) = torch.autograd.grad(loss, batch, retain_graph=True)
        self.most_salient = saliency.abs().max()
        return self.weigh(loss)


class Sparse(Situation):
    """An embedding with sparse gradients."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.embedding = nn.Embedding(10, 4, sparse=True)

    def training_step(self, batch, batch_idx):
        rows = self.embedding(torch.arange(len(batch), device=batch.device))
        return self.weigh(F.mse_loss(self.net(batch) + rows, batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class LowRank(Frozen):
    """A frozen layer with a trained correction of low rank, kept in a ParameterDict, as PEFT has it."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.rank = nn.ParameterDict({"a": torch.zeros(4, 1), "b": torch.ones(1, 4)})

    def training_step(self, batch, batch_idx):
        output = self.net(batch) + batch @ self.rank["a"] @ self.rank["b"]
        return self.weigh(F.mse_loss(self.head(output), batch))

    def configure_optimizers(self):
        return torch.optim.SGD([*self.head.parameters(), *self.rank.values()], 0.1)


class OwnCallback(Situation):
    """A DeviceCheck that the module brings along."""

    def configure_callbacks(self):
        return [DeviceCheck(every_n_steps=1)]


SITUATIONS = (
    TwoOptimizers,
    Closure,
    Checkpointed,
    Reentrant,
    Penalty,
    Frozen,
    Materialized,
    SometimesNothing,
    Tied,
    LazyLayer,
    Meta,
    Saliency,
    Sparse,
    LowRank,
    OwnCallback,
)
SETTINGS = {
    "accumulation": {"accumulate_grad_batches": 2},
    "barebones": {"barebones": True},
    "fast_dev_run": {"fast_dev_run": True},
    "overfit_batches": {"overfit_batches": 1},
    "clipping": {"gradient_clip_val": 0.5},
    "anomaly": {"detect_anomaly": True},
}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda kind: kind.__name__)
def test_clean(situation):
    """Nothing is said."""
    assert fit(situation(mistake=False)).findings == ()


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda kind: kind.__name__)
def test_mistake(situation):
    """The mistake is named."""
    with pytest.raises(DeviceMismatchError) as info:
        fit(situation(mistake=True))
    assert KEPT in {(finding.rule, finding.name) for finding in info.value.report.errors}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_settings_of_the_trainer(settings):
    """Under each setting of the Trainer a clean model is quiet and the mistake is named."""
    assert fit(Situation(mistake=False), **settings).findings == ()
    with pytest.raises(DeviceMismatchError, match=r"self.balance\[0\] is an nn.Parameter"):
        fit(Situation(mistake=True), **settings)
    assert not torch.is_anomaly_enabled()
