"""Look at a backward that a program calls by itself: what is trained there is told by the leaves."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from time import perf_counter
from types import FrameType
from typing import Any

import torch

from lightning_devcheck._explain.frames import Frame, read_stack
from lightning_devcheck._explain.live import Caller
from lightning_devcheck._explain.result import made_at, made_by_method
from lightning_devcheck._judge.backward import Evidence, diagnose
from lightning_devcheck._judge.loop import in_loop_words, judge_cut
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.expectation import Expectation
from lightning_devcheck._observe.graph import record_graph
from lightning_devcheck._observe.inert import inside, is_a, is_module
from lightning_devcheck._observe.module_tree import ModuleTree, tensors_of
from lightning_devcheck._observe.unregistered import unregistered
from lightning_devcheck._report.records import Finding, GraphRecord, Origin, TensorRecord
from lightning_devcheck._report.report import Report
from lightning_devcheck._source.files import is_installed

CPU = torch.device("cpu")
# what of a call's text is short enough for a name
MAX_NAME = 60


@dataclass
class Line:
    """A line of a program that calls backward.

    Attributes:
        looks: How often it was looked at.
        versions: How often each parameter that no optimizer holds had been changed when it was first seen, by its id.
    """

    looks: int = 0
    versions: dict[int, int] = field(default_factory=dict)


def inspect_loop(
    loss: torch.Tensor,
    number: int,
    line: Line,
    frame: FrameType | None,
    optimized: Mapping[int, Origin | None],
    *,
    trains: bool,
    step_of: type | None = None,
) -> tuple[Report, frozenset[torch.device]]:
    """Check a tensor that backward begins with, and the leaves of its graph.

    Nothing is read of the program's variables where all is as it should be.

    Args:
        loss: The tensor.
        number: Its position among those that the call was given.
        line: The line that calls.
        frame: The frame that calls, the program's own.
        optimized: The line that made the optimizer which holds a tensor, by the tensor's id.
        trains: Whether gradients go to leaves.
        step_of: The class whose ``training_step`` gave the tensor, where a Trainer calls.

    Returns:
        The report, and where that is trained which the loss reaches.
    """
    start = perf_counter()
    seen = _Seen(line, optimized)
    graph = record_graph(loss, seen.by_number)
    expectation = _expected(graph)
    findings: list[Finding] = []
    if not graph.num_nodes:
        findings += _cut(loss, graph, _Program(frame, number, step_of), any_trained=bool(optimized))
    elif expectation.devices:
        certain = seen.unoptimized if trains else frozenset()
        if diagnose(_evidence(graph, expectation, certain, {})):
            findings += _named(loss, seen, expectation, certain, _Program(frame, number, step_of))
    tensors = len(graph.leaves) + 1
    checked = {"tensors": tensors, "graph_nodes": graph.num_nodes, "seconds": perf_counter() - start}
    report = Report(tuple(findings), checked, (*graph.not_checked, *expectation.not_checked))
    return report, expectation.devices


def name_of_trained(frame: FrameType | None, loss: torch.Tensor) -> tuple[str, Origin | None]:
    """Name what a loss trains by the variable that holds it, with the line that decided its device."""
    found: dict[str, TensorRecord] = {}
    names: dict[int, _Found] = {}

    def collect(leaf: torch.Tensor) -> tuple[str, bool]:
        names[id(leaf)] = _Found(str(id(leaf)))
        return str(id(leaf)), True

    graph = record_graph(loss, collect)
    program = _Program(frame, 0)
    named = program.names(names.keys())
    for leaf in graph.leaves:
        known = named.get(int(leaf.name))
        if known is not None:
            found[known.name] = leaf
    if not found:
        return "the model", next((leaf.decided for leaf in graph.leaves if leaf.decided), None)
    name, leaf = next(iter(found.items()))
    return name.partition(".")[0] if not name.startswith("self.") else name, leaf.decided


class _Seen:
    """The leaves of a graph, by number until somebody asks for names."""

    def __init__(self, line: Line, optimized: Mapping[int, Origin | None]) -> None:
        self._line, self._optimized = line, optimized
        self.lines: dict[str, Origin | None] = {}
        self._untrained: set[int] = set()
        self._meets_optimizer = False

    def by_number(self, leaf: torch.Tensor) -> tuple[str, bool]:
        """Call a leaf by its id, and tell whether it is trained."""
        key = id(leaf)
        is_optimized = key in self._optimized
        is_trained = is_optimized or isinstance(leaf, torch.nn.Parameter)
        if is_optimized:
            self._meets_optimizer = True
            self.optimizer_line = self._optimized[key]
        elif is_trained and self._is_unchanged(leaf):
            self._untrained.add(key)
        return str(key), is_trained

    optimizer_line: Origin | None = None

    def _is_unchanged(self, leaf: torch.Tensor) -> bool:
        """Whether nothing has changed a parameter since an earlier call of this line: by then it had its chance."""
        versions = self._line.versions
        known = versions.setdefault(id(leaf), leaf._version)
        return self._line.looks > 0 and known == leaf._version

    @property
    def unoptimized(self) -> frozenset[int]:
        """The ids of the parameters that no optimizer holds, where one holds others of the same graph."""
        return frozenset(self._untrained) if self._meets_optimizer else frozenset()


@dataclass(frozen=True, slots=True)
class _Found:
    """What a program calls a tensor.

    Attributes:
        name: As typed.
        origin: The line that made it, where a class has one.
        is_registered: Whether it is no parameter that its module forgets.
    """

    name: str
    origin: Origin | None = None
    is_registered: bool = True


class _Program:
    """The frames that led to a backward; nothing is read of them before a question is asked."""

    def __init__(self, frame: FrameType | None, number: int, step_of: type | None = None) -> None:
        self._frame, self._number, self._step_of = frame, number, step_of
        self.module: torch.nn.Module | None = None

    def frames(self) -> list[Frame]:
        """List the program's frames, innermost first; those of libraries come last."""
        frames = [frame for frame in reversed(read_stack(self._frame)) if frame.is_user]
        return sorted(frames, key=lambda frame: is_installed(frame.filename))

    def names(self, wanted: Set[int]) -> dict[int, _Found]:
        """Find tensors in the program's variables, by their ids."""
        found: dict[int, _Found] = {}
        for frame in self.frames():
            for variables in (frame.names, frame.globals):
                for key, named in self._in_variables(variables, wanted):
                    best = found.get(key)
                    if best is None or len(named.name) < len(best.name):
                        found[key] = named
                if found.keys() >= wanted:
                    return found
        return found

    def _in_variables(self, variables: Mapping[str, Any], wanted: Set[int]) -> Iterator[tuple[int, _Found]]:
        seen: set[int] = set()
        for variable, value in list(variables.items()):
            if variable.startswith("__") or is_a(value, torch.optim.Optimizer):
                continue
            for name, held in inside(value, variable, seen=seen):
                yield from self._in_value(name, held, wanted)

    def _in_value(self, name: str, held: Any, wanted: Set[int]) -> Iterator[tuple[int, _Found]]:
        if is_a(held, torch.Tensor):
            if id(held) in wanted and "param_groups" not in name:
                yield id(held), _Found(name)
            return
        if not is_module(held):
            return
        for typed, tensor in tensors_of(held, name):
            if id(tensor) in wanted:
                self.module = self.module or held
                yield id(tensor), _Found(typed)
        for place in unregistered(held, ModuleTree(held, name)):
            held_there = (
                [(place.name, place.value)] if is_a(place.value, torch.Tensor) else tensors_of(place.value, place.name)
            )
            for typed, tensor in held_there:
                if id(tensor) in wanted:
                    yield id(tensor), _Found(typed, place.origin, is_registered=False)

    def loss(self) -> tuple[str, Origin | None]:
        """What the call is given, as typed, and the line that made it."""
        frame = next(iter(self.frames()), None)
        if frame is None:
            return "loss", None
        if self._step_of is not None:
            return "loss", made_by_method(self._step_of, "training_step", frame)
        call = frame.failing()
        given = self._given(call) if isinstance(call, ast.Call) else None
        if given is None:
            return "loss", None
        name = ast.unparse(given)
        return name if len(name) <= MAX_NAME else "loss", made_at(given, frame)

    def _given(self, call: ast.Call) -> ast.expr | None:
        """What a call differentiates: its first argument, or, of a tensor's own method, what has the method."""
        function = call.func
        holds = isinstance(function, ast.Attribute) and function.attr == "backward"
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        first = next(iter(call.args), named.get("tensors") or named.get("outputs") or named.get("loss"))
        if holds and isinstance(function, ast.Attribute) and not self._takes_tensors(function.value):
            return function.value
        if isinstance(first, (ast.List, ast.Tuple)):
            return first.elts[self._number] if self._number < len(first.elts) else None
        return first

    def _takes_tensors(self, owner: ast.expr) -> bool:
        """Whether what has a method ``backward`` is no tensor: ``torch.autograd``, Fabric, an accelerator."""
        frame = self.frames()[0]
        base = next((node for node in ast.walk(owner) if isinstance(node, ast.Name)), None)
        if not isinstance(owner, (ast.Name, ast.Attribute)) or base is None:
            return False
        value = frame.lookup(base.id)
        if isinstance(owner, ast.Name):
            return not is_a(value, torch.Tensor)
        held = dict(inside(value, base.id))
        return not is_a(held.get(ast.unparse(owner)), torch.Tensor)

    def line_of(self, tensor: torch.Tensor) -> Origin | None:
        """The line that made a tensor which a variable holds."""
        own = self._own_frame()
        if own is None:
            return None
        known = Caller(own, self.module or torch.nn.Module()).history(tensor, None)
        return None if known is None else known.origin

    def calling_line(self) -> Origin | None:
        """The line that calls backward."""
        if self._step_of is not None:
            return None  # a Trainer does
        return next((frame.origin for frame in self.frames()), None)

    def in_its_words(self, finding: Finding, expected: torch.device | None) -> Finding:
        """A finding whose fix uses what the program has."""
        own = self._own_frame()
        if own is None:
            return finding
        return Caller(own, self.module or torch.nn.Module()).in_its_words(finding, expected)

    def _own_frame(self) -> FrameType | None:
        frame = self._frame
        while frame is not None and is_installed(frame.f_code.co_filename):
            frame = frame.f_back
        return frame


def _expected(graph: GraphRecord) -> Expectation:
    """Expect what is trained: on its devices, and where one of these is no CPU, not on that."""
    devices = {leaf.device for leaf in graph.leaves if leaf.registered and leaf.device.type != "meta"}
    others = devices - {CPU}
    reasons: tuple[str, ...] = ()
    if len(others) > 1:
        reasons = (f"the parameters are on {len(others)} devices: taken as model parallel, each of them is right",)
    return Expectation(frozenset(others or devices), not_checked=reasons)


def _evidence(
    graph: GraphRecord,
    expectation: Expectation,
    unoptimized: Iterable[str] | Set[int],
    origins: Mapping[str, Origin],
    **lines: Any,
) -> Evidence:
    left_out = set(map(str, unoptimized))
    trained = [leaf for leaf in graph.leaves if leaf.registered]
    optimized = frozenset(leaf.name for leaf in trained if leaf.name not in left_out) if left_out else None
    return Evidence(graph, trained, expectation, origins=origins, optimized=optimized, strict=False, **lines)


def _named(
    loss: torch.Tensor, seen: _Seen, expectation: Expectation, unoptimized: frozenset[int], program: _Program
) -> Iterator[Finding]:
    """Judge once more, with the names that the program uses."""
    leaves: dict[int, bool] = {}

    def collect(leaf: torch.Tensor) -> tuple[str, bool]:
        name, is_trained = seen.by_number(leaf)
        leaves[id(leaf)] = is_trained
        return name, is_trained

    record_graph(loss, collect)
    found = program.names(leaves.keys())
    unnamed = itertools.count(1)
    names: dict[int, str] = {}
    for key, is_trained in leaves.items():
        kind = "a parameter" if is_trained else "a leaf tensor"
        number = next(unnamed) if key not in found else 0
        names[key] = found[key].name if key in found else f"{kind} ({number})" if number > 1 else kind

    def by_name(leaf: torch.Tensor) -> tuple[str, bool]:
        key = id(leaf)
        forgotten = key in found and not found[key].is_registered and key in unoptimized
        return names[key], leaves[key] and not forgotten

    graph = record_graph(loss, by_name)
    origins = {leaf.name: leaf.decided for leaf in graph.leaves if leaf.decided is not None}
    origins |= {names[key]: place.origin for key, place in found.items() if place.origin is not None}
    lines = {"optimizer_line": seen.optimizer_line, "loss_line": graph.loss.decided or program.line_of(loss)}
    left_out = [names[key] for key in unoptimized]
    here = next(iter(sorted(expectation.devices, key=str)), None)
    called, _ = program.loss()
    for finding in diagnose(_evidence(graph, expectation, left_out, origins, **lines)):
        finding = program.in_its_words(in_loop_words(finding), here)
        yield replace(finding, name=called) if finding.name == "loss" else finding


def _cut(loss: torch.Tensor, graph: GraphRecord, program: _Program, *, any_trained: bool) -> Iterator[Finding]:
    """Judge a tensor that no graph leads to."""
    fails = not loss.requires_grad
    is_trained = any(leaf.registered for leaf in graph.leaves)
    if not fails and (is_trained or not any_trained):
        return
    name, made = program.loss()
    origin = made or program.line_of(loss) or graph.loss.decided
    yield judge_cut(name, device_of(loss), origin, program.calling_line(), fails=fails)
