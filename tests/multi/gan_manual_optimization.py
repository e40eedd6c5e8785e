"""A GAN with gradient penalty, optimized by hand: seven device mistakes around three backward calls."""

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class Gentle(torch.autograd.Function):
    """The identity, whose gradient is smaller for the first features."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.cpu() * torch.linspace(0.5, 1, grad.shape[1])  # BUG 1: Gentle.backward
        # FIX 1: return grad * torch.linspace(0.5, 1, grad.shape[1], device=grad.device)


def ratios(like):
    """How far each sample is between a real and a made one."""
    return torch.rand(len(like), 1)  # BUG 2: ratios(real)
    # FIX 2: return torch.rand(len(like), 1, device=like.device)


class Gan(pl.LightningModule):
    """A generator, a critic and a pool of earlier fakes."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 6))
        self.critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        self.pool = torch.zeros(2, 6)  # BUG 3: self.pool
        # FIX 3: self.register_buffer("pool", torch.zeros(2, 6))

    def on_fit_start(self):
        self.dice = torch.Generator().manual_seed(5)  # BUG 4: self.dice
        # FIX 4: self.dice = torch.Generator(self.device).manual_seed(5)

    def training_step(self, real, batch_idx):
        of_generator, of_critic = self.optimizers()
        noise = torch.randn(len(real), 4, generator=self.dice, device=self.device)
        fake = self.generator(noise)

        seen = torch.cat([fake.detach(), self.pool])
        critic_loss = F.softplus(self.critic(seen)).mean() + F.softplus(-self.critic(real)).mean()
        of_critic.zero_grad()
        self.manual_backward(critic_loss)
        penalty = self.penalty(real, fake.detach())
        penalty.backward()
        of_critic.step()

        answer = self.critic(Gentle.apply(fake))
        answer.register_hook(lambda grad: grad.clamp(-1, 1).cpu())  # BUG 5: hook on answer
        # FIX 5: answer.register_hook(lambda grad: grad.clamp(-1, 1))
        wanted = torch.from_numpy(np.full((len(real), 1), 0.9, np.float32))  # BUG 6: wanted
        # FIX 6: wanted = torch.full((len(real), 1), 0.9, device=real.device)
        loss = F.binary_cross_entropy_with_logits(answer, wanted)
        of_generator.zero_grad()
        self.manual_backward(loss)
        of_generator.step()
        print("loss", critic_loss.item().hex(), penalty.item().hex(), loss.item().hex())

    def penalty(self, real, fake):
        between = torch.lerp(real, fake, ratios(real)).requires_grad_()
        answers = self.critic(between)
        seeds = torch.ones(answers.shape)  # BUG 7: seeds
        # FIX 7: seeds = torch.ones_like(answers)
        (slope,) = torch.autograd.grad(answers, between, seeds, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    def configure_optimizers(self):
        parts = (self.generator, self.critic)
        return [torch.optim.Adam(part.parameters(), lr=0.01) for part in parts]


if __name__ == "__main__":
    pl.seed_everything(0)
    loader = DataLoader(torch.randn(16, 6), batch_size=4)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, enable_model_summary=False, **quiet)
    trainer.fit(Gan(), loader)
