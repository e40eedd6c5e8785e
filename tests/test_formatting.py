"""How code is set on lines changes nothing that is found in it."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from lightning_devcheck import DeviceCheck, explain, preflight, simulate_cuda
from tests.helpers.source import WIDTHS, format_files, load, needs_ruff, normal
from tests.helpers.training import make_loader, make_trainer

HELPERS = Path(__file__).parent / "helpers"
CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "cases"
# averaging, more than one process: not about a line
NOT_HERE = ("080", "081", "082")
CASES = [path for path in sorted(CORPUS.glob("*.py")) if not path.stem.startswith(NOT_HERE)]

STEPS = '''"""Steps that fail, each in its own way."""

import functools

import torch
import torch as T
from torch import nn, zeros

MAKE = functools.partial(torch.zeros, 4)


def generator(x):
    terms = [x * 2, x * 3]
    return sum(term.cpu() for term in terms) + x


def long_factory(x):
    mask = torch.zeros(4, dtype=torch.float32, requires_grad=False, layout=torch.strided)
    return x * mask


def two_on_a_line(x):
    first = torch.ones(4); second = x + 1; return second * first


def rebound(x):
    mask = torch.ones(4)
    mask = torch.stack([mask * 2, mask * 3]).sum(0)
    return x.add(mask, alpha=2)


def in_a_condition(x):
    if (mask := torch.rand(4)).sum() > -1 and (x * mask).sum() > 0 and x.sum() > 0:
        return x


def alternative(x):
    if x.ndim > 5:
        return x
    elif (mask := torch.rand(4)).sum() > -1 and (x * mask).sum() > 0 and x.sum() > 0:
        return x


def in_a_with(x):
    with torch.autograd.set_grad_enabled(True), torch.autograd.profiler.record_function("a"):
        weight = torch.linspace(0.0, 1.0, 4)
        return (x.detach().clone().requires_grad_().mul(2).add(1) * weight).sum()


def loop_head(x):
    total = 0
    for term in [x * torch.ones(4), x * 2, x * 3, x * 4, x * 5]:
        total = total + term
    return total


def nested_text(x):
    table = {"it's": torch.ones(4), 'a "b"': x}
    return table["it's"] * table['a "b"'] + table["it's"] * 2


def formatted(x):
    table = {"key": "left"}
    kept = {f"{table['key']}_mask": torch.ones(4, dtype=torch.float32)}
    return x * kept[f"{table['key']}_mask"]


def comprehension(x):
    weights = [torch.ones(4), torch.ones(4) * 2]
    return [x * weight for weight in weights if weight.sum() > 0 and weight.numel() == 4]


def lambdas(x):
    scale = torch.ones(4)
    return list(map(lambda y: y * scale, [x, x * 2, x * 3, x * 4, x * 5, x * 6]))


def default(x):
    def multiply(y, weight=torch.ones(4), other=None, third=None, fourth=None, fifth=None):
        return y * weight

    return multiply(x)


def moved(x):
    w = torch.ones(4)
    w.to(x.device)
    return x.mul(2).mul(3).mul(4) * w.reshape(4).reshape(4).reshape(4)


def running(x):
    total = torch.zeros(4)
    total += (x * 2).sum(0).mul(3).add(4).sub(5).div(6)
    return total


def imported_name(x):
    return x * zeros(4)


def imported_module(x):
    offset = T.zeros(4, dtype=T.float32)
    return x + offset


def local_name(x):
    make = torch.zeros
    offset = make(4)
    return x + offset


def partially(x):
    offset = MAKE()
    return x + offset


def sum_from_zeros(x):
    return sum([x * 2, x * 3, x * 4, x * 5], torch.zeros(4)) + x.sum().mul(2)


class Keeper(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float32)
        self.table = {"a": torch.ones(4), "it's": torch.ones(4), "number three": torch.ones(4)}

    def kept(self, x):
        return x * self.weights

    def part(self, x):
        return x * self.table["it's"] + x.mul(2).mul(3)


def kept(x):
    return Keeper().kept(x)


def part(x):
    return Keeper().part(x)
'''
NAMES = [line[4 : line.index("(")] for line in STEPS.splitlines() if line.startswith("def ")]


def essence(findings):
    """What formatting must not change."""
    return [(f.rule, normal(f.name), normal(f.why), normal(f.fix)) for f in findings]


@functools.cache
def module(folder, name):
    """A file as a module, once."""
    return load(folder / f"{name}.py", f"{folder.name}_{name}")


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Folders with the steps and the models: as they are, and as ruff formats them to each width."""
    folders = {}
    for width in (None, *WIDTHS):
        folders[width] = folder = tmp_path_factory.mktemp(f"width_{width}")
        (folder / "steps.py").write_text(STEPS, encoding="utf-8")
        shutil.copy(HELPERS / "mistakes.py", folder)
        if width is not None:
            format_files(folder, width)
    return folders


def explained(step):
    """What `explain` says of a step on the second of two devices."""
    with simulate_cuda(devices=2):
        torch.cuda.set_device(1)
        try:
            step(torch.ones(2, 4, device="cuda:1"))
        except RuntimeError as error:
            return explain(error).findings
    raise AssertionError("nothing was raised")


@needs_ruff
@pytest.mark.parametrize("name", NAMES)
def test_steps(versions, name):
    """A failing step is explained alike, however it is set."""
    found = {width: explained(getattr(module(folder, "steps"), name)) for width, folder in versions.items()}
    plain = essence(found.pop(None))
    assert plain[0][2:] != essence(explained(lambda x: x * [torch.ones(4)][0]))[0][2:], "no cause was found"
    assert {width: essence(findings) for width, findings in found.items()} == dict.fromkeys(WIDTHS, plain)


def checked(model):
    """What `DeviceCheck` finds in one batch of a model."""
    check = DeviceCheck("ignore")
    with simulate_cuda(devices=2):
        make_trainer(accelerator="gpu", devices=[1], callbacks=check).fit(model(), make_loader(1))
    return check.report.findings


@needs_ruff
@pytest.mark.parametrize("width", WIDTHS)
def test_models(versions, width):
    """Every model with a mistake gets the same findings, however it is set."""
    plain, formatted = (module(versions[key], "mistakes") for key in (None, width))
    found = {model.__name__: essence(checked(model)) for model in plain.MISTAKES}
    again = {model.__name__: essence(checked(model)) for model in formatted.MISTAKES}
    assert again == found


def of_case(path):
    """What `preflight` finds in a case of the corpus."""
    case = load(path, f"corpus_{path.parent.name}_{path.stem}")
    data = DataLoader([case.make_batch() for _ in range(2)], batch_size=None, collate_fn=lambda batch: batch)
    return essence(preflight(case.Model, data, devices=2, steps=1).findings)


@needs_ruff
@pytest.mark.skipif(not CASES, reason="the corpus is not at hand")
@pytest.mark.parametrize("path", [path for path in CASES if "needs_nccl" not in path.read_text()], ids=lambda p: p.stem)
def test_corpus(tmp_path, path):
    """Every case of the corpus has the same findings at the narrowest width."""
    shutil.copy(path, tmp_path)
    format_files(tmp_path, min(WIDTHS))
    assert of_case(tmp_path / path.name) == of_case(path)
