"""What a module makes while it is built is mended there; what it makes later, or what torch takes as it is, is not."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import nn

from lightning_devcheck import scan
from tests.helpers.failing import explained
from tests.helpers.mixin import Centred

FILE_GENERATOR = torch.Generator()


class Grid:
    """A mixin with a method that builds and one that is called again and again."""

    def build(self):
        """Make the grid."""
        self.grid = torch.linspace(0, 1, 4)

    def refresh(self):
        """Make the noise."""
        self.noise = torch.rand(4)

    def reset(self):
        """Make the sums."""
        self.sums = torch.zeros(4)


class Model(Grid, nn.Module):
    """A module that has its tensors made by its mixin."""

    def __init__(self):
        super().__init__()
        self.build()
        self.reset()
        self.total = torch.zeros(1)
        self.norms: dict[Any, torch.Tensor] = {}
        self.layer = nn.Linear(4, 4)

    def add_grid(self, x):
        """Meet the grid."""
        return x + self.grid

    def add_noise(self, x):
        """Meet the noise."""
        self.refresh()
        return x + self.noise

    def add_sums(self, x):
        """Meet the sums."""
        self.reset()
        return x + self.sums

    def add_up(self, x):
        """Add to the total."""
        self.total += x.sum()

    def measure(self, x):
        """Keep something on the CPU by parameter."""
        for parameter in self.layer.parameters():
            self.norms[parameter] = parameter.detach().cpu()  # kept
        return [x.mean() * self.norms[parameter] for parameter in self.layer.parameters()]


def test_method_that_init_calls_builds():
    """A plain attribute made by a method that __init__ calls becomes a buffer: self.device is the CPU there."""
    model = Model()
    finding = explained(model.add_grid, model)
    assert (finding.name, finding.fix) == (
        "self.grid",
        'self.register_buffer("grid", torch.linspace(0, 1, 4), persistent=False)',
    )


def test_method_that_the_step_calls_does_not_build():
    """A plain attribute made by a method of the step is made on the device."""
    model = Model()
    assert explained(model.add_noise, model).fix == "self.noise = torch.rand(4, device=self.device)"


def test_method_that_both_call_does_not_build():
    """A buffer registered in the step would be on the CPU again: the attribute is made on the device."""
    model = Model()
    assert explained(model.add_sums, model).fix == "self.sums = torch.zeros(4, device=self.device)"


def test_running_sum_in_an_attribute():
    """A running sum that __init__ starts becomes a buffer."""
    model = Model()
    assert explained(model.add_up, model).fix == 'self.register_buffer("total", torch.zeros(1), persistent=False)'


def test_attribute_of_a_submodule():
    """A tensor in a plain attribute of a sub-module is said to be one, with the whole line to paste."""
    outer = nn.Module()
    outer.part = Model()
    finding = explained(outer.part.add_grid, outer)
    assert finding.name == "self.part.grid"
    assert finding.why == "A tensor in a plain attribute is not moved with the module: only parameters and buffers are."


@dataclasses.dataclass
class Prompt:
    """A parameter in a plain object."""

    tokens: nn.Parameter


class Prompted(nn.Module):
    """A module with a parameter that no device argument would register."""

    def __init__(self):
        super().__init__()
        self.prompt = Prompt(nn.Parameter(torch.zeros(4)))
        teacher = copy.deepcopy(nn.Linear(4, 1))
        self.targets = list(teacher.parameters())

    def forward(self, x):
        """Meet the parameter."""
        return x + self.prompt.tokens

    def against_targets(self, x):
        """Meet the teacher's parameters."""
        return [x.mean() + target for target in self.targets]


def test_parameter_in_a_plain_object():
    """A parameter that is not registered is to be registered, not made on another device."""
    module = Prompted()
    finding = explained(module, module)
    assert (finding.rule, finding.name) == ("unregistered-parameter", "self.prompt.tokens")
    assert finding.fix.startswith("assign it to the module itself")


def test_scan_of_a_parameter_in_a_plain_object():
    """A scan does not advise to make a buffer of a parameter."""
    fixes = {finding.name: finding.fix for finding in scan(Prompted()).findings}
    assert fixes["self.prompt.tokens"].startswith("assign it to the module itself")


def test_copies_of_a_variable_are_not_taken_later():
    """A line that needs a variable of __init__ cannot run in on_fit_start."""
    module = Prompted()
    finding = explained(module.against_targets, module)
    assert finding.name == "self.targets[0]"
    assert "on_fit_start" not in finding.fix


def test_index_on_the_cpu_beside_the_culprit():
    """An index on the CPU is no mistake: the tensor beside it is."""

    def step(x):
        rows = torch.tensor([0, 1])
        weights = torch.ones(2, 4)
        return x[rows] * weights

    assert explained(step).name == "weights"


def test_index_on_the_device_of_a_cpu_tensor():
    """An index on a device does not fit a table on the CPU, which is the mistake."""

    def step(x):
        table = torch.ones(2, 4)
        return table[x.long()[0, :2]]

    assert explained(step).name == "table"


def test_dictionary_by_parameter():
    """What a dictionary holds for a parameter is named by what the key is called."""
    model = Model()
    finding = explained(model.measure, model)
    assert (finding.name, finding.origin.line) == (
        "self.norms[parameter]",
        "self.norms[parameter] = parameter.detach().cpu()  # kept",
    )
    assert finding.fix == "self.norms[parameter] = parameter.detach()"


def test_generator_of_the_file():
    """A generator that was made before the simulation began, in the file itself, is named."""

    def step(x):
        return torch.multinomial(x, 1, generator=FILE_GENERATOR)

    finding = explained(step)
    assert finding.name == "FILE_GENERATOR"


class BuildsCentre(Centred, nn.Module):
    """A module whose mixin is in another file."""

    def __init__(self):
        super().__init__()
        self.build_centre(4)


class MakesCentre(Centred, nn.Module):
    """A module that calls the same method in every step."""

    def forward(self, x):
        """Make the centre, and take it away."""
        self.build_centre(4)
        return self.centred(x)


def test_method_of_another_file_that_init_calls():
    """Whether a method builds is told by the module's class, wherever the method is."""
    module = BuildsCentre()
    fix = 'self.register_buffer("centre", torch.zeros(dim), persistent=False)'
    assert explained(module.centred, module).fix == fix
    assert scan(module).findings[0].fix == fix


def test_method_of_another_file_that_the_step_calls():
    """The same method makes its tensor on the device where the step calls it."""
    module = MakesCentre()
    assert "register_buffer" not in explained(module, module).fix


def scaler(factor):
    """A function that has captured an argument."""
    return lambda x: x * factor


class Captures(nn.Module):
    """A module that keeps functions which have captured tensors."""

    def __init__(self):
        super().__init__()
        weight = torch.ones(4)  # captured
        self.weigh = lambda x: x * weight
        self.scale = scaler(torch.ones(4))  # given


def test_variable_that_a_function_has_captured():
    """A captured variable comes from the line that keeps the function."""
    module = Captures()
    finding = explained(module.weigh, module)
    assert (finding.name, finding.origin.line) == ("self.weigh(weight)", "self.weigh = lambda x: x * weight")


def test_argument_that_a_function_has_captured():
    """A captured argument comes from the line that keeps the function."""
    module = Captures()
    finding = explained(module.scale, module)
    assert (finding.name, finding.origin.line) == ("self.scale(factor)", "self.scale = scaler(torch.ones(4))  # given")
