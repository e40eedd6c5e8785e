"""Why and fix, made for the source line."""

from __future__ import annotations

import ast

import pytest

from lightning_devcheck._judge.causes import cause_of
from lightning_devcheck._report.rules import RULES
from lightning_devcheck._source.statements import detached
from tests.helpers.source import placed


def words_of(*args):
    """Why and fix, without the edits."""
    cure = cause_of(*args)
    return cure.why, cure.fix


ON_OWN = "w = torch.ones(3, device=self.device)"
CASES = [
    ("mixed-devices", "mask", "mask = torch.ones(4)", "", "cpu", "mask = torch.ones(4, device=self.device)"),
    ("mixed-devices", "w", "w = torch.FloatTensor([1.0])", "", "cpu", "w = torch.FloatTensor([1.0]).to(self.device)"),
    ("mixed-devices", "w", "w = torch.from_numpy(a)", "", "cpu", "w = torch.from_numpy(a).to(self.device)"),
    ("mixed-devices", "w", "w.cuda()", "", "cpu", "w = w.cuda()"),
    ("wrong-rank-device", "y", "y = y.cuda(0)", "", "cuda:0", "y = y.to(self.device)"),
    ("wrong-rank-device", "y", 'y = y.to("cuda:0")', "", "cuda:0", "y = y.to(self.device)"),
    (
        "mixed-devices",
        "self.t",
        "self.t = torch.load(path)",
        "",
        "cpu",
        "self.t = torch.load(path, map_location=self.device)",
    ),
    (
        "unregistered-module",
        "self.heads[0]",
        "self.heads = [nn.Linear(2, 2)]",
        "",
        "cpu",
        "self.heads = nn.ModuleList([nn.Linear(2, 2)])",
    ),
    (
        "unregistered-metric",
        'self.metrics["a"]',
        "self.metrics = {'a': MeanMetric()}",
        "",
        "cpu",
        'self.metrics = nn.ModuleDict({"a": MeanMetric()})',
    ),
    (
        "unregistered-parameter",
        "self.scale[0]",
        "self.scale = [nn.Parameter(torch.ones(2))]",
        "",
        "cpu",
        "self.scale = nn.ParameterList([nn.Parameter(torch.ones(2))])",
    ),
    (
        "unregistered-tensor",
        "self.weights",
        "self.weights = torch.tensor([1.0])",
        "",
        "cpu",
        'self.register_buffer("weights", torch.tensor([1.0]), persistent=False)',
    ),
    (
        "leaf-device",
        "self.t",
        "self.t = torch.ones((), requires_grad=True)",
        "",
        "cpu",
        "self.t = nn.Parameter(torch.ones(()))",
    ),
    (
        "leaf-device",
        "self.t",
        "self.t = torch.ones(2).requires_grad_()",
        "",
        "cpu",
        "self.t = nn.Parameter(torch.ones(2))",
    ),
    ("mixed-devices", "h", "h = self.net(x).cpu()", "", "cpu", "h = self.net(x)"),
    (
        "mixed-devices",
        "self.mask",
        "def build(self): self.mask = torch.ones(3)",
        "",
        "cpu",
        'self.register_buffer("mask", torch.ones(3), persistent=False)',
    ),
    (
        "mixed-devices",
        "mask",
        "width = 3; mask = torch.ones(width)",
        "",
        "cpu",
        "mask = torch.ones(width, device=self.device)",
    ),
    (
        "mixed-devices",
        "mask",
        "if mask is None: mask = torch.ones(3)",
        "",
        "cpu",
        "mask = torch.ones(3, device=self.device)",
    ),
    (
        "mixed-devices",
        "self.scale",
        "self.scale = nn.Parameter(torch.zeros(1)) + 1.0",
        "",
        "cpu",
        "self.scale = nn.Parameter(torch.zeros(1) + 1.0)",
    ),
    (
        "unregistered-tensor",
        "self.scale",
        "self.scale = nn.Parameter(torch.zeros(1)).cuda()",
        "",
        "cpu",
        "self.scale = nn.Parameter(torch.zeros(1))",
    ),
    (
        "unregistered-parameter",
        "self.experts[0].weight",
        "self.experts = {i: nn.Linear(8, 1) for i in range(n)}",
        "",
        "cpu",
        "self.experts = nn.ModuleDict({str(i): nn.Linear(8, 1) for i in range(n)})  (its keys are texts)",
    ),
    (
        "mixed-devices",
        "m",
        "if (m := torch.rand(4)).any():",
        "",
        "cpu",
        "if (m := torch.rand(4, device=self.device)).any():",
    ),
    (
        "mixed-devices",
        "hot",
        "hot = torch.zeros(4, 3).scatter(1, y.cpu(), 1.0)",
        "",
        "cpu",
        "hot = torch.zeros(4, 3, device=self.device).scatter(1, y, 1.0)",
    ),
    (
        "mixed-devices",
        "self.loss.fake",
        "self.real, self.fake = torch.ones(1), torch.zeros(1)",
        "",
        "cpu",
        'self.register_buffer("fake", torch.zeros(1), persistent=False)',
    ),
    ("wrong-rank-device", "t", "t = torch.ones(4, 1).to(0)", "", "cuda:0", "t = torch.ones(4, 1).to(self.device)"),
    ("wrong-rank-device", "w", "w = torch.ones(4, device=0)", "", "cuda:0", "w = torch.ones(4, device=self.device)"),
    ("wrong-rank-device", "w", "w = torch.ones(4).to(self.gpu)", "", "cuda:0", "w = torch.ones(4).to(self.device)"),
    (
        "unregistered-tensor",
        'self.cfg["loss"]["weight"]',
        "self.cfg = {'lr': 0.1, 'loss': {'weight': torch.ones(3)}}",
        "",
        "cpu",
        'self.register_buffer("weight", torch.ones(3), persistent=False)  (and read it from there)',
    ),
    (
        "mixed-devices",
        "self.focal.alpha",
        "self.focal = Focal(2.0, alpha=torch.ones(3))",
        "",
        "cpu",
        'self.register_buffer("alpha", torch.ones(3), persistent=False)  (and read it from there)',
    ),
    (
        "mixed-devices",
        "self.past[1]",
        "self.past = [0.0, torch.zeros(4)]",
        "",
        "cpu",
        'self.register_buffer("values", torch.zeros(4), persistent=False)  (and read it from there)',
    ),
    (
        "unregistered-parameter",
        "self.layers[0].weight",
        "self.layers = list(nn.Linear(8, 8) for _ in range(2))",
        "",
        "cpu",
        "self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))",
    ),
    ("mixed-devices", "x", "x = x.to(DEVICE)", "", "cpu", "x = x.to(self.device)"),
    ("wrong-rank-device", "w", "w = torch.ones(3, device=torch.device('cuda:0'))", "", "cuda:0", ON_OWN),
    ("wrong-rank-device", "d", "d = torch.device('cuda', 0)", "", "cuda:0", "d = torch.device(self.device)"),
    ("wrong-rank-device", "x", "x = y.to(torch.device('cuda', rank))", "", "cuda:0", "x = y.to(self.device)"),
    ("wrong-rank-device", "x", "x = x.to(args.device)", "", "cuda:0", "x = x.to(self.device)"),
    (
        "mixed-devices",
        "self.crit.weight",
        "crit = nn.CrossEntropyLoss(weight=torch.ones(3))",
        "",
        "cpu",
        "self.crit = nn.CrossEntropyLoss(weight=torch.ones(3))  (in __init__; then use self.crit)",
    ),
    (
        "mixed-devices",
        "STATS.mean",
        "STATS = Stats(torch.zeros(3))",
        "",
        "cpu",
        'self.register_buffer("mean", STATS.mean, persistent=False)  (in __init__; then use self.mean)',
    ),
    (
        "mixed-devices",
        "torch.zeros(1)",
        "return sum(t, torch.zeros(1))",
        "return sum(t, torch.zeros(1))",
        "cpu",
        "return sum(t)",
    ),
]


@pytest.mark.parametrize(("rule", "name", "made", "used", "device", "fix"), CASES, ids=[case[2] for case in CASES])
def test_fix_is_a_line_to_paste(tmp_path, rule, name, made, used, device, fix):
    """The fix is the user's own line, put right."""
    place = placed(tmp_path, used, name="used.py") if used else None
    why, found = words_of(rule, name, placed(tmp_path, made), place, device, "cuda:1")
    assert found.splitlines()[0] == fix
    assert why


@pytest.mark.parametrize(
    "line",
    [
        "",
        "def step(x):",
        "for a in b:",
        "torch.zeros(",
        "x = y",
        "]]",
        "\x00",
        "x = x.to(device)",
        "x = x.to(y.device)",
    ],
)
def test_lines_that_say_nothing(tmp_path, line):
    """A line that makes nothing on a device, or is no whole statement, leaves the rule's own words."""
    assert words_of("mixed-devices", "x", placed(tmp_path, line), None, "cpu", "cuda:1") == ("", "")


@pytest.mark.parametrize("line", ["x = y.to(torch.bfloat16)", "x = y.to(memory_format=torch.channels_last)"])
def test_moves_to_no_device(tmp_path, line):
    """A cast, or another memory format, is no device that a line names: nothing is put in its place."""
    assert words_of("wrong-rank-device", "x", placed(tmp_path, line), None, "cuda:0", "cuda:1") == ("", "")


def test_without_a_line():
    """Every rule can be asked for without a line."""
    assert all(words_of(rule, "x", None, None, "cpu", "cuda:1") == ("", "") for rule in RULES)


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        ("self.history.append(loss)", "self.history.append(loss.detach())"),
        ("self.kept['a'] = self.net(x)  # later", 'self.kept["a"] = self.net(x).detach()'),
        ("self.total += loss", "self.total += loss.detach()"),
        ("self.total = self.total + loss", "self.total = (self.total + loss).detach()"),
        ("self.kept[0].append(out[1])", "self.kept[0].append(out[1].detach())"),
        ("self.kept = [a, b]", ""),
        ("return loss", ""),
    ],
)
def test_what_is_kept_is_detached(line, fixed):
    """A line that keeps a tensor is rewritten to keep it without its graph; other lines are left."""
    assert detached(ast.parse(line).body[0]) == fixed


def test_module_moved_by_hand(tmp_path):
    """A line that moves a module is to be taken out; one that throws a moved tensor away is to keep it."""
    made = placed(tmp_path, 'self.enc.to("cuda:0")')
    why, fix = words_of("wrong-rank-device", "self.enc.weight", made, None, "cuda:0", "cuda:1")
    assert why.startswith("This line moves the module, in place")
    assert fix.startswith("take it out")
    why, _ = words_of("wrong-rank-device", "self.enc", made, None, "cuda:0", "cuda:1")
    assert why.startswith("This line moves the module, in place")
    why, fix = words_of("mixed-devices", "self.enc", made, None, "cpu", "cuda:1")
    assert why.startswith(".to() returns a new tensor, which this line throws away")


@pytest.mark.parametrize(
    ("name", "made", "function", "fix"),
    [
        ("self.rng", "self.rng = torch.Generator()", "__init__", "self.rng = torch.Generator(device=self.device)"),
        ("RNG", "RNG = torch.Generator()", "", "self.rng = torch.Generator(device=self.device)"),
    ],
)
def test_generator_made_before_the_device_is_known(tmp_path, name, made, function, fix):
    """A generator of __init__ or of the file is made when the module has been moved."""
    _, found = words_of("mixed-devices", name, placed(tmp_path, made, function), None, "cpu", "cuda:1")
    assert found == f"def on_fit_start(self):  # the module has been moved\n    {fix}"


def test_generator_made_in_the_step(tmp_path):
    """A generator of the step is made on the device, in its line."""
    made = placed(tmp_path, "rng = torch.Generator()", "training_step")
    assert (
        words_of("mixed-devices", "rng", made, None, "cpu", "cuda:1")[1] == "rng = torch.Generator(device=self.device)"
    )


@pytest.mark.parametrize("given", ['"cuda"', 'device="cuda"'])
def test_generator_that_is_on_a_device_by_mistake(tmp_path, given):
    """What draws on the CPU needs a generator without a device, or a device of its own."""
    made = placed(tmp_path, f"rng = torch.Generator({given})", "training_step")
    why, fix = words_of("mixed-devices", "rng", made, None, "cuda:0", "cpu")
    assert why.endswith("samplers, loaders and calls without device= draw on the CPU.")
    assert fix == "rng = torch.Generator(), or device=rng.device in the call that draws"


def test_generator_that_names_the_cpu(tmp_path):
    """A device that is given by position is replaced, not given twice."""
    made = placed(tmp_path, 'rng = torch.Generator("cpu")', "training_step")
    _, fix = words_of("mixed-devices", "rng", made, None, "cpu", "cuda:0")
    assert fix == "rng = torch.Generator(device=self.device)"


def test_container_of_other_things(tmp_path):
    """A container that also holds what is no module is not advised to be made one of modules."""
    made = placed(tmp_path, 'self.metrics = ("train", MeanMetric())', "__init__")
    assert words_of("unregistered-metric", "self.metrics[1]", made, None, "cpu", "") == ("", "")


@pytest.mark.parametrize(
    ("rule", "name", "made", "fix"),
    [
        (
            "wrong-rank-device",
            "self.grid",
            'self.grid = torch.ones(3, device="cuda:0")',
            'self.register_buffer("grid", torch.ones(3), persistent=False)',
        ),
        (
            "unregistered-module",
            "self.frozen[0].weight",
            'self.frozen = [nn.Linear(8, 8).to("cuda:0").eval()]',
            "self.frozen = nn.ModuleList([nn.Linear(8, 8).eval()])",
        ),
    ],
)
def test_written_out_device_where_the_module_is_built(tmp_path, rule, name, made, fix):
    """In __init__ the written-out device gives way to registration: self.device is the CPU there."""
    why, found = words_of(rule, name, placed(tmp_path, made, "__init__"), None, "cuda:0", "cuda:1")
    assert (found, why.startswith("The device written out here")) == (fix, True)


@pytest.mark.parametrize(
    ("rule", "name", "made", "fix"),
    [
        ("unregistered-metric", "self.mse", "self.mse = MeanSquaredError()", "make self.mse in __init__"),
        ("parameter-device", "self.proj.weight", "self.proj = nn.Linear(4, 4)", "make self.proj in __init__"),
        ("parameter-device", "self.proto", "self.proto = torch.zeros(8)", "self.proto = torch.zeros(8, device=self.d"),
    ],
)
def test_what_is_made_after_the_move(tmp_path, rule, name, made, fix):
    """A metric or layer that a step makes belongs into __init__; a tensor for a buffer's slot is made on the device."""
    _, found = words_of(rule, name, placed(tmp_path, made, "training_step"), None, "cpu", "cuda:1")
    assert found.startswith(fix)


def test_move_to_a_dtype(tmp_path):
    """A dtype is no device."""
    made = placed(tmp_path, "w = w.to(torch.float32)", "training_step")
    assert words_of("wrong-rank-device", "w", made, None, "cuda:0", "cuda:1") == ("", "")
