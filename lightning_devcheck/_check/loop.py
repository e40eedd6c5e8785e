"""Look at a backward that a program calls by itself: the leaves tell what is trained there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch

from lightning_devcheck._explain.program import Known, Program
from lightning_devcheck._judge.backward import Evidence, diagnose
from lightning_devcheck._judge.loop import in_loop_words, judge_cut
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.expectation import Expectation
from lightning_devcheck._observe.graph import record_graph
from lightning_devcheck._report.records import Finding, GraphRecord, Origin
from lightning_devcheck._report.report import Report

CPU = torch.device("cpu")
Refused = Callable[[Origin | None], bool]


@dataclass
class Line:
    """A line of a program that calls backward.

    Attributes:
        looks: How often it was looked at.
        versions: How often each parameter in no optimizer had been changed when it was first
            seen, by its id.
    """

    looks: int = 0
    versions: dict[int, int] = field(default_factory=dict)


@dataclass
class Look:
    """One look at a tensor that backward begins with.

    Attributes:
        loss: The tensor.
        line: The line that calls.
        program: The program that calls.
        optimized: The line that made the optimizer which holds a tensor, by the tensor's id.
        trains: Whether gradients go to leaves.
        has_refused: Whether something whose device a line decided was refused before.
    """

    loss: torch.Tensor
    line: Line
    program: Program
    optimized: Mapping[int, Origin | None]
    trains: bool
    has_refused: Refused

    def inspect(self) -> tuple[Report, frozenset[torch.device]]:
        """Check the tensor and the leaves of its graph.

        Nothing is read of the program's variables where all is as it should be.

        Returns:
            The report, and where that is trained which the loss reaches.
        """
        start = perf_counter()
        seen = _Seen(self)
        graph = record_graph(self.loss, seen.by_number)
        expectation = _expected(graph, self.has_refused)
        findings: list[Finding] = []
        if not graph.num_nodes:
            findings += self._cut(graph)
        elif expectation.devices:
            left_out = set(map(str, seen.left_out))
            evidence = _evidence(graph, expectation, left_out)
            if diagnose(evidence):
                findings += self._named(seen, expectation)
        checked: dict[str, float] = {"tensors": len(graph.leaves) + 1}
        checked["graph_nodes"] = graph.num_nodes
        checked["seconds"] = perf_counter() - start
        not_checked = (*graph.not_checked, *expectation.not_checked)
        report = Report(tuple(findings), checked, not_checked)
        return report, expectation.devices

    def _cut(self, graph: GraphRecord) -> Iterator[Finding]:
        """Judge a tensor that no graph leads to."""
        fails = not self.loss.requires_grad
        is_trained = any(leaf.registered for leaf in graph.leaves)
        if not fails and (is_trained or not self.optimized):
            return
        name, made = self.program.loss()
        origin = made or self.program.line_of(self.loss) or graph.loss.decided
        used = self.program.calling_line()
        yield judge_cut(name, device_of(self.loss), origin, used, fails=fails)

    def _named(self, seen: _Seen, expectation: Expectation) -> Iterator[Finding]:
        """Judge once more, with the names that the program uses."""
        known = self.program.names(seen.leaves.keys())
        names = _names(known, seen.leaves)

        def by_name(leaf: torch.Tensor) -> tuple[str, bool]:
            key = id(leaf)
            place = known.get(key)
            if place is not None and not place.is_registered and key in seen.left_out:
                return names[key], False
            return names[key], seen.leaves[key]

        graph = record_graph(self.loss, by_name)
        origins: dict[str, Origin] = {}
        for leaf in graph.leaves:
            if leaf.decided is not None:
                origins[leaf.name] = leaf.decided
        for key, place in known.items():
            if place.origin is not None:
                origins[names[key]] = place.origin
        left_out = {names[key] for key in seen.left_out}
        lines = {"optimizer_line": seen.optimizer_line}
        lines["loss_line"] = graph.loss.decided or self.program.line_of(self.loss)
        evidence = _evidence(graph, expectation, left_out, origins=origins, **lines)
        here = min(expectation.devices, key=str)
        called, _ = self.program.loss()
        for finding in diagnose(evidence):
            finding = self.program.in_its_words(in_loop_words(finding), here)
            if finding.name == "loss":
                finding = replace(finding, name=called)
            yield finding


class _Seen:
    """The leaves of a graph, by number until somebody asks for names.

    Attributes:
        leaves: Whether each leaf is trained, by its id.
        optimizer_line: The line that made an optimizer which holds one.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._unchanged: set[int] = set()
        self._meets_optimizer = False
        self.leaves: dict[int, bool] = {}
        self.optimizer_line: Origin | None = None

    def by_number(self, leaf: torch.Tensor) -> tuple[str, bool]:
        """Call a leaf by its id, and tell whether it is trained."""
        key = id(leaf)
        optimized = self._look.optimized
        is_trained = key in optimized or isinstance(leaf, torch.nn.Parameter)
        if key in optimized:
            self._meets_optimizer = True
            self.optimizer_line = optimized[key]
        elif is_trained and self._is_unchanged(leaf):
            self._unchanged.add(key)
        self.leaves[key] = is_trained
        return str(key), is_trained

    def _is_unchanged(self, leaf: torch.Tensor) -> bool:
        """Whether a parameter is as it was at an earlier call: by then it had its chance."""
        line = self._look.line
        version = leaf._version
        first = line.versions.setdefault(id(leaf), version)
        return line.looks > 0 and first == version

    @property
    def left_out(self) -> frozenset[int]:
        """The parameters that no optimizer holds, by id, where one holds others of the graph."""
        if not self._look.trains or not self._meets_optimizer:
            return frozenset()
        return frozenset(self._unchanged)


def name_of_trained(loss: torch.Tensor, program: Program) -> tuple[str, Origin | None]:
    """Name what a loss trains by its variable, with the line that decided its device."""
    first: list[torch.Tensor] = []

    def collect(leaf: torch.Tensor) -> tuple[str, bool]:
        first.append(leaf)
        return "", True

    graph = record_graph(loss, collect)
    line = next((leaf.decided for leaf in graph.leaves if leaf.decided), None)
    found = program.names({id(first[0])})
    known = next(iter(found.values()), Known("the model"))
    # all of it is there, not this leaf alone
    owner = known.name.rpartition(".")[0]
    owner = owner.partition("[")[0]
    return owner or known.name, line


def _names(known: Mapping[int, Known], leaves: Mapping[int, bool]) -> dict[int, str]:
    """What each leaf is called; those that nobody has a name for are told apart by a number."""
    names: dict[int, str] = {}
    unnamed = 0
    for key, is_trained in leaves.items():
        if key in known:
            names[key] = known[key].name
            continue
        unnamed += 1
        kind = "a parameter" if is_trained else "a leaf tensor"
        names[key] = kind
        if unnamed > 1:
            names[key] += f" ({unnamed})"
    return names


def _expected(graph: GraphRecord, has_refused: Refused) -> Expectation:
    """Expect what is trained: on its devices, and where one of these is no CPU, not on that.

    Where a parameter was refused and the run went on, nothing belongs where that is.
    """
    devices: set[torch.device] = set()
    refused: set[torch.device] = set()
    for leaf in graph.leaves:
        if not leaf.registered or leaf.device.type == "meta":
            continue
        devices.add(leaf.device)
        if has_refused(leaf.decided):
            refused.add(leaf.device)
    devices -= refused
    others = devices - {CPU}
    if len(others) < 2:
        only = others or devices
        return Expectation(frozenset(only))
    reason = f"the parameters are on {len(others)} devices: "
    reason += "taken as model parallel, each of them is right"
    return Expectation(frozenset(others), not_checked=(reason,))


def _evidence(
    graph: GraphRecord,
    expectation: Expectation,
    left_out: Collection[str],
    **known: Any,
) -> Evidence:
    """What the judge is asked about, where these parameters are in no optimizer."""
    trained = [leaf for leaf in graph.leaves if leaf.registered]
    known["strict"] = False
    if left_out:
        optimized = {leaf.name for leaf in trained if leaf.name not in left_out}
        known["optimized"] = frozenset(optimized)
    return Evidence(graph, trained, expectation, **known)
