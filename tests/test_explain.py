"""`explain` on exceptions of simulated devices: the culprit, its line, the words."""

from __future__ import annotations

import functools
import linecache
import types
from importlib import metadata
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MeanMetric

from lightning_devcheck import DeviceCheck, DeviceMismatchError, Report, explain, simulate_cuda
from tests.helpers.training import Clean, make_loader, make_trainer

TABLE = torch.ones(4)


def explained(step: Any, module: nn.Module | None = None) -> Any:
    """The finding that `explain` makes of what ``step`` raises on simulated devices."""
    with simulate_cuda(devices=2):
        x = torch.ones(2, 4, device="cuda:1")
        torch.cuda.set_device(1)
        try:
            step(x)
        except Exception as error:
            report = explain(error, module)
            assert report is not None
            return report.findings[0]
    raise AssertionError("nothing was raised")


def running_sum(x):
    loss = torch.zeros(1)
    for row in x:
        loss += row.mean()
    return loss


def start_value(x):
    return sum([row.mean() for row in x], torch.zeros(1))


def stacked(x):
    terms = [torch.tensor(0.0)]
    terms.append(x.mean())
    return torch.stack(terms)


def from_caller(x):
    weights = torch.rand(4)
    return scaled(x, weights)


def scaled(value, factor):
    return (value * factor).mean()


def inline_argument(x):
    return scaled(x, torch.rand(4))


def derived(x):
    base = torch.arange(4.0)
    ramp = base * 2
    return x + ramp


def alias(x):
    original = torch.ones(4)
    other = original
    return x - other


def unpacked(x):
    left, right = x, torch.ones(4)
    return left + right


def thrown_away(x):
    mask = torch.ones(4)
    mask.to(x.device)
    return x * mask


def looped(x):
    parts = [torch.ones(4), torch.ones(4)]
    for part in parts:
        x = x * part
    return x


def enumerated(x):
    parts = {"a": torch.ones(4)}
    for _, part in list(parts.items()):
        x = x * part
    return x


def comprehension(x):
    parts = [torch.ones(4), torch.ones(4)]
    return sum((x * part).mean() for part in parts)


def constant(x):
    return x * TABLE


def default(x, table=torch.ones(4)):  # noqa: B008
    return x * table


def closure(x):
    outside = torch.ones(4)

    def inner():
        return x * outside

    return inner()


def indexed(x):
    marks = torch.zeros(4)
    marks[x[0].topk(2).indices] = 1.0
    return marks


def written_out(x):
    target = torch.zeros(2, 4, device="cuda:0")
    return F.mse_loss(x, target)


def namespace(x):
    config = types.SimpleNamespace(weight=torch.ones(4))
    return x * config.weight


def in_lambda(x):
    offset = torch.ones(4)
    return (lambda y: y + offset)(x)


def multi_line(x):
    shift = torch.ones(
        4,
    )
    return torch.add(
        x,
        shift,
    )


def generator(x):
    source = torch.Generator().manual_seed(1)
    return torch.randn(4, generator=source, device=x.device)


LOCALS = [
    (running_sum, "loss", "loss = torch.zeros(1)"),
    (start_value, "torch.zeros(1)", "return sum([row.mean() for row in x], torch.zeros(1))"),
    (stacked, "terms[0]", "terms = [torch.tensor(0.0)]"),
    (from_caller, "weights", "weights = torch.rand(4)"),
    (inline_argument, "torch.rand(4)", "return scaled(x, torch.rand(4))"),
    (derived, "base", "base = torch.arange(4.0)"),
    (alias, "original", "original = torch.ones(4)"),
    (unpacked, "right", "left, right = x, torch.ones(4)"),
    (thrown_away, "mask", "mask.to(x.device)"),
    (looped, "parts[0]", "parts = [torch.ones(4), torch.ones(4)]"),
    (enumerated, 'parts["a"]', 'parts = {"a": torch.ones(4)}'),
    (comprehension, "parts[0]", "parts = [torch.ones(4), torch.ones(4)]"),
    (constant, "TABLE", "TABLE = torch.ones(4)"),
    (closure, "outside", "outside = torch.ones(4)"),
    (indexed, "marks", "marks = torch.zeros(4)"),
    (written_out, "target", 'target = torch.zeros(2, 4, device="cuda:0")'),
    (namespace, "config.weight", "config = types.SimpleNamespace(weight=torch.ones(4))"),
    (in_lambda, "offset", "offset = torch.ones(4)"),
    (multi_line, "shift", "shift = torch.ones("),
    (generator, "source", "source = torch.Generator().manual_seed(1)"),
]


@pytest.mark.parametrize(("step", "name", "line"), LOCALS, ids=lambda value: getattr(value, "__name__", ""))
def test_local_culprit(step, name, line):
    """A local tensor is named as it is typed, with the line that decided its device."""
    finding = explained(step)
    assert (finding.name, finding.severity) == (name, "error")
    assert finding.origin.line == line


def test_default_argument_is_named():
    """A tensor that is a default value is named by its argument."""
    finding = explained(default)
    assert finding.name == "table"
    assert finding.used.line == "return x * table"


class Model(nn.Module):
    """One attribute of each kind that Lightning does not move."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.weights = torch.ones(4)
        self.heads = [nn.Linear(4, 4)]
        self.named = {"a": nn.Linear(4, 4)}
        self.loss = functools.partial(F.cross_entropy, weight=torch.ones(4))
        self.config = types.SimpleNamespace(weight=torch.ones(4))
        self.metrics = {"loss": MeanMetric()}
        self.scale = [nn.Parameter(torch.ones(4))]


ATTRIBUTES = [
    (lambda m, x: m.net(x) * m.weights, "self.weights", "mixed-devices", "self.register_buffer("),
    (lambda m, x: m.heads[0](x), "self.heads[0].weight", "unregistered-parameter", "nn.ModuleList("),
    (lambda m, x: m.named["a"](x), 'self.named["a"].weight', "unregistered-parameter", "nn.ModuleDict("),
    (
        lambda m, x: m.loss(m.net(x), x.argmax(1)),
        'self.loss.keywords["weight"]',
        "mixed-devices",
        "self.register_buffer(",
    ),
    (lambda m, x: x * m.config.weight, "self.config.weight", "mixed-devices", 'self.register_buffer("weight"'),
    (lambda m, x: m.metrics["loss"].update(x), 'self.metrics["loss"]', "metric-device", "nn.ModuleDict("),
    (lambda m, x: x * m.scale[0], "self.scale[0]", "unregistered-parameter", "nn.ParameterList("),
]


@pytest.mark.parametrize(("use", "name", "rule", "fix"), ATTRIBUTES, ids=[entry[1] for entry in ATTRIBUTES])
def test_attribute_culprit(use, name, rule, fix):
    """What a module keeps where it is not moved is named from the module, with the line that keeps it, and a cure."""
    if rule == "metric-device" and metadata.version("torchmetrics").startswith("1.4."):
        pytest.xfail("the metric's own update is named by the argument that holds the module")
    model = Model()

    def step(x):
        model.net.to(x.device)
        use(model, x)

    finding = explained(step, model)
    assert (finding.name, finding.rule) == (name, rule)
    assert finding.origin.line.startswith("self." + name.removeprefix("self.").partition("[")[0].partition(".")[0])
    assert fix in finding.fix


class HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return torch.ones(2, 4)


def test_backward_that_makes_a_gradient_elsewhere():
    """A custom backward is blamed by its class, at the line that leaves the device."""

    def step(x):
        weight = torch.ones(4, 4, device=x.device, requires_grad=True)
        HalfGradient.apply(x @ weight).sum().backward()

    finding = explained(step)
    assert (finding.rule, finding.name) == ("gradient-device", "HalfGradient.backward")
    assert finding.origin.line == "return torch.ones(2, 4)"


def test_hook_that_moves_a_gradient():
    """A tensor hook is blamed at the line that registers it."""

    def step(x):
        hidden = x.clone().requires_grad_()
        doubled = hidden * 2
        doubled.register_hook(lambda grad: grad.cpu())
        doubled.sum().backward()

    finding = explained(step)
    assert (finding.rule, finding.name) == ("gradient-device", "hook on doubled")


def test_batch_that_stayed_behind():
    """A part of a batch that Lightning does not move is named by where it is in the batch."""

    class Batch:
        def __init__(self):
            self.x = torch.ones(2, 4)

    class Reader(Clean):
        def training_step(self, batch, batch_idx):
            return self.net(batch.x).mean()

    with simulate_cuda(devices=2):
        trainer = make_trainer(accelerator="gpu", devices=[1], callbacks=[DeviceCheck()])
        data = torch.utils.data.DataLoader([Batch()], batch_size=None, collate_fn=lambda value: value)
        with pytest.raises(RuntimeError, match="same device") as caught:
            trainer.fit(Reader(), data)
    finding = explain(caught.value).findings[0]
    assert (finding.rule, finding.name, finding.device) == ("batch-device", "batch.x", "cpu")


def test_device_check_adds_the_report_as_a_note():
    """`DeviceCheck` leaves the exception as it is and adds the report."""

    class Weighted(Clean):
        def __init__(self):
            super().__init__()
            self.weights = torch.ones(4)

        def training_step(self, batch, batch_idx):
            return (self.net(batch) * self.weights).mean()

    with simulate_cuda(devices=2):
        trainer = make_trainer(accelerator="gpu", devices=[1], callbacks=[DeviceCheck()])
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device") as caught:
            trainer.fit(Weighted(), make_loader())
    (note,) = caught.value.__notes__
    assert "self.weights is on cpu, what it met is on cuda:1" in note
    assert 'Fix (not tried): self.register_buffer("weights", torch.ones(4), persistent=False)' in note


def test_text_of_a_report():
    """The whole text: what, evidence, why, fix, rule."""
    finding = explained(running_sum)
    text = str(Report((finding,)))
    assert text.splitlines()[0] == "loss is on cpu, what it met is on cuda:1"
    assert "made  tests/test_explain.py:" in text
    assert "A running sum stays on the device of the tensor it starts from; this one starts on the CPU." in text
    assert "or let LossAccumulator add the terms up: total = self.losses(terms)" in text


@pytest.mark.parametrize(
    "error",
    [
        ValueError("shapes cannot be multiplied"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has a total capacity of 8 GiB"),
        RuntimeError("Trying to backward through the graph a second time"),
        RuntimeError("No space left on device"),
        RuntimeError("expected scalar type Half but found Float"),
        RuntimeError("Input type (torch.FloatTensor) and weight type (torch.DoubleTensor) should be the same"),
        KeyError("Expected all tensors to be on the same device"),
        KeyboardInterrupt(),
        AssertionError(),
        StopIteration(3),
    ],
    ids=lambda error: f"{type(error).__name__} {str(error)[:20]}",
)
def test_other_exceptions_are_not_explained(error):
    """What was not recognized as a device error gives None."""
    assert explain(error) is None


def test_own_error_gives_its_report():
    """A `DeviceMismatchError` holds its report already."""
    report = Report()
    assert explain(DeviceMismatchError(report)) is report


def test_argument_must_be_an_exception():
    """Anything else is refused."""
    with pytest.raises(
        TypeError, match=r"explain\(exception='RuntimeError: ...'\): exception is a str; an exception is needed"
    ):
        explain("RuntimeError: ...")


def test_module_must_be_a_module():
    """Anything but a module or None is refused by name and value."""
    with pytest.raises(TypeError, match=r"explain\(module=3\): module is a int; a torch.nn.Module or None is needed"):
        explain(RuntimeError("x"), module=3)


def test_raised_from_a_device_error():
    """An exception that wraps a device error is explained by the device error."""

    def step(x):
        try:
            running_sum(x)
        except RuntimeError as error:
            raise ValueError("training failed") from error

    assert explained(step).name == "loss"


def run_source(source: str, filename: str) -> Any:
    """Explain what source that is in no file raises when it calls ``step``."""
    names: dict[str, Any] = {"torch": torch}
    exec(compile(source, filename, "exec"), names)
    return explained(names["step"])


SOURCE = "def step(x):\n    größe = torch.ones(4)\n    return x * größe\n"


def test_source_that_is_in_no_file():
    """A notebook cell has lines through `linecache`; names may be any letters."""
    linecache.cache["<cell 1>"] = (len(SOURCE), None, SOURCE.splitlines(True), "<cell 1>")
    finding = run_source(SOURCE, "<cell 1>")
    assert (finding.name, finding.origin.line) == ("größe", "größe = torch.ones(4)")
    del linecache.cache["<cell 1>"]


def test_source_that_is_gone():
    """Without source the report still says where and on which devices."""
    finding = run_source(SOURCE, "/nowhere/gone.py")
    assert (finding.device, finding.expected) == ("cpu", "cuda:1")
    assert (finding.used.filename, finding.used.lineno) == ("/nowhere/gone.py", 3)
