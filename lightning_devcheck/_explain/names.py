"""What the user calls a tensor, and the line that gave the name its value.

NOTE [How far a name is followed]
Where a simulation has seen a tensor, it knows the line that decided its device. Elsewhere (on a
real GPU, or where the model was built outside of the simulation) the source has to tell: the name
in the failing line, its last assignment in that function, the attribute's assignment in its class.
An argument is followed to the caller that still runs, a loop to what it takes the tensor out of.
Functions that have returned are not read.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lightning_devcheck._explain.bindings import find_binding
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.locate import Named, locate
from lightning_devcheck._explain.made import gives_data, is_made_on_host, made_in_place
from lightning_devcheck._explain.mentions import evaluate, makes_tensor, mentions, tensors_in
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import dims, inside, is_a, is_module
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._simulate.tensor.places import decided_line
from lightning_devcheck._source.assignments import Binding
from lightning_devcheck._source.files import Point, is_host
from lightning_devcheck._source.path import Path, base_of
from lightning_devcheck._source.queries import part_origin
from lightning_devcheck._source.statements import is_move, spell, word_of

ENGINE = "_engine_run_backward"  # torch calls backwards and hooks from in here
MAX_STEPS = 12  # from an assignment to the one before


@dataclass(frozen=True, slots=True)
class Search:
    """What is known while a tensor is looked for.

    Attributes:
        frames: The traceback's frames, outermost first.
        root: The module that is trained.
        wanted: The tensor, or None where only its device is known.
        device: Where it is.
        expected: Where it should be.
        root_name: What the user calls the root.
        decided: The line that decided its device, where that is all that is left of it.
    """

    frames: Sequence[Frame]
    root: torch.nn.Module | None
    wanted: Any
    device: torch.device | None
    expected: torch.device | None
    root_name: str = "self"
    decided: Origin | None = None

    def name(self, index: int) -> Named | None:
        """Name the tensor, which the frame of that index met."""
        located = self.locate(self.wanted)
        if located is not None:
            return self._as_typed(located, index)
        for position in range(index, -1, -1):
            if self.frames[position].is_user:
                return self._in_user_frame(position)
        return None

    def locate(self, wanted: Any) -> Named | None:
        """Find an object in the module that is trained, with the line that made it."""
        found = locate(self.root, wanted, self.root_name)
        if found is None or found.origin is not None or self.root_name == "self":
            return found
        for position in range(len(self.frames) - 1, -1, -1):
            frame = self.frames[position]
            if frame.is_user and frame.names.get(self.root_name) is self.root:
                return replace(found, origin=self.follow(position, self.root_name).origin)
        return found

    def _as_typed(self, located: Named, index: int) -> Named:
        """The attribute that the failing line names, where several hold the same tensor."""
        frame = self.frames[index]
        if located.kind == "attribute" and frame.lookup("self") is self.root:
            names = [name for name, tensor in tensors_in(frame.failing(), frame) if tensor is self.wanted]
            typed = next((name for name in names if base_of(name) == "self"), located.name)
            if located.name not in names and typed != located.name:
                return self.follow(index, typed)
        return located

    def _in_user_frame(self, position: int) -> Named | None:
        frame = self.frames[position]
        found = self._mentioned(frame.failing(), frame) or self._mentioned(frame.statement(), frame)
        if found is None:
            return self.made_here(position)
        name, tensor = found
        if tensor is not self.wanted:
            return self.locate(tensor) or replace(self, wanted=tensor).follow(position, name)
        followed = self.follow(position, name)
        return self._as_metric(frame, followed) or followed

    def _mentioned(self, tree: ast.AST | None, frame: Frame) -> tuple[str, Any] | None:
        """The mention that holds the tensor; else, as it may be a view, the first tensor that is where it is."""
        held = tensors_in(tree, frame)
        exact = next((pair for pair in held if pair[1] is self.wanted), None)
        if exact is not None or (tree is not None and any(is_made_on_host(node, frame) for node in ast.walk(tree))):
            return exact
        near = [pair for pair in held if dims(pair[1]) and device_of(pair[1]) == self.device]
        return next(iter(near), None)

    def _as_metric(self, frame: Frame, followed: Named) -> Named | None:
        """The metric whose state the tensor is."""
        for mention in mentions(frame.failing(), frame):
            for name, held in inside(mention.value, mention.text):
                found = locate(held, self.wanted, name) if is_module(held) else None
                if found is not None and found.kind == "metric":
                    return replace(found, origin=found.origin or followed.origin)
        return None

    def follow(self, position: int, name: str, point: Point | None = None, steps: int = MAX_STEPS) -> Named:
        """Follow a name, as it is at a point of a frame or where that failed, to the line that gave it its value."""
        frame = self.frames[position]
        path = Path.parse(name)
        base = path.base
        owner = frame.lookup(base)
        if base == "self" or is_a(owner, type):
            kept = part_origin(owner if is_a(owner, type) else type(owner), path.attribute, path)
            return Named(name, kept, "attribute" if base == "self" else "global")
        binding = find_binding(frame, name, point) if steps else None
        if binding is None:
            return Named(name, None, "local")
        made = binding.origin
        match binding.kind:
            case "argument":
                return self._argument(position, name, made, steps)
            case "import":
                return Named(name, None, "global")
        named = Named(name, made, "local" if binding.statement.function else "global")
        return self._taken(position, name, binding, steps) or named

    def _argument(self, position: int, name: str, made: Origin, steps: int) -> Named:
        """What came in through a call: name it as the caller does."""
        for outer in range(position - 1, -1, -1):
            frame = self.frames[outer]
            if frame.code.co_name == ENGINE:
                return Named(name, None, "local")  # a backward or hook: what torch hands it is no batch
            if is_host(frame.filename):
                break
            if frame.is_user:
                exact, near = self._holding(frame.failing(), frame, f"({base_of(name)})")
                made_there = None if exact else made_in_place(frame, self.device)
                given = exact or near
                if made_there is None and given is not None:
                    return self.follow(outer, given, None, steps - 1)
                return made_there or Named(name, made, "local")
        return Named(name, None, "batch")

    def _holding(self, tree: ast.AST | None, frame: Frame, besides: str = "") -> tuple[str | None, str | None]:
        """The name in an expression that holds the tensor, and one that is where it is: it may be a row of that."""
        plain = (mention for mention in mentions(tree, frame) if not is_module(mention.value))
        pairs = [pair for mention in plain for pair in mention.tensors()]
        if besides:  # the variable itself, or the default value of an argument
            pairs = [pair for pair in pairs if base_of(pair[0]) != besides and not pair[0].endswith(besides)]
        exact = (name for name, tensor in pairs if tensor is self.wanted)
        held = [pair for pair in pairs if dims(pair[1])]
        near = (name for name, tensor in held if device_of(tensor) == self.device != self.expected)
        return next(exact, None), next(near, None)

    def _taken(self, position: int, name: str, binding: Binding, steps: int) -> Named | None:
        """What an assignment or a loop takes the tensor out of, where that has a name."""
        frame, value = self.frames[position], binding.value
        if value is None or gives_data(value, frame):
            return None
        moved = self._misplaced_module(value, frame)
        if moved is not None:
            return Named(moved, binding.origin, "registered")
        if any(makes_tensor(node, frame) or is_move(node) for node in ast.walk(value)):
            return None
        places = [position]
        if frame.code.co_name.startswith("<") and position and binding.kind == "loop":
            places.append(position - 1)  # a comprehension's first iterable is outside
        for place in places:
            exact, near = self._holding(value, self.frames[place], base_of(name))
            source = exact or near
            if source is not None:
                return self.follow(place, source, binding.start, steps - 1)
        return None

    def _misplaced_module(self, value: ast.expr, frame: Frame) -> str | None:
        """The module whose output this is, where all of the module is on the wrong device."""
        if not isinstance(value, ast.Call) or self.device == self.expected:
            return None
        text, module = evaluate(value.func, frame)
        if not is_module(module):
            return None
        devices = {device_of(tensor) for _, tensor in tensors_of(module)}
        return text if devices == {self.device} else None

    def made_here(self, position: int) -> Named | None:
        """What the failing expression of a frame makes itself, or has a function of the user's make."""
        frame = self.frames[position]
        made = made_in_place(frame, self.device)
        line = decided_line(self.wanted) if is_a(self.wanted, torch.Tensor) else self.decided
        running = {frame.code.co_name for frame in self.frames}
        if made is not None or line is None or line.function in running:
            return made
        for node in frame.failed_nodes():
            function = node.func if isinstance(node, ast.Call) else node
            if word_of(function) == line.function:
                return Named(spell(node), line, "call")
        return None
