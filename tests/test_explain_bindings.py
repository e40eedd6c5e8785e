"""`explain` and every way a name gets its value: each culprit is named, with the line marked ``# here``."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import types
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tests.helpers.failing import explained
from tests.helpers.source import is_marked

CASES: list[tuple[Any, str]] = []


def culprit(name):
    """Mark a step that fails because of what is called ``name``."""
    return lambda step: CASES.append((step, name)) or step


@culprit("mask")
def walrus(x):
    return (x * mask) if (mask := torch.ones(4)).any() else x  # here


@culprit("b")
def nested_unpacking(x):
    a, (b, _) = x, (torch.ones(4), 2)  # here
    return a * b


@culprit("rest[1]")
def starred_unpacking(x):
    a, *rest = x, 1, torch.ones(4)  # here
    return a * rest[1]


@culprit("total")
def augmented_assignment_to_a_number(x):
    total = 0
    total += torch.zeros(1)  # here
    total += x.mean()


@culprit("weights[0]")
def zipped(x):
    weights = [torch.ones(4)]  # here
    return [row * weight for row, weight in zip(x, weights, strict=False)]


@culprit("weights")
def rows_of_a_tensor(x):
    weights = torch.rand(2, 4)  # here
    for i, weight in enumerate(weights):
        x = x * weight * i


@culprit("weights")
def rows_in_a_comprehension(x):
    weights = torch.rand(2, 4)  # here
    return {i: x * weight[None] for i, weight in enumerate(weights)}


@contextlib.contextmanager
def provided():
    yield torch.ones(4)  # here


@culprit("mask")
def given_by_with(x):
    with provided() as mask:
        return x * mask


def scaled(y, *, weight=torch.ones(4)):  # noqa: B008  # here
    return y * weight


@culprit("weight")
def keyword_default(x):
    return scaled(x)


@culprit("offset")
def closure_in_a_closure(x):
    offset = torch.ones(4)  # here

    def outer(y):
        def inner(z):
            return z + offset

        return inner(y)

    return outer(x)


@culprit("mask")
def set_by_an_inner_function(x):
    mask = None

    def prepare():
        nonlocal mask
        mask = torch.ones(4)  # here

    prepare()
    return x * mask


SETTINGS = {"loss": {"weight": torch.ones(4)}}  # here


@culprit('SETTINGS["loss"]["weight"]')
def global_dict(x):
    return x * SETTINGS["loss"]["weight"]


class Constants:
    MEAN = torch.ones(4)  # here


@culprit("Constants.MEAN")
def class_attribute(x):
    return x - Constants.MEAN


class Centred(nn.Module):
    mean = torch.ones(4)  # here

    def forward(self, x):
        return x - self.mean


@culprit("self.mean")
def class_attribute_through_self(x):
    return Centred()(x)


@dataclasses.dataclass
class Settings:
    weight: torch.Tensor
    scale: float = 1.0


@culprit("settings.weight")
def dataclass_field(x):
    settings = Settings(weight=torch.ones(4))  # here
    return x * settings.weight * settings.scale


class Two(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@culprit("two.right")
def named_tuple(x):
    two = Two(x, torch.ones(4))  # here
    return two.left * two.right


@culprit('settings["b"]')
def item_set_later(x):
    settings = {"a": 1}
    settings["b"] = torch.ones(4)  # here
    return x * settings["b"]


@culprit('settings["b"]')
def item_that_is_set_twice(x):
    settings = {"a": x, "b": x}
    settings["b"] = torch.ones(4)  # here
    settings["a"] = 3
    return x * settings["b"]


@culprit('settings["weight"]')
def key_in_a_variable(x):
    key, settings = "weight", {"weight": torch.ones(4)}  # here
    return x * settings[key]


@culprit("settings.weight")
def attribute_set_later(x):
    settings = types.SimpleNamespace()
    settings.weight = torch.ones(4)  # here
    return x * settings.weight


@culprit("norm.running_mean")
def buffer_of_a_local_module(x):
    norm = nn.BatchNorm1d(4).to(x.device)
    norm.running_mean = torch.zeros(4)  # here
    return norm(x)


@culprit("terms[0]")
def appended(x):
    terms = []
    terms.append(torch.zeros(1))  # here
    terms.append(x.mean()[None])
    return torch.cat(terms)


@culprit("loss.args[0]")
def positional_argument_of_a_partial(x):
    loss = functools.partial(torch.mul, torch.ones(4))  # here
    return loss(x)


@culprit("scale")
def decorator(x):
    def scaling(function):
        scale = torch.ones(4)  # here
        return functools.wraps(function)(lambda y: function(y) * scale)

    return scaling(lambda y: y)(x)


def weights_one_by_one():
    for _ in range(2):
        yield torch.ones(4)  # here


@culprit("weight")
def taken_from_a_generator(x):
    for weight in weights_one_by_one():
        x = x * weight


@culprit("weight")
def captured_by_match(x):
    weight = torch.ones(4)  # here
    match {"key": weight}:
        case {"key": found}:
            return x * found


@culprit("weight")
def coroutine_argument(x):
    async def multiply(y, factor):
        return y * factor

    async def run():
        weight = torch.ones(4)  # here
        return await multiply(x, factor=weight)

    asyncio.run(run())


@culprit("mask")
def the_other_branch_names_a_device(x):
    if x.dim() == 2:
        mask = torch.ones(4)  # here
    elif x.dim() == 3:
        mask = torch.ones(4, device=x.device)
    return x * mask


@culprit("mask")
def rebound_to_what_follows_from_it(x):
    mask = torch.ones(4, dtype=torch.int64)  # here
    mask = mask.to(torch.float32)
    mask = mask.view(1, 4)
    return x * mask


@culprit("mask")
def first_name_is_gone(x):
    first = torch.ones(4)  # here
    mask = first * 2
    del first
    return x * mask


@culprit("distribution.loc")
def sampled(x):
    distribution = torch.distributions.Normal(torch.zeros(4), torch.ones(4))  # here
    noise = distribution.sample()
    return x + noise


@culprit("ones(4)")
def imported_factory(x):
    from torch import ones

    return x * ones(4)  # here


def table(size):
    steps = torch.arange(size)  # here
    return steps.float() / size


@culprit("ramp")
def made_by_a_function(x):
    ramp = table(4) * 2
    return x * ramp


@culprit("table(4)")
def made_by_a_function_on_the_line(x):
    return torch.mul(x, table(4))  # here


class Keeper(nn.Module):
    """Keeps tensors in ways that are not ``self.name = tensor``."""

    def __init__(self):
        super().__init__()
        setattr(self, "late", torch.ones(4))  # noqa: B010  # here
        self.rows = []
        self.rows.append(torch.ones(4))  # here
        self.by_name = {}
        self.by_name["key"] = torch.ones(4)  # here
        self.first = self.second = torch.ones(4)  # here


class Inherited(Keeper):
    """Has no lines of its own."""

    def step(self, x):
        return x


KEPT = {
    "self.late": lambda self, x: x * self.late,
    "self.rows[0]": lambda self, x: x * self.rows[0],
    'self.by_name["key"]': lambda self, x: x * self.by_name["key"],
    "self.second": lambda self, x: x * self.second,
}


@pytest.mark.parametrize(("step", "name"), CASES, ids=[step.__name__ for step, _ in CASES])
def test_how_a_name_is_bound(step, name):
    """The culprit has the user's name, and the line that decided its device."""
    finding = explained(step)
    assert finding.name == name
    assert is_marked(finding.origin, "# here")


@pytest.mark.parametrize("name", KEPT)
def test_how_an_attribute_is_set(name):
    """The culprit is named as it is kept, with the line of the base class that put it there."""
    module = Inherited()
    finding = explained(functools.partial(KEPT[name], module), module)
    assert finding.name == name
    assert is_marked(finding.origin, "# here")
