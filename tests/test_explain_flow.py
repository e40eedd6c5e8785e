"""What a tensor went through on its way: hooks, backwards, states of earlier steps, copies in the line itself."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import Metric

from lightning_devcheck import preflight
from tests.helpers.failing import explained, explained_afterwards
from tests.helpers.training import Clean, make_loader


class Hooked(nn.Module):
    """A backbone whose output a hook changes, and a head."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def keep_on_host(self, module, args, output):
        """Copy the output to the CPU."""
        return output.cpu()  # moved

    def forward(self, x):
        """Backbone and head."""
        features = self.backbone(x)
        return self.head(features)


def test_forward_hook_that_moves_the_output():
    """The hook's line made the output, not the call of the module."""
    module = Hooked().to("cpu")
    module.backbone.register_forward_hook(lambda m, a, output: output.cpu())

    def step(x):
        return module.to(x.device)(x)

    finding = explained(step, module)
    assert finding.name == "features"
    assert finding.origin.line == "module.backbone.register_forward_hook(lambda m, a, output: output.cpu())"
    assert finding.fix == "module.backbone.register_forward_hook(lambda m, a, output: output)"


def test_forward_hook_that_is_a_method():
    """The line of a method that is a hook is shown as well."""
    module = Hooked()
    module.backbone.register_forward_hook(module.keep_on_host)
    finding = explained(lambda x: module.to(x.device)(x), module)
    assert finding.origin.line == "return output.cpu()  # moved"


def test_forward_hook_that_keeps_the_device():
    """A hook that leaves the output where it is has made nothing on the CPU."""
    module = Hooked()
    module.backbone.register_forward_hook(lambda m, a, output: output.relu())

    def step(x):
        weights = torch.ones(2, 4)
        return module.to(x.device).backbone(x) * weights

    finding = explained(step, module)
    assert (finding.name, finding.origin.line) == ("weights", "weights = torch.ones(2, 4)")


class Clipped(torch.autograd.Function):
    """Keeps a mask on the CPU for its backward."""

    @staticmethod
    def forward(ctx, x):
        """Clip."""
        ctx.mask = (x < 6).cpu()  # kept
        return x.clamp(max=6)

    @staticmethod
    def backward(ctx, grad):
        """Let through what was not clipped."""
        return grad * ctx.mask


def test_what_forward_keeps_for_backward():
    """What ctx holds was made in the forward, and is no part of a batch."""

    def step(x):
        Clipped.apply(x.requires_grad_()).sum().backward()

    finding = explained(step)
    assert (finding.rule, finding.name) == ("mixed-devices", "ctx.mask")
    assert (finding.origin.line, finding.fix) == ("ctx.mask = (x < 6).cpu()  # kept", "ctx.mask = x < 6")


class Dropped(torch.autograd.Function):
    """Saves a mask that it makes on the CPU."""

    @staticmethod
    def forward(ctx, x):
        """Keep half."""
        mask = torch.rand(x.shape[0], 1) > 0.5  # made
        ctx.save_for_backward(x, mask)
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        """Let through what was kept."""
        _, mask = ctx.saved_tensors
        return grad * mask


def test_what_forward_saves_for_backward():
    """A saved tensor comes from the line in the forward that made it on the CPU."""

    def step(x):
        Dropped.apply(x.requires_grad_()).sum().backward()

    finding = explained(step)
    assert (finding.name, finding.origin.line) == ("mask", "mask = torch.rand(x.shape[0], 1) > 0.5  # made")
    assert finding.fix == "mask = torch.rand(x.shape[0], 1, device=x.device) > 0.5"


def test_copy_in_the_failing_line():
    """A copy to the CPU in the failing expression is the culprit, named as it is written."""

    def step(x):
        return F.mse_loss(x.detach().cpu(), x)

    finding = explained(step)
    assert (finding.name, finding.fix) == ("x.detach().cpu()", "return F.mse_loss(x.detach(), x)")


def test_move_to_the_device_in_the_failing_line():
    """A copy to where the others are is no culprit."""

    def step(x):
        weights = torch.ones(2, 4)
        return F.mse_loss(x.to(x.device), x) * weights

    assert explained(step).name == "weights"


class Histogram(Metric):
    """A metric that brings its input to the CPU itself."""

    def __init__(self):
        super().__init__()
        self.add_state("counts", torch.zeros(4), dist_reduce_fx="sum")

    def update(self, values):
        """Count."""
        self.counts += torch.histc(values.cpu(), bins=4)

    def compute(self):
        """The counts."""
        return self.counts


def test_metric_that_moves_its_input():
    """The state of a metric that copies its input to the CPU is where it should be."""
    metric = Histogram()
    finding = explained(lambda x: metric.to(x.device).update(x), metric)
    assert (finding.rule, finding.name) == ("mixed-devices", "values.cpu()")
    assert finding.fix == "self.counts += torch.histc(values, bins=4)"


class Recurrent(nn.Module):
    """A state that one line makes and another hands on."""

    def __init__(self):
        super().__init__()
        self.state = None
        self.total = torch.zeros(4)

    def forward(self, x):
        """Add the state."""
        if self.state is None:
            self.state = torch.zeros(2, 4)  # made
        out = x + self.state
        self.state = out.detach()
        return out

    def add(self, x):
        """Bring the total back to the CPU."""
        self.total = self.total.to(x.device) + x.sum(0)
        self.total = self.total.cpu()  # moved
        return self.total * x


def test_state_that_a_later_line_hands_on():
    """The line that makes the state on the CPU is shown, not the one that keeps what was computed from it."""
    module = Recurrent()
    finding = explained(module, module)
    assert (finding.name, finding.origin.line) == ("self.state", "self.state = torch.zeros(2, 4)  # made")


def test_state_that_a_later_line_moves():
    """A later line that copies the state to the CPU is shown before the one that made it."""
    module = Recurrent()
    finding = explained(module.add, module)
    assert (finding.name, finding.origin.line) == ("self.total", "self.total = self.total.cpu()  # moved")


class Hidden(nn.Module):
    """Modules that are kept out of the registry on purpose."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "teacher", nn.Linear(4, 4))  # hidden
        super().__setattr__("scale", torch.ones(4))  # set

    def forward(self, x):
        """Ask the teacher."""
        return self.teacher(x)

    def scaled(self, x):
        """Scale."""
        return x * self.scale


def test_module_set_past_the_registry():
    """object.__setattr__ gives an attribute its value."""
    module = Hidden()
    finding = explained(module, module)
    assert finding.name == "self.teacher.weight"
    assert finding.origin.line == 'object.__setattr__(self, "teacher", nn.Linear(4, 4))  # hidden'


def test_attribute_set_by_the_base():
    """super().__setattr__ gives an attribute its value."""
    module = Hidden()
    assert explained(module.scaled, module).origin.line == 'super().__setattr__("scale", torch.ones(4))  # set'


def shifted(x, device):
    """Make a shift without the device that is at hand."""
    shift = torch.ones(4)
    return x + shift


def test_line_in_a_function_that_knows_the_device():
    """A variable that holds the device is what the fix uses."""
    assert explained(lambda x: shifted(x, x.device)).fix == "shift = torch.ones(4, device=device)"


def test_line_in_a_function_that_knows_another_device():
    """A variable that holds another device is of no use to the fix."""
    assert explained(lambda x: shifted(x, torch.device("cpu"))).fix == "shift = torch.ones(4, device=x.device)"


class Shift(nn.Module):
    """A plain module has no device."""

    def forward(self, x):
        """Shift."""
        shift = torch.ones(4)
        return x + shift


def test_line_in_a_plain_module():
    """A plain module has no self.device: the fix takes that of what the culprit met."""
    module = Shift()
    assert explained(module, module).fix == "shift = torch.ones(4, device=x.device)"


class Spread(nn.Module):
    """A model whose parts are on two devices."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        """Add what the first part gives to what the second gives, which is elsewhere."""
        self.first.to("cuda:0")
        self.second.to("cuda:1")
        skip = self.first(x.to("cuda:0"))
        out = self.second(skip.to("cuda:1"))
        return out + skip


def test_model_on_two_devices():
    """In a model that is spread over devices what a part returns has to be moved; no written-out device is blamed."""
    module = Spread()
    finding = explained(module, module)
    assert (finding.rule, finding.name) == ("mixed-devices", "skip")
    assert finding.fix == "skip.to(out.device), where it meets the others"
    assert finding.why == "The model is spread over cuda:0 and cuda:1: what a part returns moves on by hand."


def test_model_on_one_device():
    """In a model that is on one device a written-out device is the mistake."""
    module = nn.Linear(4, 4)

    def step(x):
        target = x.to("cuda:0")
        return module.to(x.device)(x) - target

    finding = explained(step, module)
    assert (finding.rule, finding.fix) == ("wrong-rank-device", "target = x.to(x.device)")


class Momentum(torch.optim.Optimizer):
    """An optimizer that makes its state itself, on the CPU."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure=None):
        """Add the gradient to the state."""
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["velocity"] = torch.zeros(p.shape)  # made
            state["velocity"].add_(p.grad)


def test_state_that_an_optimizer_makes():
    """State that the optimizer itself puts on the CPU is named as it is written, with that line."""
    module = nn.Linear(4, 1)

    def step(x):
        optimizer = Momentum(module.to(x.device).parameters())
        module(x).sum().backward()
        optimizer.step()

    finding = explained(step, module)
    assert (finding.rule, finding.name) == ("optimizer-device", 'state["velocity"]')
    assert finding.what == 'state["velocity"], a state of self.weight, is on cpu, its parameter is on cuda:1'
    assert finding.fix == 'state["velocity"] = torch.zeros(p.shape, device=p.device)'


def to_host(module, gradients_in, gradients_out):
    """A module's backward hook that copies to the CPU."""
    return tuple(gradient.cpu() for gradient in gradients_in)


def test_backward_hook_of_a_module():
    """Torch calls a module's backward hooks through one of its own: the user's is named."""

    def step(x):
        layer = nn.Linear(4, 1).to(x.device)
        layer.register_full_backward_hook(to_host)  # registered
        layer(x.requires_grad_()).sum().backward()

    finding = explained(step)
    assert (finding.rule, finding.name) == ("gradient-device", "hook on layer")
    assert finding.origin.line == "layer.register_full_backward_hook(to_host)  # registered"


def test_backward_hook_that_stays():
    """A module's backward hook that stays on the device is not blamed for another hook."""

    def step(x):
        layer = nn.Linear(4, 1).to(x.device)
        layer.register_full_backward_hook(lambda module, before, after: before)
        hidden = layer(x.requires_grad_())
        hidden.register_hook(lambda gradient: gradient.cpu())
        hidden.sum().backward()

    assert explained(step).name == "hook on hidden"


def epoch(model, loader, device):
    """A plain loop that forgets to move its target."""
    for inputs, target in loader:
        out = model(inputs.to(device))
        F.mse_loss(out, target).backward()


def loader():
    """A loader, made in a function of its own."""
    return torch.utils.data.DataLoader([(torch.ones(4), torch.ones(4))], batch_size=2)


def test_batch_of_a_loader_in_a_plain_loop():
    """What a loader gives is to be moved by the loop; that the data are on the CPU is right."""
    finding = explained_afterwards(lambda x: epoch(nn.Linear(4, 4).to(x.device), loader(), x.device))
    assert (finding.name, finding.origin.line) == ("target", "for inputs, target in loader:")
    assert finding.fix == "target = target.to(device)  (first in the loop)"
    assert finding.why == "A loader gives batches on the CPU; where no Trainer moves them, the loop has to."


def test_loader_in_the_head_of_the_loop():
    """A loader that is made in the head of the loop is not followed to what its data are made of."""

    def step(x):
        for rows in torch.utils.data.DataLoader(torch.ones(2, 4), batch_size=2):
            x = x * rows

    finding = explained(step)
    assert (finding.name, finding.fix) == ("rows", "rows = rows.to(x.device)  (first in the loop)")


def test_loop_over_tensors_of_the_program():
    """A loop over a list of tensors is not one over a loader: the list is made on the device."""

    def step(x):
        scales = [torch.ones(4)]
        for scale in scales:
            x = x * scale

    finding = explained(step)
    assert (finding.name, finding.fix) == ("scales[0]", "scales = [torch.ones(4, device=x.device)]")


def test_tensor_that_the_line_moves():
    """A tensor that the failing line moves is not the culprit: what it meets unmoved is."""

    def step(x):
        inputs = torch.ones(2, 4)
        weight = torch.ones(1)
        return inputs.to(x.device) * weight

    assert explained(step).name == "weight"


def test_model_that_a_plain_loop_does_not_move():
    """Where no Trainer runs, the program moves its model."""

    def step(x):
        device = x.device
        model = nn.Linear(4, 4)
        return model(x.to(device))

    finding = explained(step)
    assert (finding.rule, finding.name, finding.fix) == ("parameter-device", "model.weight", "model.to(device)")


class Gathered(Metric):
    """A metric that keeps its input on the CPU."""

    def __init__(self):
        super().__init__()
        self.add_state("values", [], dist_reduce_fx="cat")
        self.add_state("marks", [], dist_reduce_fx="cat")

    def update(self, values):
        """Keep."""
        self.values.append(values.detach().cpu())  # kept
        self.marks.append(values)

    def compute(self):
        """Multiply."""
        return self.values[0] * self.marks[0]


def test_metric_that_keeps_its_state_on_the_host():
    """The state of a registered metric comes from the line in the metric that copied it to the CPU."""
    module = nn.Module()
    module.metric = Gathered()

    def step(x):
        module.metric.update(x)
        module.metric.compute()

    finding = explained(step, module)
    assert (finding.rule, finding.name) == ("metric-device", "self.metric")
    assert finding.origin.line == "self.values.append(values.detach().cpu())  # kept"
    assert finding.fix == "self.values.append(values.detach())"


class Adapted(nn.Module):
    """A module that hangs a list of layers on one of its parts."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.body.adapters = [nn.Linear(4, 4)]  # hung

    def forward(self, x):
        """Adapt."""
        return self.body.adapters[0](x)


def test_attribute_set_on_a_part():
    """An attribute of a layer of torch's is set by a line of the module that holds the layer."""
    module = Adapted()
    finding = explained(module, module)
    assert (finding.name, finding.origin.line) == (
        "self.body.adapters[0].weight",
        "self.body.adapters = [nn.Linear(4, 4)]  # hung",
    )


class Leaves(torch.autograd.Function):
    """Leaves the device, and forgets to come back."""

    @staticmethod
    def forward(ctx, x, weight):
        """Multiply, and copy to the CPU."""
        ctx.weight = weight.detach()
        return (x * weight).cpu()

    @staticmethod
    def backward(ctx, gradient):
        """Multiply what came from the CPU."""
        return gradient * ctx.weight, None


class Crosses(Clean):
    """A model with such a function."""

    def training_step(self, batch, batch_idx):
        """Its loss."""
        return Leaves.apply(self.net(batch), self.net[0].bias[:4]).mean()


def test_argument_of_a_backward_is_no_batch():
    """What torch hands to a backward is not taken for a part of Lightning's batch, though Lightning runs it."""
    findings = {(finding.rule, finding.name) for finding in preflight(Crosses, make_loader()).errors}
    assert ("mixed-devices", "gradient") in findings
    assert not any(rule == "batch-device" for rule, _ in findings)
