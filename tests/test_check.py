"""`check_devices` in plain loops."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchmetrics import MeanMetric

from lightning_devcheck import check_devices, simulate_cuda
from lightning_devcheck._compat import owned_tensors
from lightning_devcheck._observe.devices import devices_of


def test_a_clean_loop_is_ok():
    """A loss where its module is gives a report that is ok and says what was looked at."""
    layer = nn.Linear(2, 1)
    report = check_devices(layer(torch.ones(3, 2)).mean(), layer)
    assert report.ok
    assert (report.checked["tensors"], report.checked["graph_nodes"]) == (5, 5)


def test_expected_devices_are_learned_from_the_parameters():
    """Without ``expected`` the loss belongs where the parameters are."""
    with simulate_cuda(2):
        layer = nn.Linear(2, 1).to("cuda:1")
        loss = layer(torch.ones(3, 2, device="cuda:1")).mean()
        assert check_devices(loss, layer).ok
        (finding,) = check_devices(loss.cpu(), layer).findings
    assert (finding.rule, finding.device, finding.expected) == ("loss-device", "cpu", "cuda:1")


@pytest.mark.parametrize("expected", ["cuda:1", torch.device("cuda", 1), ["cuda:1"], ["cpu", "cuda:1"]], ids=str)
def test_expected_devices_can_be_named(expected):
    """``expected`` takes a string, a device, or several of them."""
    with simulate_cuda(2):
        layer = nn.Linear(2, 1).to("cuda:1")
        assert check_devices(layer(torch.ones(3, 2, device="cuda:1")).mean(), layer, expected=expected).ok


def test_another_device_than_expected():
    """Everything on the wrong GPU is named: parameters and loss."""
    with simulate_cuda(2):
        layer = nn.Linear(2, 1).to("cuda:0")
        report = check_devices(layer(torch.ones(3, 2, device="cuda:0")).mean(), layer, expected="cuda:1")
    assert {(f.rule, f.name) for f in report.findings} == {
        ("wrong-rank-device", "self.weight"),
        ("wrong-rank-device", "loss"),
    }


def test_model_parallel_is_right():
    """A module on two devices with explicit moves is fine, its loss on either."""
    with simulate_cuda(2):
        model = nn.ModuleList([nn.Linear(2, 2).to("cuda:0"), nn.Linear(2, 1).to("cuda:1")])
        hidden = model[0](torch.ones(3, 2, device="cuda:0")).to("cuda:1")
        report = check_devices(model[1](hidden).mean(), model)
    assert report.ok
    assert report.not_checked == ("the parameters are on 2 devices: taken as model parallel, each of them is right",)


def test_a_critic_outside_the_module_is_no_mistake():
    """In a plain loop a loss may go through another module that is trained elsewhere."""
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    assert check_devices(critic(generator(torch.ones(3, 2))).mean(), generator).ok


def test_an_unregistered_layer_of_the_module_is():
    """A layer in a plain list of the module itself is a mistake in a plain loop too."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(2, 2)
            self.heads = [nn.Linear(2, 1)]

        def forward(self, x):
            return self.heads[0](self.body(x))

    net = Net()
    report = check_devices(net(torch.ones(3, 2)).mean(), net)
    (finding,) = report.findings
    assert finding.what == "self.heads holds 2 parameters in the loss that the module does not register"
    assert {other.name for other in finding.others} == {"self.heads[0].weight", "self.heads[0].bias"}
    assert finding.shape is None  # the two differ
    assert {finding.rule for finding in report.findings} == {"unregistered-parameter"}


def test_a_parameter_that_was_never_materialized():
    """A parameter on the meta device is named, though the loss never met it."""
    model = nn.ModuleDict({"body": nn.Linear(2, 1), "head": nn.Linear(2, 1, device="meta")})
    report = check_devices(model["body"](torch.ones(3, 2)).mean(), model)
    (finding,) = report.findings
    assert (finding.rule, finding.name) == ("meta-parameter", 'self["head"]')
    assert finding.what == 'self["head"] is on meta: it was never materialised'


def test_a_module_without_parameters():
    """Without a parameter there is nothing to compare with, and the report says so."""
    report = check_devices(torch.ones(2, requires_grad=True).sum(), nn.ReLU())
    assert report.ok
    assert report.not_checked == ("the module has no materialized parameter: no device to expect",)


@pytest.mark.parametrize(
    ("loss", "module", "message"),
    [
        (
            3.5,
            nn.Linear(1, 1),
            r"check_devices\(loss=3.5\): loss is a float; pass the tensor you call .backward\(\) on",
        ),
        (torch.ones(()), "model", r"check_devices\(module='model'\): module is a str; a torch.nn.Module is needed"),
    ],
    ids=["loss", "module"],
)
def test_wrong_arguments(loss, module, message):
    """A wrong argument is named with its value and what is needed."""
    with pytest.raises(TypeError, match=message):
        check_devices(loss, module)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: x.sum(),
        lambda x: x.sum().detach(),
        lambda x: x.to(torch.complex64).sum(),
        lambda x: x,
    ],
    ids=["scalar", "no graph", "complex", "not a scalar"],
)
def test_every_kind_of_loss_gets_an_answer(loss):
    """A loss of any kind on the model's device is ok."""
    layer = nn.Linear(2, 2)
    assert check_devices(loss(layer(torch.ones(1, 2))), layer).ok


def _shared():
    block = nn.Linear(2, 2)
    return nn.ModuleList([block, block, nn.Linear(2, 2, bias=False)])


def _tied():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    return net


@pytest.mark.parametrize(
    "module",
    [
        nn.BatchNorm1d(3),
        _shared(),
        _tied(),
        torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        nn.Sequential(nn.BatchNorm1d(3, affine=False), MeanMetric()),
        torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))),
    ],
    ids=["batch norm", "shared", "tied", "parametrized", "metric", "scripted"],
)
def test_owned_tensors_are_those_torch_lists(module):
    """Reading the module tree directly gives what parameters() and buffers() give, in their order."""
    parameters, buffers = owned_tensors(module)
    assert [*dict.fromkeys(map(id, parameters))] == [id(tensor) for tensor in module.parameters()]
    assert [*dict.fromkeys(map(id, buffers))] == [id(tensor) for tensor in module.buffers()]


def test_devices_of_many_tensors_are_those_of_each():
    """Simulated tensors among plain ones are seen, and plain ones give one device."""
    plain = [torch.ones(1), nn.Parameter(torch.ones(1))]
    with simulate_cuda(2):
        assert devices_of([*plain, torch.ones(1, device="cuda:1")]) == {torch.device("cpu"), torch.device("cuda", 1)}
    assert devices_of(plain) == {torch.device("cpu")}
    assert devices_of([]) == set()
