"""What the user calls a tensor, and the line that made it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lightning_devcheck._explain.bindings import Binding, find_binding
from lightning_devcheck._explain.calls import MAX_DEPTH, frame_inside, returned
from lightning_devcheck._explain.captured import captured_line
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.kept import saved_line
from lightning_devcheck._explain.locate import Named, locate
from lightning_devcheck._explain.made import gives_data, imported, is_made_on_host, made_in_place, moves
from lightning_devcheck._explain.mentions import callees, evaluate, makes_tensor, mentions, tensors_in
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import MISSING, class_member, dims, inside, is_a, is_module
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import Point, is_host, origin_at
from lightning_devcheck._source.path import Link, Path, base_of
from lightning_devcheck._source.queries import part_origin
from lightning_devcheck._source.statements import spell

ENGINE = "_engine_run_backward"  # torch calls backwards and hooks from in here
MAX_STEPS = 12  # from an assignment to the one before
DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)


@dataclass(frozen=True, slots=True)
class Search:
    """What is known while a tensor is followed back.

    Attributes:
        frames: The traceback's frames, outermost first.
        root: The module that is trained.
        wanted: The tensor, or None where only its device is known.
        device: Where it is.
        expected: Where it should be.
        root_name: What the user calls the root.
    """

    frames: Sequence[Frame]
    root: torch.nn.Module | None
    wanted: Any
    device: torch.device | None
    expected: torch.device | None
    root_name: str = "self"

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
        captured = found and captured_line(self.root, found.name)
        if found and captured:
            return replace(found, origin=captured)
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
        """Follow a name, as it is at a point of a frame or where that failed, to the line that decided its device."""
        frame = self.frames[position]
        path = Path.parse(name)
        base = path.base
        owner = frame.lookup(base)
        if base == "self" or is_a(owner, type):
            kept = part_origin(owner if is_a(owner, type) else type(owner), path.attribute, path)
            return Named(name, kept, "attribute" if base == "self" else "global")
        function = class_member(type(owner), "_forward_cls")
        if is_a(function, type):  # ``ctx``, which a custom Function's forward has filled
            return Named(name, part_origin(function, path.attribute, path), "local")
        binding = find_binding(frame, name, point) if steps else None
        if binding is None:
            return Named(name, None, "local")
        made = origin_at(frame.filename, binding.node, binding.function)
        named = Named(name, made, "local" if binding.function else "global")
        if binding.kind == "argument":
            return self._argument(position, name, made, steps)
        if binding.kind == "loop":
            return self._loop(position, binding, replace(named, kind="local"), steps)
        if binding.kind == "import":
            return Named(name, imported(frame, base) or made, "global")
        if isinstance(binding.value, ast.Attribute) and binding.value.attr == "saved_tensors":
            return replace(named, origin=saved_line(self, frame, binding.value, name) or made)
        if binding.kind == "value" and binding.value is not None:
            return self._evidence(position, binding, named, steps) or named
        return replace(named, kind="local")

    def _argument(self, position: int, name: str, made: Origin, steps: int) -> Named:
        """What came in through a call: name it as the caller does."""
        if self.frames[position].depth:
            return Named(name, None, "unknown")  # the caller of a function that has returned is not kept
        for outer in range(position - 1, -1, -1):
            frame = self.frames[outer]
            if frame.code.co_name == ENGINE:
                return Named(name, None, "local")  # a backward or hook: what torch hands it is no batch
            if is_host(frame.filename):
                break
            if frame.is_user:
                own = (Link("variable", base_of(name)),)  # the function's default
                held = [pair for pair in tensors_in(frame.failing(), frame) if Path.parse(pair[0]).links[-1:] != own]
                exact = [text for text, tensor in held if tensor is self.wanted]
                made_there = None if exact else self.made_here(outer)
                near = [] if made_there else [text for text, tensor in held if self._is_wrong(tensor)]
                for text in exact or near[:1]:
                    return self.follow(outer, text, None, steps - 1)
                return made_there or Named(name, made, "local")
        return Named(name, None, "batch")

    def _is_wrong(self, tensor: torch.Tensor) -> bool:
        return bool(dims(tensor)) and device_of(tensor) == self.device != self.expected

    def _loop(self, position: int, binding: Binding, named: Named, steps: int) -> Named:
        """What a loop took out of something: name it as a part of that."""
        frame = self.frames[position]
        inner = frame.code.co_name.startswith("<") and position > 0
        for place in (position, position - 1) if inner else (position,):  # a generator's first iterable is outside
            held = tensors_in(binding.value, self.frames[place])
            exact = [name for name, tensor in held if tensor is self.wanted]
            rows = [name for name, tensor in held if self._is_wrong(tensor)]  # a row of a tensor is a new tensor
            for name in exact or rows[:1]:
                return self.follow(place, name, binding.start, steps - 1)
        return self._from_calls(position, binding.value, named, steps) or named

    def _evidence(self, position: int, binding: Binding, named: Named, steps: int) -> Named | None:
        """What in an assigned expression decided the device; None where nothing tells."""
        frame, value = self.frames[position], binding.value
        if value is None or steps <= 0 or gives_data(value, frame):
            return None
        moved = self._misplaced_module(value, frame)
        if moved is not None:
            return replace(named, name=moved, kind="registered")
        # what a function of the user's returns is named by its caller, who has other variables
        held = list(self._others(value, frame, "" if frame.depth else base_of(named.name)))
        for name, tensor in held:
            if tensor is self.wanted:
                return self.follow(position, name, binding.start, steps - 1)
        if any(makes_tensor(node, frame) or moves(node) for node in ast.walk(value)) or isinstance(value, DISPLAYS):
            return named
        for name, tensor in held:
            if self._is_wrong(tensor):
                return self._earlier(position, binding, named, name, tensor, steps)
        return self._from_calls(position, value, named, steps) or self._derived(position, binding, named, steps)

    def _others(self, value: ast.expr, frame: Frame, base: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors that an expression mentions, besides those of modules and of the name that it is assigned to."""
        for mention in mentions(value, frame):
            if not is_module(mention.value):
                yield from (pair for pair in mention.tensors() if base_of(pair[0]) != base)

    def _earlier(
        self, position: int, binding: Binding, named: Named, name: str, tensor: torch.Tensor, steps: int
    ) -> Named:
        """The value was computed from a tensor that was on the wrong device already."""
        search = replace(self, wanted=tensor)
        found = self.locate(tensor) or search.follow(position, name, binding.start, steps - 1)
        return replace(found, name=named.name) if found.kind == "batch" and binding.unpacked else found

    def _derived(self, position: int, binding: Binding, named: Named, steps: int) -> Named | None:
        """The value was computed from a variable that is gone, or from what the name held before."""
        frame = self.frames[position]
        for node in ast.walk(binding.value) if binding.value else ():
            if not isinstance(node, ast.Name):
                continue
            own = node.id == base_of(named.name) and not frame.depth
            if own or frame.lookup(node.id) is MISSING:
                before = find_binding(frame, node.id, binding.start)
                if before is not None and before.start < binding.start:
                    found = self.follow(position, node.id, binding.start, steps - 1)
                    if found.origin is not None:
                        return replace(found, name=named.name)
        return None

    def _from_calls(self, position: int, value: ast.AST | None, named: Named | None, steps: int) -> Named | None:
        """A function of the user's made it: the line in there."""
        frame = self.frames[position]
        running = [other.code for other in self.frames]
        for node, function, owner in callees(value, frame) if value and frame.depth < MAX_DEPTH else ():
            for result in returned(function) if function.__code__ not in running else ():
                inner = frame_inside(function, owner, frame, result)
                search = replace(self, frames=(*self.frames[: position + 1], inner))
                line = origin_at(inner.filename, result, function.__name__)
                own = Named(named.name if named else spell(node), line, "local" if named else "call")
                found = search._evidence(position + 1, Binding("value", result, result), own, steps - 1)
                if found is not None and found.origin is not None and found.kind not in ("registered", "unknown"):
                    return found
        return None

    def in_returned(self, inner: Frame, value: ast.expr) -> Origin | None:
        """The line that made a value of a function that has returned."""
        search = replace(self, frames=(*self.frames, inner))
        named = Named("", origin_at(inner.filename, value, inner.code.co_name), "local")
        found = search._evidence(len(self.frames), Binding("value", value, value), named, MAX_STEPS)
        return None if found is None else found.origin

    def _misplaced_module(self, value: ast.expr, frame: Frame) -> str | None:
        """The module whose output this is, where all of the module is on the wrong device."""
        if not isinstance(value, ast.Call):
            return None
        text, module = evaluate(value.func, frame)
        if not is_module(module):
            return None
        devices = {device_of(tensor) for _, tensor in tensors_of(module)}
        return text if devices == {self.device} and self.device != self.expected else None

    def made_here(self, position: int) -> Named | None:
        """What the failing expression of a frame makes itself, or has a function of the user's make."""
        frame = self.frames[position]
        made = made_in_place(frame, self.device)
        if made is not None:
            return made
        for tree in (frame.failing(), frame.statement()):
            found = self._from_calls(position, tree, None, MAX_STEPS)
            if found is not None:
                return found
        return None
