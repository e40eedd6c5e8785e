"""What the user calls a tensor, and the line that made it."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lightning_devcheck._devices import device_of
from lightning_devcheck._explain._bindings import Binding, find_binding
from lightning_devcheck._explain._frames import Frame, evaluate, mentions
from lightning_devcheck._records import Origin
from lightning_devcheck._scan import unregistered
from lightning_devcheck._source import attribute_origin, class_body, class_source, is_host, line_of, parse
from lightning_devcheck._statements import is_factory, is_move
from lightning_devcheck._values import (
    Visit,
    inside,
    is_a,
    is_metric,
    metric_states,
    own_attributes,
    spell_child,
    tensors_of,
    walk_modules,
)

MAX_STEPS = 12  # from an assignment to the one before


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor's name and history.

    Attributes:
        name: As the user types it.
        origin: The line that made it.
        kind: Where it is kept: ``local``, ``registered``, ``attribute``, ``module`` (a part of a module that is not
            registered), ``metric``, ``batch``, ``optimizer``, ``global`` or ``call`` (made in the expression itself).
    """

    name: str
    origin: Origin | None
    kind: str


def locate(root: torch.nn.Module | None, wanted: Any) -> Named | None:
    """Find an object in a module tree, by identity."""
    if root is None:
        return None
    modules = list(walk_modules(root))
    for path, module, chain in modules:
        own = object.__getattribute__(module, "__dict__")
        for held in (own.get("_parameters"), own.get("_buffers")):
            for key, value in dict.items(held) if held else ():
                if value is wanted:
                    name, links = path + spell_child(module, key), [*chain, (type(module), key)]
                    line = _data_line(type(root), name) or _first_line(reversed(links))
                    return Named(name, line, "registered")
        states = metric_states(module) if "_defaults" in own else []
        if any(found is wanted for _, state in states for _, found in inside(state, "")):
            return Named(path, _first_line(reversed(chain)), "metric")
    return _among_unregistered(root, modules, wanted)


def _among_unregistered(root: torch.nn.Module, modules: Sequence[Visit], wanted: Any) -> Named | None:
    for place in unregistered(root, modules):
        if place.value is wanted:
            return Named(place.name, place.origin, "attribute")
        held = place.value
        if isinstance(held, torch.nn.Module):
            for name, tensor in tensors_of(held, place.name):
                if tensor is wanted:
                    metric = is_metric(held)
                    return Named(place.name if metric else name, place.origin, "metric" if metric else "module")
    return _attribute_with(modules, wanted)


def _attribute_with(modules: Sequence[Visit], wanted: Any) -> Named | None:
    """Find what is no part of a scan: a generator, hyper-parameters."""
    for path, module, _ in modules:
        for key, value in own_attributes(module):
            spelled = f"{path}.{'hparams' if key == '_hparams' else key}"
            name = next((name for name, found in inside(value, spelled) if found is wanted), None)
            if name is not None:
                return Named(name, attribute_origin(type(module), key), "attribute")
    return None


def _data_line(owner: type, name: str) -> Origin | None:
    """The line of a class that puts other memory into a parameter: ``self.layer.weight.data = tensor``."""
    for source in filter(None, map(class_source, owner.__mro__)):
        for node in class_body(*source):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).replace("'", '"') == f"{name}.data":
                return line_of(source[0], node.lineno)
    return None


def _first_line(links: Iterable[tuple[type, str]]) -> Origin | None:
    """The innermost of the classes on the way that has a line of the user's for the attribute."""
    return next((line for cls, key in links if (line := attribute_origin(cls, key)) is not None), None)


@dataclass(frozen=True, slots=True)
class Search:
    """What is known while a tensor is followed back.

    Attributes:
        frames: The traceback's frames, outermost first.
        root: The module that is trained.
        wanted: The tensor.
        device: Where it is.
        expected: Where it should be.
    """

    frames: Sequence[Frame]
    root: torch.nn.Module | None
    wanted: Any
    device: torch.device | None
    expected: torch.device | None

    def name(self, index: int) -> Named | None:
        """Name the tensor, which the frame of that index met."""
        located = locate(self.root, self.wanted)
        if located is not None:
            return located
        for position in range(index, -1, -1):
            frame = self.frames[position]
            if frame.is_user:
                return self._in_user_frame(position)
        return None

    def _in_user_frame(self, position: int) -> Named | None:
        frame = self.frames[position]
        found = self._mentioned(frame.failing(), frame) or self._mentioned(frame.statement(), frame)
        if found is None:
            return made_in_place(frame, self.device)
        name, tensor = found
        if tensor is not self.wanted:
            return locate(self.root, tensor) or replace(self, wanted=tensor).follow(position, name, frame.lineno)
        return self.follow(position, name, frame.lineno)

    def _mentioned(self, tree: ast.AST | None, frame: Frame) -> tuple[str, Any] | None:
        """The mention that holds the tensor; else, as it may be a view, the first tensor that is where it is."""
        held = [(name, tensor) for mention in mentions(tree, frame) for name, tensor in mention.tensors()]
        exact = next((pair for pair in held if pair[1] is self.wanted), None)
        if exact is not None or any(is_factory(node) for node in (ast.walk(tree) if tree else ())):
            return exact
        near = [pair for pair in held if pair[1].dim() and device_of(pair[1]) == self.device]
        return next(iter(near), None)

    def follow(self, position: int, name: str, lineno: int, steps: int = MAX_STEPS) -> Named:
        """Follow a name back to the line that decided its device."""
        frame = self.frames[position]
        base = ast_base(name)
        if base == "self":
            owner, attribute = frame.lookup("self"), name.removeprefix("self.").partition(".")[0].partition("[")[0]
            return Named(name, attribute_origin(type(owner), attribute), "attribute")
        binding = find_binding(frame, base, lineno) if steps else None
        if binding is None:
            return Named(name, None, "local")
        made = line_of(frame.filename, binding.lineno, binding.function)
        if binding.kind == "argument":
            return self._argument(position, name, made, steps)
        if binding.kind == "loop":
            return self._loop(position, binding, Named(name, made, "local"), steps)
        if binding.kind == "import":
            return Named(name, _imported(frame, base) or made, "global")
        if binding.kind == "value" and binding.value is not None:
            return self._value(position, binding, Named(name, made, "local" if binding.function else "global"), steps)
        return Named(name, made, "local")

    def _argument(self, position: int, name: str, made: Origin, steps: int) -> Named:
        """What came in through a call: name it as the caller does."""
        for outer in range(position - 1, -1, -1):
            frame = self.frames[outer]
            if is_host(frame.filename):
                break
            if frame.is_user:
                held = [pair for mention in mentions(frame.failing(), frame) for pair in mention.tensors()]
                found = next((text for text, tensor in held if tensor is self.wanted), None)
                if found is not None:
                    return self.follow(outer, found, frame.lineno, steps - 1)
                return made_in_place(frame, self.device) or Named(name, made, "local")
        return Named(name, None, "batch")

    def _loop(self, position: int, binding: Binding, named: Named, steps: int) -> Named:
        """What a loop took out of something: name it as a part of that."""
        for place in (position, position - 1):  # a generator's first iterable belongs to the frame around it
            frame = self.frames[max(place, 0)]
            for mention in mentions(binding.value, frame):
                for name, tensor in mention.tensors():
                    if tensor is self.wanted:
                        return self.follow(max(place, 0), name, binding.lineno, steps - 1)
        return named

    def _value(self, position: int, binding: Binding, named: Named, steps: int) -> Named:
        frame, value = self.frames[position], binding.value
        if value is None:
            return named
        moved = self._misplaced_module(value, frame)
        if moved is not None:
            return Named(moved, named.origin, "registered")
        calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
        if any(is_factory(call) or is_move(call) for call in calls):
            return named
        if isinstance(value, (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)):
            return named
        for mention in mentions(value, frame):
            for name, tensor in mention.tensors():
                if ast_base(name) == ast_base(named.name) or is_a(mention.value, torch.nn.Module):
                    continue
                if tensor.dim() and device_of(tensor) == self.device != self.expected:
                    return self._earlier(position, binding, named, name, tensor, steps)
        return named

    def _earlier(
        self, position: int, binding: Binding, named: Named, name: str, tensor: torch.Tensor, steps: int
    ) -> Named:
        """The value was computed from a tensor that was on the wrong device already."""
        search = replace(self, wanted=tensor)
        found = locate(self.root, tensor) or search.follow(position, name, binding.lineno, steps - 1)
        return replace(found, name=named.name) if found.kind == "batch" and binding.unpacked else found

    def _misplaced_module(self, value: ast.expr, frame: Frame) -> str | None:
        """The module whose output this is, where all of the module is on the wrong device."""
        if not isinstance(value, ast.Call):
            return None
        text, module = evaluate(value.func, frame)
        if not is_a(module, torch.nn.Module):
            return None
        devices = {device_of(tensor) for _, tensor in tensors_of(module)}
        return text if devices == {self.device} and self.device != self.expected else None


def made_in_place(frame: Frame, device: torch.device | None) -> Named | None:
    """The tensor that the failing expression makes itself, without a device."""
    for tree in (frame.failing(), frame.statement()):
        for node in ast.walk(tree) if tree is not None else ():
            if device is not None and device.type == "cpu" and is_factory(node):
                return Named(ast.unparse(node).replace("'", '"'), frame.origin, "call")
    return None


def ast_base(name: str) -> str:
    """The variable that a name starts with."""
    return name.partition(".")[0].partition("[")[0].partition("(")[0]


def _imported(frame: Frame, name: str) -> Origin | None:
    """The line that made an imported constant, in the module it comes from."""
    value = frame.lookup(name)
    for module in list(sys.modules.values()):
        state = vars(module) if type(module) is types.ModuleType else {}
        filename = state.get("__file__")
        if state.get(name) is not value or type(filename) is not str or filename == frame.filename:
            continue
        tree = parse(filename)
        for node in tree.body if tree else ():
            if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == name for target in node.targets):
                return line_of(filename, node.lineno)
    return None
