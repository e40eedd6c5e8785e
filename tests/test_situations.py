"""Ways to train: each clean, where nothing may be said, and with a mistake in it, which is named all the same."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import EMAWeightAveraging, LearningRateFinder
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_devcheck import DeviceCheck, DeviceMismatchError, simulate_cuda
from tests.helpers.training import Clean, make_loader, make_trainer

KEPT = ("unregistered-parameter", "self.balance[0]")


class Situation(Clean):
    """A loss that every situation computes in its own way; ``mistake`` multiplies it by a parameter in a plain list."""

    def __init__(self, mistake: bool):
        super().__init__()
        self.mistake = mistake
        self.balance = [nn.Parameter(torch.ones(()))]

    def weigh(self, loss):
        return loss * self.balance[0] if self.mistake else loss

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.net(batch), batch))


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


class Compiled(Situation):
    """A compiled sub-module."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.body = torch.compile(nn.Linear(4, 4), backend="aot_eager")

    def training_step(self, batch, batch_idx):
        return self.weigh(F.mse_loss(self.body(self.net(batch)), batch))


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
    Compiled,
    OwnCallback,
)
SETTINGS = {
    "accumulation": {"accumulate_grad_batches": 2},
    "fast_dev_run": {"fast_dev_run": True},
    "overfit_batches": {"overfit_batches": 1},
    "clipping": {"gradient_clip_val": 0.5},
    "anomaly": {"detect_anomaly": True},
}


def fit(model, **kwargs):
    """Fit for four batches on the CPU, where such mistakes are mistakes too."""
    check = DeviceCheck(every_n_steps=1)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", ".*(returned `None`|passed to the optimizer|in eval mode|shuffle|.grad attr).*"
        )
        make_trainer(**{"callbacks": [check], **kwargs}).fit(model, make_loader(4))
    return check.report


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


def test_averaged_weights():
    """Averaged copies of the weights, kept elsewhere, are no mistake."""
    with simulate_cuda(devices=2):
        check = DeviceCheck(every_n_steps=1)
        kwargs = {"accelerator": "gpu", "devices": [1], "callbacks": [EMAWeightAveraging(device="cpu"), check]}
        make_trainer(**kwargs).fit(Clean(), make_loader(4))
    assert check.report.findings == ()


def test_resume(tmp_path):
    """A run that goes on from a checkpoint is quiet; the callback itself saves nothing."""
    trainer = make_trainer(callbacks=DeviceCheck())
    trainer.fit(Clean(), make_loader(2))
    path = tmp_path / "run.ckpt"
    trainer.save_checkpoint(path)
    saved = torch.load(path, weights_only=True)
    assert "DeviceCheck" not in str(saved["callbacks"])
    check = DeviceCheck()
    make_trainer(callbacks=check, max_epochs=2).fit(Clean(), make_loader(2), ckpt_path=path)
    assert check.report.findings == ()
    assert check.report.checked["steps"] == 2


def test_learning_rate_finder(tmp_path):
    """The tuner, which fits and starts over, is quiet."""

    class Tuned(Clean):
        lr = 0.01

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    check = DeviceCheck()
    finder = LearningRateFinder(num_training_steps=4, update_attr=False)
    make_trainer(callbacks=[finder, check], default_root_dir=tmp_path).fit(Tuned(), make_loader(6))
    assert check.report.findings == ()


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_no_compilation_more():
    """With the check a compiled sub-module is compiled as often as without."""

    def count(callbacks):
        torch._dynamo.reset()
        model = Compiled(mistake=False)
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        model.body = torch.compile(nn.Linear(4, 4), backend=backend)
        make_trainer(callbacks=callbacks).fit(model, make_loader(4))
        return len(graphs)

    assert count([DeviceCheck(every_n_steps=1)]) == count([]) == 1
