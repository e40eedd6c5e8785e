"""What a training step costs on a simulated device, operator by operator, beside the least that looks at them."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import multiprocessing
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.ops import dispatch
from lightning_devcheck._simulate.state import running
from tests.benchmarks._measure import Ratio, Table, goal, measure, ratio
from tests.benchmarks._models import resnet50

COMMAND = "python -m tests.benchmarks simulation"
THREE = "all three"
Built = tuple[nn.Module, torch.Tensor]


def _transformer(layers: int, width: int, heads: int, batch: int, length: int) -> Built:
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), torch.randn(batch, length, width)


def _resnet() -> Built:
    return resnet50(), torch.randn(4, 3, 112, 112)


def builds() -> dict[str, tuple[Callable[[], Built], float]]:
    """Name → how to make model and batch, and the ratio to stay below."""
    return {
        "transformer, 4 layers of width 64": (lambda: _transformer(4, 64, 4, 8, 16), 4.0),
        "transformer, 12 layers of width 768": (lambda: _transformer(12, 768, 12, 2, 64), 1.2),
        "ResNet-50, batch 4, 112 x 112": (_resnet, 1.3),
    }


class Redispatch(TorchDispatchMode):
    """The least that sees every operator: it counts, and runs it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        self.count += 1
        return func(*args, **(kwargs or {}))


class Pass(TorchFunctionMode):
    """The least that sees every call above the dispatcher."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make one call."""
        return func(*args, **(kwargs or {}))


class Wrapper(torch.Tensor):
    """The least of a tensor subclass that holds a CPU tensor: unwrap, run, wrap."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls: type[Wrapper], inner: torch.Tensor) -> Wrapper:
        """Wrap a CPU tensor."""
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device="meta")
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator on what the arguments hold."""
        return cls(func(*(arg.inner if type(arg) is Wrapper else arg for arg in args), **(kwargs or {})))


def step(model: nn.Module, inputs: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    """One training step."""
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def stepper(model: nn.Module, inputs: torch.Tensor) -> Callable[[Any], None]:
    """A training step with an optimizer of its own."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    return lambda _: step(model, inputs, optimizer)


def faked(model: nn.Module, fake: FakeTensorMode) -> nn.Module:
    """The model with fake parameters and buffers; a deep copy of fake ones would have other modes."""
    for part in model.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(fake.from_tensor(parameter.detach())))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, fake.from_tensor(buffer))
    return model


def times_of(build: Callable[[], Built], rounds: int) -> dict[str, list[float]]:
    """Seconds of the same step plain, simulated, and under what else sees every operator."""
    model, inputs = build()
    with simulate_cuda():
        simulated = stepper(copy.deepcopy(model).to("cuda:1"), inputs.to("cuda:1"))
    fake = FakeTensorMode()
    contenders = {
        "CPU": stepper(model, inputs),
        "simulated": simulated,
        "re-dispatched": stepper(copy.deepcopy(model), inputs),
        "FakeTensorMode": stepper(faked(copy.deepcopy(model), fake), fake.from_tensor(inputs)),
    }
    contexts = {"simulated": simulate_cuda, "re-dispatched": Redispatch, "FakeTensorMode": lambda: fake}
    return measure(contenders, contexts=contexts, rounds=rounds)


def operators_of(model: nn.Module, inputs: torch.Tensor) -> int:
    """How many operators a plain step dispatches."""
    with Redispatch() as seen:
        step(model, inputs, torch.optim.SGD(model.parameters(), 0.01))
    return seen.count


def steps_table(quick: bool) -> Table:
    """Steps as times the CPU's, and what each operator costs more."""
    rows, goals, bars = [], [], []
    for name, (build, limit) in builds().items():
        torch.manual_seed(0)
        count = operators_of(*build())
        times = times_of(build, 1 if quick else 20)
        ratios = {key: ratio(values, times["CPU"]) for key, values in times.items()}
        more = {key: _per_operator(times[key], times["CPU"], count) for key in ("simulated", "re-dispatched")}
        base = 1e3 * ratios["CPU"].seconds
        cells = (str(ratios["simulated"]), str(ratios["re-dispatched"]), str(ratios["FakeTensorMode"]))
        rows.append((name, f"{base:.1f}", f"{count:,}", *cells, *(f"{1e6 * value:.1f}" for value in more.values())))
        goals.append(goal(f"{name}: at most {limit}", ratios["simulated"].median, limit, why=_why(ratios)))
        bars.append((name, ratios["simulated"].median))
    columns = (
        "model",
        "CPU, ms",
        "operators",
        "simulated",
        "re-dispatched only",
        "FakeTensorMode (computes nothing)",
        "simulated: more an operator, µs",
        "re-dispatched: more an operator, µs",
    )
    note = (
        "A `TorchDispatchMode` that only runs the operator again is the limit of anything in Python that sees every "
        "operator. FakeTensorMode computes no values, so its ratio falls with the size of the tensors; for small ones "
        f"it is what another complete simulation of devices costs. Entering and leaving the simulation, once in a run, "
        f"takes {1e3 * statistics.median(measure({'': _enter})['']):.1f} ms more."
    )
    title = "A simulated training step: times the CPU step"
    marks = tuple(limit for _, limit in builds().values())
    return Table(title, columns, tuple(rows), COMMAND, tuple(goals), (note,), tuple(bars), "times the CPU step", marks)


def _enter(_: Any) -> None:
    with simulate_cuda():
        pass


def _per_operator(times: list[float], base: list[float], count: int) -> float:
    return statistics.median(mine - plain for mine, plain in zip(times, base, strict=True)) / count


def _why(ratios: dict[str, Ratio]) -> str:
    return f"re-dispatching alone is {ratios['re-dispatched'].median:.2f}"


KINDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "an addition": lambda tensor: torch.add(tensor, tensor),
    "an operator in place": lambda tensor: tensor.mul_(1.0),
    "a view": lambda tensor: tensor.t(),
}


def ladder_table(quick: bool) -> Table:
    """Small operators under one thing more at a time: where the time of a simulated operator goes."""
    plain, fake = torch.ones(2, 2), FakeTensorMode()
    with simulate_cuda():
        simulated = plain.to("cuda:1")
    ways: dict[str, tuple[torch.Tensor, Callable[[], Any]]] = {
        "plain": (plain, contextlib.nullcontext),
        "a function mode that passes": (plain, Pass),
        "a dispatch mode that runs it again": (plain, Redispatch),
        "a subclass that unwraps and wraps": (Wrapper(plain), contextlib.nullcontext),
        THREE: (Wrapper(plain), _both),
        "simulated": (simulated, simulate_cuda),
        "FakeTensorMode": (fake.from_tensor(plain), lambda: fake),
    }
    number = 20 if quick else 2000
    micros = {}
    for name, (tensor, context) in ways.items():
        with context():
            calls = {kind: functools.partial(_repeat, call, tensor, number) for kind, call in KINDS.items()}
            times = measure(calls, rounds=9)
        micros[name] = [1e6 * statistics.median(times[kind]) / number for kind in KINDS]
    rows = tuple((name, *(f"{value:.2f}" for value in values)) for name, values in micros.items())
    ours = ", ".join(
        f"{mine - least:.1f} of the {mine:.1f} µs of {kind}"
        for kind, mine, least in zip(KINDS, micros["simulated"], micros[THREE], strict=True)
    )
    note = (
        "The three in the middle, each doing nothing, are torch's ways into Python and back: together they are the "
        "limit of a simulation by tensor subclass and modes. What is ours beyond them, the rules of devices and a "
        f"result with the strides and aliases of the real one: {ours}."
    )
    columns = ("four numbers, µs", *KINDS)
    return Table("Where the time of an operator goes", columns, rows, COMMAND, notes=(note,))


@contextlib.contextmanager
def _both() -> Any:
    with Redispatch(), Pass():
        yield


def _repeat(call: Callable[[torch.Tensor], Any], tensor: torch.Tensor, number: int, _: Any) -> None:
    for _ in range(number):
        call(tensor)


def _peak(name: str, simulated: bool, queue: Any) -> None:
    """Put the growth of this process's peak memory over three steps, in MB."""
    torch.set_num_threads(1)
    model, inputs = builds()[name][0]()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _peak_mb()
    with simulate_cuda() if simulated else contextlib.nullcontext():
        if simulated:
            model, inputs = model.to("cuda:1"), inputs.to("cuda:1")
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(3):
            step(model, inputs, optimizer)
    queue.put(_peak_mb() - before)


def _peak_mb() -> float:
    """The peak of this process's memory; what `resource` tells is that of the parent where it had more."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _peak_beside(name: str, simulated: bool, method: str) -> float:
    """What `_peak` finds in another process."""
    context: Any = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=_peak, args=(name, simulated, queue))
    process.start()
    process.join()
    return float(queue.get())


def memory_table(quick: bool) -> Table:
    """Peak memory of three steps, in a process of their own."""
    rows = []
    for name in list(builds())[:1] if quick else builds():
        peaks = [_peak_beside(name, simulated, "fork" if quick else "spawn") for simulated in (False, True)]
        rows.append((name, f"{peaks[0]:.0f}", f"{peaks[1]:.0f}", f"{peaks[1] - peaks[0]:+.0f}"))
    columns = ("model", "CPU steps, MB", "simulated steps, MB", "more, MB")
    note = (
        "Growth of the peak beyond the model itself, its move included. The values are the CPU's own tensors, "
        "not copies of them."
    )
    return Table("Memory of a simulated step", columns, tuple(rows), COMMAND, notes=(note,))


@contextlib.contextmanager
def _unwatched() -> Any:
    """A simulation that writes down no places."""
    with mock.patch.object(dispatch, "watch", _write_down_nothing), simulate_cuda():
        yield


def _write_down_nothing(*_: Any) -> None:
    """Stand for what writes places down; calling a mock takes longer than that does itself."""


def witness_table(quick: bool) -> Table:
    """Steps with and without the places that decided the tensors' devices."""
    rows = []
    for name, (build, _) in builds().items():
        torch.manual_seed(0)
        model, inputs = build()
        with simulate_cuda():
            watched = stepper(copy.deepcopy(model).to("cuda:1"), inputs.to("cuda:1"))
        contenders = {"off": watched, "on": watched}
        contexts = {"off": _unwatched, "on": simulate_cuda}
        times = measure(contenders, contexts=contexts, rounds=1 if quick else 20)
        rows.append((name, str(ratio(times["on"], times["off"]))))
    steps = 20 if quick else 10_000
    context: Any = multiprocessing.get_context("fork" if quick else "spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=_last, args=(steps, queue))
    process.start()
    process.join()
    note = "{0:,} steps of a small model, after {1:,}: {2:+d} entries, {3:+d} places, {4:+d} code objects, {5:+d} KiB."
    columns = ("model", "times a simulated step that writes down nothing")
    notes = (note.format(steps, steps // 10, *queue.get()),)
    return Table("What the witness costs", columns, tuple(rows), COMMAND, notes=notes)


def _last(steps: int, queue: Any) -> None:
    """Put what many steps add to what a tenth of them have written down."""
    torch.set_num_threads(1)
    with simulate_cuda():
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to("cuda:1")
        optimizer = torch.optim.Adam(model.parameters())
        counts = []
        for count in (steps // 10, steps):
            for _ in range(count):
                step(model, torch.randn(2, 8).to("cuda:1"), optimizer)
            gc.collect()
            counts.append(_written_down())
    before, after = counts
    queue.put([late - early for early, late in zip(before, after, strict=True)])


def _written_down() -> tuple[int, int, int, int]:
    """Entries of plain tensors, places, code objects, and KiB of memory in use."""
    simulation = running()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kib = int(status.partition("VmRSS:")[2].split()[0])
    places = simulation.places
    return len(simulation.places_of_plain), len(places._places), len(places._codes), kib


def tables(quick: bool = False) -> list[Table]:
    """Steps, one operator, memory, the witness."""
    found = [steps_table(quick), ladder_table(quick)]
    if Path("/proc/self/clear_refs").exists():
        found += [memory_table(quick), witness_table(quick)]
    return found
