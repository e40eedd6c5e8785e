"""The program that calls a backward: its frames, and what its variables call things."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from lightning_devcheck._explain.bindings import find_binding
from lightning_devcheck._explain.frames import Frame, read_stack
from lightning_devcheck._explain.live import Caller
from lightning_devcheck._observe.inert import inside, is_a, is_module
from lightning_devcheck._observe.module_tree import ModuleTree, tensors_of
from lightning_devcheck._observe.unregistered import Place, unregistered
from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._source.files import is_installed
from lightning_devcheck._source.queries import returned_line

# what of a call's text is short enough for a name
MAX_NAME = 60
# arguments of the functions that are given what they differentiate
ARGUMENTS = ("tensors", "outputs", "loss")


@dataclass(frozen=True, slots=True)
class Known:
    """What a program calls a tensor.

    Attributes:
        name: As typed.
        origin: The line that made it, where a class has one.
        is_registered: Whether it is no tensor that its module forgets.
    """

    name: str
    origin: Origin | None = None
    is_registered: bool = True


class Program:
    """The frames that led to a backward; nothing is read of them before a question is asked.

    Args:
        frame: The innermost frame of the program's own.
        number: Which of the tensors is meant that the call was given.
        step_of: The class whose ``training_step`` gave the loss, where a Trainer calls.
    """

    def __init__(self, frame: FrameType, number: int, step_of: type | None = None) -> None:
        self._frame = frame
        self._number = number
        self._step_of = step_of
        self._module: torch.nn.Module | None = None

    def frames(self) -> list[Frame]:
        """List the program's frames, innermost first; those of libraries come last."""
        stack = reversed(read_stack(self._frame))
        frames = [frame for frame in stack if frame.is_user]
        return sorted(frames, key=lambda frame: is_installed(frame.filename))

    def names(self, wanted: Set[int]) -> dict[int, Known]:
        """Find tensors in the program's variables, by id: the shortest of the innermost names."""
        found: dict[int, Known] = {}
        for frame in self.frames():
            for variables in (frame.names, frame.globals):
                missing = wanted - found.keys()
                if not missing:
                    return found
                for key, known in self._in_variables(variables, missing):
                    best = found.get(key, known)
                    found[key] = min(best, known, key=lambda one: len(one.name))
        return found

    def _in_variables(
        self,
        variables: Mapping[str, Any],
        wanted: Set[int],
    ) -> Iterator[tuple[int, Known]]:
        seen: set[int] = set()
        for variable, value in list(variables.items()):
            # an optimizer holds everything, under names that nobody uses
            if variable.startswith("__") or is_a(value, torch.optim.Optimizer):
                continue
            for name, held in inside(value, variable, seen=seen):
                if is_module(held):
                    yield from self._in_module(name, held, wanted)
                elif id(held) in wanted and "param_groups" not in name:
                    yield id(held), Known(name)

    def _in_module(
        self,
        name: str,
        module: torch.nn.Module,
        wanted: Set[int],
    ) -> Iterator[tuple[int, Known]]:
        for typed, tensor in tensors_of(module, name):
            if id(tensor) in wanted:
                self._module = self._module or module
                yield id(tensor), Known(typed)
        for place in unregistered(module, ModuleTree(module, name)):
            for typed, tensor in _held_at(place):
                if id(tensor) in wanted:
                    yield id(tensor), Known(typed, place.made, is_registered=False)

    def loss(self) -> tuple[str, Origin | None]:
        """Tell what the call is given, as typed, and the line that made it."""
        frames = self.frames()
        if not frames:
            return "loss", None
        if self._step_of is not None:
            return "loss", returned_line(self._step_of, "training_step")
        given = self._given(frames[0])
        if given is None:
            return "loss", None
        name = ast.unparse(given)
        if len(name) > MAX_NAME:
            name = "loss"
        if not isinstance(given, ast.Name):
            return name, None
        binding = find_binding(frames[0], name)
        if binding is None:
            return name, None
        return name, binding.origin

    def _given(self, frame: Frame) -> ast.expr | None:
        """What a call differentiates: what has a tensor's method, else the first argument."""
        call = frame.failing()
        if not isinstance(call, ast.Call):
            return None
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr == "backward":
            is_given = bool(call.args) or _named_argument(call) is not None
            if not is_given or _is_tensor(function.value, frame):
                return function.value
        first = next(iter(call.args), _named_argument(call))
        if not isinstance(first, (ast.List, ast.Tuple)):
            return first
        if self._number >= len(first.elts):
            return None
        return first.elts[self._number]

    def line_of(self, tensor: torch.Tensor) -> Origin | None:
        """Find the line that made a tensor which a variable holds."""
        known = self._caller().history(tensor, None)
        if known is None:
            return None
        return known.origin

    def calling_line(self) -> Origin | None:
        """Find the line that calls backward; None where a Trainer does."""
        frames = self.frames()
        if self._step_of is not None or not frames:
            return None
        return frames[0].origin

    def in_its_words(self, finding: Finding, expected: torch.device | None) -> Finding:
        """Give a finding whose fix uses what the program has."""
        return self._caller().in_its_words(finding, expected)

    def _caller(self) -> Caller:
        return Caller(self._frame, self._module or torch.nn.Module())


def _held_at(place: Place) -> list[tuple[str, torch.Tensor]]:
    """The tensors in something that a module holds and does not register."""
    if is_a(place.value, torch.Tensor):
        return [(place.name, place.value)]
    return list(tensors_of(place.value, place.name))


def _named_argument(call: ast.Call) -> ast.expr | None:
    """The argument that is differentiated, where it is given by name."""
    named = (keyword for keyword in call.keywords if keyword.arg in ARGUMENTS)
    found = next(named, None)
    return None if found is None else found.value


def _is_tensor(owner: ast.expr, frame: Frame) -> bool:
    """Whether what has a method ``backward`` is a tensor, not Fabric or an accelerator."""
    if isinstance(owner, ast.Name):
        return is_a(frame.lookup(owner.id), torch.Tensor)
    if not isinstance(owner, ast.Attribute):
        return True  # what a call or an operation gives
    text = ast.unparse(owner)
    base = text.partition(".")[0]
    held = dict(inside(frame.lookup(base), base))
    return is_a(held.get(text), torch.Tensor)
