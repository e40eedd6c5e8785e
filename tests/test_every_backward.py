"""Every backward in a simulation is looked at, whoever calls it: a plain loop, manual optimization, Fabric."""

from __future__ import annotations

import gc
import weakref

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_devcheck import preflight, simulate_cuda
from lightning_devcheck._report.report import merge_reports
from lightning_devcheck._run.backwards import MAX_LINES, current_watch, watching_backwards
from lightning_devcheck._run.recorder import recording
from lightning_devcheck._run.spool import saved
from lightning_devcheck._simulate.state import running


@pytest.fixture
def watched(tmp_path):
    """Run a function on two simulated devices, the second of which is the current one, and give the report."""

    def run(function, *args):
        with simulate_cuda(2), watching_backwards(tmp_path), recording(tmp_path):
            torch.cuda.set_device(1)
            function(*args)
            current_watch().save()
        return merge_reports(saved(tmp_path))

    return run


def rules(report):
    """The rule, name and device of each finding."""
    return {(finding.rule, finding.name, finding.device) for finding in report.findings}


def small(device="cuda"):
    """A small model on a device, and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


# --- what is found


def test_a_loss_on_the_cpu(watched):
    """A loss that ends on the CPU is named as in the loop, with the line that moved it there."""

    def train():
        model, optimizer = small()
        for _ in range(3):
            total = model(torch.randn(2, 4, device="cuda")).mean()
            on_host = total.cpu()
            optimizer.zero_grad()
            on_host.backward()
            optimizer.step()

    report = watched(train)
    assert rules(report) == {("loss-device", "on_host", "cpu")}
    (finding,) = report.findings
    assert finding.expected == "cuda:1"
    assert finding.origin.line == "on_host = total.cpu()"
    assert finding.decided == finding.origin
    assert finding.count == 3


def test_a_leaf_on_the_cpu(watched):
    """A 0-dim leaf that torch lets through is told once, with the line that made it."""

    def train():
        model, optimizer = small()
        factor = torch.tensor(2.0, requires_grad=True)
        for _ in range(3):
            loss = model(torch.randn(2, 4, device="cuda")).mean() * factor
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    report = watched(train)
    assert rules(report) == {("leaf-device", "factor", "cpu")}
    assert report.findings[0].origin.line == "factor = torch.tensor(2.0, requires_grad=True)"
    assert "self.device" not in report.findings[0].fix


class Scaled(nn.Module):
    """A model with a scale that may be elsewhere, and a parameter in a list."""

    def __init__(self, *, in_list=False):
        super().__init__()
        self.body = nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.extra = [nn.Parameter(torch.ones(1, device="cuda"))] if in_list else []

    def forward(self, x):
        out = self.body(x) * self.scale
        return out * self.extra[0] if self.extra else out


def test_a_parameter_on_another_device(watched):
    """A parameter away from the others is named by the variable that holds the model, and no Trainer is spoken of."""

    def train(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            loss = net(torch.randn(2, 4, device="cuda")).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def main():
        model = Scaled()
        model.body.cuda()
        train(model)

    report = watched(main)
    assert rules(report) == {("parameter-device", "net.scale", "cpu")}
    assert "Lightning" not in str(report)


def test_a_parameter_and_a_loss_on_the_cpu_do_not_hide_each_other(watched):
    """A parameter on the CPU does not make the CPU right for the loss."""

    def main():
        model = Scaled()
        model.body.cuda()
        for _ in range(2):
            loss = model(torch.randn(2, 4, device="cuda")).mean().cpu()
            loss.backward()

    assert rules(watched(main)) == {("parameter-device", "model.scale", "cpu"), ("loss-device", "loss", "cpu")}


def test_a_parameter_in_a_list(watched):
    """A parameter that its module does not register, and that no optimizer holds, has its class's line."""

    def main():
        model = Scaled(in_list=True).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 4, device="cuda")).mean().backward()
            optimizer.step()

    report = watched(main)
    assert rules(report) == {("unregistered-parameter", "model.extra[0]", "cuda:1")}
    assert "self.extra = [" in report.findings[0].origin.line


def test_a_parameter_in_no_optimizer(watched):
    """What gets a gradient in a second backward, has not changed, and is in no optimizer, is not trained."""

    def main():
        model, _ = small()
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 4, device="cuda")).mean().backward()
            optimizer.step()

    report = watched(main)
    assert rules(report) == {("unoptimized-parameter", "model[2]", "cuda:1")} or rules(report) == {
        ("unoptimized-parameter", "model[2].weight", "cuda:1"),
        ("unoptimized-parameter", "model[2].bias", "cuda:1"),
    }
    assert "configure_optimizers" not in str(report)


def test_a_loss_without_a_graph(watched):
    """What torch refuses is a finding with the line that gave the loss its name."""

    def step(model, x):
        out = model(x)
        error = out.detach().mean()
        print(error.shape)
        return error

    def main():
        model, _ = small()
        value = step(model, torch.randn(2, 4, device="cuda"))
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.autograd.backward([value])

    (finding,) = watched(main).findings
    assert (finding.rule, finding.name, finding.severity) == ("detached-loss", "value", "error")
    assert finding.what == "value has no graph: backward fails, and nothing is trained"
    assert finding.origin.line == 'value = step(model, torch.randn(2, 4, device="cuda"))'
    assert finding.used.line == "torch.autograd.backward([value])"


def test_a_loss_made_anew(watched):
    """A loss that is a leaf of its own runs through and trains nothing."""

    def main():
        model, optimizer = small()
        for _ in range(2):
            loss = model(torch.randn(2, 4, device="cuda")).mean()
            loss = torch.tensor(loss.item(), device="cuda", requires_grad=True)
            loss.backward()
            optimizer.step()

    (finding,) = watched(main).findings
    assert (finding.rule, finding.name, finding.severity) == ("detached-loss", "loss", "warning")
    assert finding.origin.line.startswith("loss = torch.tensor(")


@pytest.mark.parametrize("call", ["backward", "grad", "two"])
def test_whoever_calls_the_engine(watched, call):
    """`torch.autograd.backward` and `grad`, and one call for two losses: each is looked at and named."""

    def main():
        model, _ = small()
        first = model(torch.randn(2, 4, device="cuda")).mean()
        second = first.cpu()
        match call:
            case "backward":
                torch.autograd.backward(second)
            case "grad":
                torch.autograd.grad(second, list(model.parameters()))
            case "two":
                torch.autograd.backward([first, second])

    assert rules(watched(main)) == {("loss-device", "second", "cpu")}


def test_one_cause_is_told_once(watched):
    """A leaf that an operator has refused is not told again by the backward that meets it."""

    def main():
        model, optimizer = small()
        bias = torch.zeros(1, requires_grad=True)
        for _ in range(3):
            loss = (model(torch.randn(2, 4, device="cuda")) + bias).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    report = watched(main)
    (finding,) = report.findings
    assert (finding.name, finding.device) == ("bias", "cpu")


def test_a_model_that_nobody_moved(watched):
    """The model is wrong where it is, so the loss is not told to belong there: one finding."""

    def main():
        model, optimizer = small("cpu")
        for _ in range(3):
            loss = model(torch.randn(2, 4, device="cuda")).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert rules(watched(main)) == {("parameter-device", "model[0].weight", "cpu")}


def test_a_loss_that_reaches_what_was_refused_only(watched):
    """A closure whose only leaf is on the CPU: that leaf is told, not the loss that met it."""

    def main():
        target = torch.ones(2, device="cuda")
        level = nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.LBFGS([level], max_iter=3)

        def closure():
            optimizer.zero_grad()
            value = (target - level).square().sum()
            value.backward()
            return value

        optimizer.step(closure)

    report = watched(main)
    assert [finding.name for finding in report.findings] == ["level"]


class Manual(pl.LightningModule):
    """Manual optimization that calls backward in a way of its own."""

    def __init__(self, call):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Linear(4, 1)
        self.call = call

    def training_step(self, batch, batch_idx):
        loss = self.net(batch).mean()
        wrong = loss.cpu()
        optimizer = self.optimizers()
        optimizer.zero_grad()
        match self.call:
            case "plain":
                wrong.backward()
            case "manual":
                self.manual_backward(wrong)
            case "both":
                self.manual_backward(wrong, retain_graph=True)
                wrong.backward()
            case "right":
                loss.backward()
        optimizer.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(("call", "count"), [("plain", 1), ("manual", 1), ("both", 1), ("right", 0)])
def test_manual_optimization(call, count):
    """A plain backward in a training step is looked at like `manual_backward`; one cause is one finding."""
    report = preflight(lambda: Manual(call), torch.randn(4, 2, 4))
    found = [finding for finding in report.findings if finding.severity != "note"]
    assert len(found) == count
    assert {(finding.rule, finding.name) for finding in found} <= {("loss-device", "wrong")}


class Cut(pl.LightningModule):
    """A training step whose loss has no graph."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        out = self.net(batch)
        loss = (out.detach() ** 2).mean()
        return {"loss": loss}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_trainers_loss_without_a_graph():
    """`preflight` reports a loss that torch refuses, with the line of the training step, and does not raise."""
    (finding,) = preflight(Cut, torch.randn(4, 2, 4)).findings
    assert (finding.rule, finding.name, finding.severity) == ("detached-loss", "loss", "error")
    assert finding.origin.line == "loss = (out.detach() ** 2).mean()"


def test_a_trainers_own_backward_is_looked_at_once():
    """What `DeviceCheck` has looked at counts once."""

    class Right(Cut):
        def training_step(self, batch, batch_idx):
            return self.net(batch).mean()

    report = preflight(Right, torch.randn(4, 2, 4))
    assert report.ok
    assert "backwards" not in report.checked
    assert report.checked["steps"] == 2


# --- what is right


def gan():
    """Two models, three ways back, a gradient penalty."""
    gen, disc = nn.Linear(2, 4).to("cuda:0"), nn.Linear(4, 1).to("cuda:0")
    opt_g, opt_d = torch.optim.Adam(gen.parameters()), torch.optim.Adam(disc.parameters())
    for _ in range(3):
        real = torch.randn(3, 4, device="cuda:0")
        fake = gen(torch.randn(3, 2, device="cuda:0"))
        mix = (real + fake.detach()).requires_grad_()
        slope = torch.autograd.grad(disc(mix).pow(2).sum(), mix, create_graph=True)[0]
        d_loss = disc(fake.detach()).mean() - disc(real).mean() + (slope.norm(dim=1) - 1).pow(2).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = -disc(fake).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()


def logging_on_the_host():
    """Losses are copied for a log, and not for backward."""
    model, optimizer = small("cuda:0")
    log = []
    for _ in range(3):
        loss = model(torch.randn(2, 4, device="cuda:0")).mean()
        log += [loss.item(), loss.cpu(), loss.detach().cpu()]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def all_on_the_cpu():
    """A program that does not use the devices."""
    model, optimizer = small("cpu")
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).mean().backward()
        optimizer.step()


def split_by_hand():
    """A model on two devices, moved between by its own code, with a part on the CPU."""
    table, body = nn.Embedding(9, 4), nn.Linear(4, 8).to("cuda:0")
    head = nn.Linear(8, 1).to("cuda:1")
    optimizer = torch.optim.SGD([*table.parameters(), *body.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        hidden = body(table(torch.tensor([1, 2])).to("cuda:0"))
        optimizer.zero_grad()
        head(hidden.to("cuda:1")).mean().backward()
        optimizer.step()


def optimized_input():
    """An image is trained, the model is frozen; and an attack takes the gradient of its input."""
    model, _ = small()
    model.requires_grad_(False)
    image = torch.zeros(2, 4, device="cuda", requires_grad=True)
    optimizer = torch.optim.LBFGS([image])

    def closure():
        optimizer.zero_grad()
        loss = model(image).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    x = torch.randn(2, 4, device="cuda", requires_grad=True)
    model(x).mean().backward()


def other_ways():
    """A scaler, autocast, a checkpoint, gradients by hand, vectors, transforms, accumulated gradients."""
    model, optimizer = small()
    scaler = torch.amp.GradScaler("cuda")
    x = torch.randn(2, 4, device="cuda")
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).mean()
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    checkpoint(model, x.requires_grad_(), use_reentrant=True).mean().backward()
    out = model(x)
    out.backward(torch.ones_like(out))
    torch.autograd.functional.jacobian(lambda value: model(value).sum(0), x)
    torch.func.grad(lambda value: model(value).mean())(x.detach())
    half = model[0](x)
    cut = half.detach().requires_grad_()
    model[2](model[1](cut)).mean().backward()
    half.backward(cut.grad)


def updated_by_hand():
    """A parameter that no optimizer holds and that the program changes itself."""
    model, _ = small()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(2, 4, device="cuda")).mean().backward()
        optimizer.step()
        with torch.no_grad():
            for parameter in model[2].parameters():
                parameter.add_(parameter.grad, alpha=-0.1)


def calibrated_on_the_cpu():
    """After training a small fit on the CPU, of its own."""
    model, optimizer = small()
    loss = model(torch.randn(2, 4, device="cuda")).mean()
    loss.backward()
    optimizer.step()
    logits = model(torch.randn(8, 4, device="cuda")).detach().cpu()
    temperature = nn.Parameter(torch.ones(1))
    fit = torch.optim.SGD([temperature], lr=0.1)
    for _ in range(3):
        fit.zero_grad()
        (logits / temperature).mean().backward()
        fit.step()


def optimizer_in_backward():
    """An optimizer for each parameter, which steps as soon as the gradient is there."""
    model = nn.Linear(4, 1).cuda()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for _ in range(3):
        model(torch.randn(2, 4, device="cuda")).mean().backward()


RIGHT = [
    gan,
    logging_on_the_host,
    all_on_the_cpu,
    split_by_hand,
    optimized_input,
    other_ways,
    updated_by_hand,
    calibrated_on_the_cpu,
    optimizer_in_backward,
]


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_what_is_right(watched, program):
    """Programs that look like a mistake and are none: no finding, and something was checked."""
    report = watched(program)
    assert report.findings == ()
    assert report.checked["backwards"] > 0
    assert "calls of backward" in str(report)


# --- never disturb


def test_results_are_the_same(watched):
    """Gradients and random numbers are those of a run that nobody looks at, bit for bit, with findings too."""

    def train():
        model, optimizer = small()
        factor = torch.tensor(2.0, requires_grad=True)
        for _ in range(3):
            loss = (model(torch.randn(2, 4, device="cuda")).mean() * factor).cpu()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return torch.cat([p.detach().cpu().flatten() for p in model.parameters()]), torch.rand(3)

    found = []
    assert not watched(lambda: found.extend(train())).ok
    with simulate_cuda(2):
        torch.cuda.set_device(1)
        plain = train()
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))


def test_a_line_is_looked_at_eight_times(watched):
    """The first calls of each line are looked at, not a whole training."""

    def train():
        model, _ = small()
        for _ in range(30):
            model(torch.randn(2, 4, device="cuda")).mean().backward()

    assert watched(train).checked["backwards"] == 8


def test_lines_are_limited(watched):
    """Code that is made as it runs does not fill the memory."""

    def train():
        watch = current_watch()
        watch._lines.update({(number, 0): None for number in range(MAX_LINES)})
        nn.Linear(1, 1)(torch.ones(1, 1)).mean().backward()
        assert len(watch._lines) == MAX_LINES

    watched(train)


def test_nothing_is_kept_alive(watched):
    """A model, its optimizer and a loss with a finding die with the program's own names."""

    def train():
        model, optimizer = small()
        loss = model(torch.randn(2, 4, device="cuda")).mean().cpu()
        loss.backward()
        alive = [weakref.ref(model), weakref.ref(optimizer)]
        del model, optimizer, loss
        gc.collect()
        assert [ref() for ref in alive] == [None, None]

    assert not watched(train).ok


def test_a_fault_of_the_check_is_said_once(watched, monkeypatch, caplog):
    """Where the check itself fails, training goes on."""
    monkeypatch.setattr("lightning_devcheck._run.backwards.Look", lambda *args: 1 / 0)

    def train():
        model, _ = small()
        for _ in range(3):
            model(torch.randn(2, 4, device="cuda")).mean().backward()
        assert model[0].weight.grad is not None

    watched(train)
    assert caplog.text.count("looking at a backward failed; please report this.") == 1


def test_plain_simulations_watch_nothing():
    """`simulate_cuda` alone looks at no backward, and what a run has replaced is put back."""
    before = torch.optim.Optimizer.__init__
    with simulate_cuda(1):
        assert running().watch_backward is None
    assert torch.optim.Optimizer.__init__ is before
