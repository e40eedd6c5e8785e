"""`check_devices` in a program's own loop: it knows the program's variables and lines."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import check_devices, simulate_cuda


@pytest.fixture(autouse=True)
def _devices():
    with simulate_cuda(devices=2):
        yield


def test_line_that_moved_the_loss():
    """The loss has the name of its variable and the line that moved it, put right."""
    model = nn.Linear(4, 3).to("cuda")
    x = torch.ones(2, 4, device="cuda")
    loss = model(x).mean().cpu()  # moved
    (finding,) = check_devices(loss, model).findings
    assert (finding.rule, finding.name) == ("loss-device", "loss")
    assert finding.origin.line == "loss = model(x).mean().cpu()  # moved"
    assert finding.fix == "loss = model(x).mean()"


def test_vector_that_the_losses_were_written_into():
    """A loss that was written into a CPU vector comes from the line that made the vector."""
    device = torch.device("cuda", 0)
    model = nn.Linear(4, 3).to(device)
    losses = torch.zeros(2)
    losses[0] = model(torch.ones(2, 4, device=device)).mean()
    (finding,) = check_devices(losses.sum(), model).findings
    assert finding.rule == "loss-device"
    total = losses.sum()
    (finding,) = check_devices(total, model).findings
    assert (finding.name, finding.fix) == ("losses", "losses = torch.zeros(2, device=device)")


class Loop:
    """A loop of a program's own, with a leaf that nothing moves."""

    def __init__(self, model, device):
        self.model, self.device = model.to(device), device
        self.temperature = torch.tensor(1.5, requires_grad=True)

    def step(self, x, temperature):
        """Check one loss."""
        loss = (self.model(x.to(self.device)) / temperature).mean()
        return check_devices(loss, self.model)


def test_leaf_in_an_attribute_of_the_loop():
    """A leaf that an object of the program holds is named as its attribute, with its line."""
    loop = Loop(nn.Linear(4, 3), torch.device("cuda", 0))
    (finding,) = loop.step(torch.ones(2, 4), loop.temperature).findings
    assert (finding.rule, finding.name) == ("leaf-device", "self.temperature")
    assert finding.origin.line == "self.temperature = torch.tensor(1.5, requires_grad=True)"


def test_leaf_in_a_variable():
    """A leaf in a variable is named; its fix is its own line with a device."""
    model = nn.Linear(4, 3).to("cuda")
    scale = torch.ones((), requires_grad=True)
    loss = (model(torch.ones(2, 4, device="cuda")) * scale).mean()
    (finding,) = check_devices(loss, model).findings
    assert (finding.name, finding.fix) == (
        "scale",
        "scale = torch.ones((), requires_grad=True, device=next(model.parameters()).device)",
    )


def test_program_that_is_right():
    """Leaves of the program's own on the right device, and a scheduled number on the CPU, are no findings."""
    model, scale = nn.Linear(4, 3).to("cuda"), torch.ones((), device="cuda", requires_grad=True)
    weight = torch.tensor(0.5)
    logits = model(torch.ones(2, 4, device="cuda")) * scale
    loss = weight * F.cross_entropy(logits, torch.zeros(2, dtype=torch.long, device="cuda"))
    assert not check_devices(loss, model).findings


def run_module(model):
    """A function with the word module in its name."""
    losses = torch.zeros(2)
    losses[0] = model(torch.ones(2, 4, device=model.weight.device)).mean()
    total = losses.sum()
    return check_devices(total, model)


def test_function_that_is_called_after_a_module():
    """The function of a line is compared by its whole name: its own variables say the device."""
    (finding,) = run_module(nn.Linear(4, 3).to("cuda")).findings
    assert finding.fix == "losses = torch.zeros(2, device=next(model.parameters()).device)"
