"""One name for one part: `check_devices`, `explain`, `scan` and `preflight` spell it as the user types it."""

from __future__ import annotations

import ast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import check_devices, explain, preflight, scan, simulate_cuda
from lightning_devcheck._judge.backward import is_allowed
from lightning_devcheck._observe.module_tree import spell_path
from lightning_devcheck._source.files import statement_at
from lightning_devcheck._source.path import Path, quoted
from lightning_devcheck._source.statements import spell
from tests.helpers.source import placed
from tests.helpers.training import Clean, make_loader


def scales(count=1):
    """Parameters of the right size."""
    return [nn.Parameter(torch.ones(4)) for _ in range(count)]


# what holds the part, how the part is typed, how it is reached
PARTS = [
    (lambda: nn.ModuleDict({"b": nn.Linear(4, 4)}), '["b"].weight'),
    (lambda: nn.ModuleDict({"it's": nn.Linear(4, 4)}), '["it\'s"].weight'),
    (lambda: nn.ModuleDict({'say "b"': nn.Linear(4, 4)}), "['say \"b\"'].weight"),
    (lambda: nn.ModuleDict({"0": nn.Linear(4, 4)}), '["0"].weight'),
    (lambda: nn.ModuleDict({"a b": nn.ModuleList([nn.Linear(4, 4)])}), '["a b"][0].weight'),
    (lambda: nn.ModuleList([nn.ModuleDict({"b": nn.Linear(4, 4)})]), '[0]["b"].weight'),
    (lambda: nn.Sequential(nn.Linear(4, 4)), "[0].weight"),
    (lambda: nn.ParameterDict({"b": scales()[0]}), '["b"]'),
    (lambda: nn.ParameterDict({"not a name": scales()[0]}), '["not a name"]'),
    (lambda: nn.ParameterList(scales()), "[0]"),
]
IDS = [typed for _, typed in PARTS]


class Parts(Clean):
    """A model that uses one part, which stays on the CPU."""

    make = typed = None

    def __init__(self):
        super().__init__()
        self.heads = type(self).make()

    def on_train_start(self):
        for tensor in self.heads.parameters():
            tensor.data = tensor.data.cpu()

    def weight(self):
        return eval(f"self.heads{self.typed}")

    def training_step(self, batch, batch_idx):
        part = self.weight()
        return F.mse_loss(self.net(batch), batch) + (batch[:1] * part).mean()


def model_of(make, typed):
    """A class whose part is made and typed so."""
    return type("Model", (Parts,), {"make": staticmethod(make), "typed": typed, "__module__": __name__})


@pytest.mark.parametrize(("make", "typed"), PARTS, ids=IDS)
def test_check_devices(make, typed):
    """`check_devices` names the part that was never materialised: a layer, or a parameter by itself."""
    model = nn.Module()
    model.net, model.heads = nn.Linear(4, 4), make().to("meta")
    findings = check_devices(model.net(torch.ones(2, 4)).mean(), model).findings
    expected = f"self.heads{typed}".removesuffix(".weight")
    assert [(finding.rule, finding.name) for finding in findings] == [("meta-parameter", expected)]


@pytest.mark.parametrize(("make", "typed"), PARTS, ids=IDS)
def test_explain(make, typed):
    """`explain` names the part that met the batch."""
    with simulate_cuda(devices=1):
        model = model_of(make, typed)()
        model.net.to("cuda")
        with pytest.raises(RuntimeError) as caught:
            model.training_step(torch.ones(2, 4, device="cuda"), 0)
        (finding,) = explain(caught.value, model).findings
    assert finding.name == f"self.heads{typed}"


@pytest.mark.parametrize(("make", "typed"), PARTS, ids=IDS)
def test_preflight(make, typed):
    """`preflight` names the part that was moved back to the CPU."""
    findings = preflight(model_of(make, typed), make_loader(2), devices=1, steps=1).findings
    assert f"self.heads{typed}" in [finding.name for finding in findings]


def test_scan():
    """`scan` spells a part of a module as the others do."""
    model = nn.Module()
    model.heads = nn.ModuleDict({"b": nn.Linear(4, 4), "it's": nn.Linear(4, 4)})
    model.heads["b"].mask = torch.ones(4)
    model.heads["it's"].rows = {'say "a"': torch.ones(4)}
    names = [finding.name for finding in scan(model).findings]
    assert names == ['self.heads["b"].mask', 'self.heads["it\'s"].rows[\'say "a"\']']


@pytest.mark.parametrize(
    "allowed",
    ['heads["b"].*', "heads['b'].weight", "heads.b.weight", "self.heads*", "*weight"],
)
def test_what_is_allowed_is_written_in_either_way(allowed):
    """``allow`` takes the name as typed and as torch has it."""
    patterns = frozenset([allowed.replace("'", '"')])
    assert is_allowed(patterns, 'self.heads["b"].weight', torch.device("cpu"))
    assert not is_allowed(patterns, 'self.tails["b"].bias', torch.device("cpu"))


@pytest.mark.parametrize("allowed", ["layers[0].*", "layers.0.*", "layers[[]0].*"])
def test_number_that_is_allowed(allowed):
    """A number in brackets is a part of the name."""
    patterns = frozenset([allowed])
    assert is_allowed(patterns, "self.layers[0].weight", torch.device("cpu"))
    assert not is_allowed(patterns, "self.layers[1].weight", torch.device("cpu"))


def test_path_of_the_root():
    """The root itself is ``self``; a root that is a container has its parts as it has them."""
    assert spell_path(nn.Linear(1, 1), "") == "self"
    assert spell_path(nn.ModuleDict({"a": nn.Linear(1, 1)}), "a.weight") == 'self["a"].weight'


@pytest.mark.parametrize(
    ("name", "attribute"), [("self.heads[0].weight", "heads"), ("self.net.weight", "net"), ('self["a"]', ""), ("w", "")]
)
def test_attribute_that_a_name_begins_with(name, attribute):
    """A name begins with an attribute of the module, or with none."""
    assert Path.parse(name).attribute == attribute


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("x", []),
        ('self.heads["b"].weight', ["heads", "b", "weight"]),
        ('self.rows["it\'s"][0]', ["rows", "it's", "0"]),
        ('self.w["a.b"]["c(d"]', ["w", "a.b", "c(d"]),
        ("self.rows['say \"a\"'].x", ["rows", 'say "a"', "x"]),
        ("self.loss(weight).bias", ["loss", "weight", "bias"]),
        ("self.a-b.weight", ["a-b", "weight"]),
        ('rows[d["k"]][i + 1].x', ['[d["k"]]', "[i + 1]", "x"]),
        ("rows[-1]", ["[-1]"]),
        ("a tensor", []),
    ],
)
def test_a_name_is_taken_apart_and_spelled_again(name, keys):
    """What a name consists of is found whatever the keys are, and spelled as it was."""
    path = Path.parse(name)
    assert str(path) == name
    assert path.keys == keys


@pytest.mark.parametrize(
    ("node", "name"),
    [("x", "x"), ("x.a['b'][0]", 'x.a["b"][0]'), ("f(x).a", "None"), ("x + y", "None"), ("x[f(i)]", "x[f(i)]")],
)
def test_name_of_an_expression(node, name):
    """A variable and a part of one have a name; what has to be computed has none."""
    assert str(Path.of(ast.parse(node, mode="eval").body)) == name


def test_parts_of_paths():
    """A part knows what holds it, what it is in, and its name as the object in between has it."""
    path = Path.parse('self.body.rows["a"].x')
    assert (str(path.parent), str(path.container)) == ('self.body.rows["a"]', "self.body.rows")
    assert path.is_in(Path.parse("self.body"))
    assert not path.is_in(Path.parse("self.bod"))
    assert path.ends_like(Path.parse('self.rows["a"].x'))
    assert not path.ends_like(Path.parse("self.y"))
    assert path.ends_like(path)


KEYS = ["a(b", "a.b", "a[b", "it's", 'say "b"', "a]b"]


class Keyed(Clean):
    """A model that keeps a tensor under a key."""

    def __init__(self, key):
        super().__init__()
        self.key = key
        self.rows = {key: torch.ones(4)}

    def training_step(self, batch, batch_idx):
        return (self.net(batch) * self.rows[self.key]).mean()


@pytest.mark.parametrize("key", KEYS)
def test_any_text_is_a_key(key):
    """`explain` names what a dictionary holds under any text, and finds its line."""
    with simulate_cuda(devices=1):
        model = Keyed(key)
        model.net.to("cuda")
        with pytest.raises(RuntimeError) as caught:
            model.training_step(torch.ones(2, 4, device="cuda"), 0)
        (finding,) = explain(caught.value, model).findings
    assert finding.name == f"self.rows[{quoted(key)}]"
    assert finding.origin.line == "self.rows = {key: torch.ones(4)}"


ROWS = [torch.ones(4)]


def test_item_of_a_constant():
    """A buffer in place of an item of the file's own list has a name that Python takes."""
    with simulate_cuda(devices=1):
        x = torch.ones(4, device="cuda")
        with pytest.raises(RuntimeError) as caught:
            x * ROWS[0]
        (finding,) = explain(caught.value).findings
    assert finding.name == "ROWS[0]"
    assert 'self.register_buffer("rows", ' in finding.fix


class Selfish:
    """Gives back what another object holds, which only running its property would tell."""

    @property
    def weight(self):
        return selfish.weight


selfish = nn.Module()
selfish.weight = torch.ones(4)


def test_property_of_another_object():
    """A property is not run: what it gives has no name, and no other tensor's."""
    owner = Selfish()
    with simulate_cuda(devices=1):
        x = torch.ones(4, device="cuda")
        with pytest.raises(RuntimeError) as caught:
            x * owner.weight
        (finding,) = explain(caught.value).findings
    assert (finding.name, finding.device) == ("a tensor", "cpu")
    assert finding.origin is None


def test_parameters_of_a_dictionary_are_one_finding():
    """Parameters that one container holds are told together, by its name."""
    model = nn.Module()
    model.net = nn.Linear(4, 4)
    model.scales = nn.ParameterDict({key: nn.Parameter(torch.ones(4, device="meta")) for key in "ab"})
    findings = check_devices(model.net(torch.ones(2, 4)).mean(), model).findings
    assert [(finding.rule, finding.name) for finding in findings] == [("meta-parameter", "self.scales")]


def test_keys_on_one_line(tmp_path):
    """Of two statements on a line the one counts that assigns the key, however it is quoted there."""
    place = placed(tmp_path, "kept['a'] = x; kept['b'] = torch.zeros(3)")
    assert spell(statement_at(place, 'kept["b"]')) == 'kept["b"] = torch.zeros(3)'
