"""Notes about the lines of a training step that make the host wait for the device."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator

from lightning_devcheck._records import Finding, Origin
from lightning_devcheck._rules import make_finding
from lightning_devcheck._simulate._state import active

READING_METHODS = {"item", "tolist", "cpu", "numpy", "nonzero", "to"}
READING_FUNCTIONS = {"float", "int", "bool"}
PASSING_METHODS = {"detach", "clone", "float", "double", "sum", "mean"}


class ReadCounter:
    """Counts host reads between `start` and `stop`, on the simulation that runs; idle where none does."""

    def __init__(self) -> None:
        self._steps = 0
        self._outside: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Begin a step. Lines that are running already led to it: what Lightning reads is not theirs."""
        simulation = active()
        if simulation is None:
            return
        self._steps += 1
        simulation.record_host_reads = True
        frame = sys._getframe(1)
        while frame is not None:
            self._outside.add((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]

    def stop(self) -> None:
        """End a step."""
        simulation = active()
        if simulation is not None:
            simulation.record_host_reads = False

    def findings(self, global_rank: int) -> tuple[Finding, ...]:
        """A note for each line of the steps so far, with how often a step runs into it."""
        simulation = active()
        if simulation is None or not self._steps:
            return ()
        lines = [
            item for item in simulation.host_reads.items() if (item[0].filename, item[0].lineno) not in self._outside
        ]
        return tuple(
            _note(origin, count, self._steps, f"cuda:{simulation.current}", global_rank) for origin, count in lines
        )


def _note(origin: Origin, count: int, steps: int, device: str, global_rank: int) -> Finding:
    name = read_name(origin.line)
    often = count / steps
    times = "once" if often == 1 else f"{often:g} times"
    return make_finding(
        "host-read",
        name=name,
        device=device,
        what=f"{name} makes the host wait for {device}, {times} per training step",
        used=origin,
        count=count,
        global_rank=global_rank,
    )


def read_name(line: str) -> str:
    """What a line of source reads, as typed; the line itself where no single expression stands out."""
    for code in (line, f"{line} pass", f"if True:\n pass\n{line} pass"):  # `if loss > 1:` and `elif loss > 1:`
        with contextlib.suppress(SyntaxError):
            found = next(_read_in(ast.parse(code)), None)
            return line if found is None else ast.unparse(found)
    return line


def _read_in(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that a piece of source reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in READING_METHODS:
                yield _source_of(function.value)
            elif isinstance(function, ast.Name) and function.id in READING_FUNCTIONS and node.args:
                yield _source_of(node.args[0])
        elif isinstance(node, (ast.If, ast.While)) and isinstance(node.test, ast.Compare):
            yield _source_of(node.test.left)


def _source_of(node: ast.expr) -> ast.expr:
    """What a chain of methods begins with: ``loss`` of ``loss.detach().mean()``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PASSING_METHODS:
        node = node.func.value
    return node
