"""The frames of a traceback: what the failing expression of each mentions, read without running anything."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from lightning_devcheck._records import Origin
from lightning_devcheck._source import is_framework, line_of
from lightning_devcheck._values import MISSING, attribute, inside, is_a, is_metric, item, parts, tensors_of

MAX_FRAMES = 200
MAX_TENSORS = 2_000


@dataclass(frozen=True, slots=True)
class Mention:
    """A name, attribute or subscript in an expression, and what it stands for.

    Attributes:
        text: As it is written.
        value: What it holds.
    """

    text: str
    value: Any

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors in it, each with its name."""
        for name, found in itertools.islice(inside(self.value, self.text), MAX_TENSORS):
            if is_a(found, torch.Tensor):
                yield name, found
            elif is_a(found, torch.nn.Module):
                yield from tensors_of(found, name)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback.

    Attributes:
        filename: Its file.
        lineno: The line that failed.
        code: What runs in it.
        names: Its local variables.
        globals: Its module's variables.
        position: First line, last line, first column, last column of the failing expression, where Python tells.
    """

    filename: str
    lineno: int
    code: types.CodeType
    names: dict[str, Any]
    globals: dict[str, Any]
    position: tuple[int | None, int | None, int | None, int | None]

    @property
    def is_user(self) -> bool:
        """Whether it is the user's own code."""
        return not is_framework(self.filename)

    @property
    def origin(self) -> Origin:
        """The failing line."""
        return line_of(self.filename, self.lineno, self.code.co_name)

    def lookup(self, name: str) -> Any:
        """A variable's value, or `MISSING`."""
        return self.names.get(name, self.globals.get(name, MISSING))

    def failing(self) -> ast.AST | None:
        """The syntax tree of the failing expression; of its statement where Python does not tell which it is."""
        first, last, start, end = self.position
        if first is not None and last is not None and start is not None and end is not None:
            lines = [linecache.getline(self.filename, n).encode() for n in range(first, min(last, first + 200) + 1)]
            if all(lines):
                lines[-1] = lines[-1][:end]
                lines[0] = lines[0][start:]
                tree = _parse(b"".join(lines).decode(errors="replace"))
                if tree is not None:
                    return tree
        return self.statement()

    def statement(self) -> ast.AST | None:
        """The syntax tree of the statement around the failing line."""
        for before, after in itertools.product(range(10), range(10)):
            first = self.lineno - before
            text = "".join(linecache.getline(self.filename, n) for n in range(first, self.lineno + after + 1))
            tree = _parse(text) if first > 0 and text.strip() else None
            if tree is not None:
                return tree
        return None


def read_frames(traceback: types.TracebackType | None) -> list[Frame]:
    """The frames of a traceback, outermost first; the middle of a very deep one is left out."""
    entries: list[types.TracebackType] = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    if len(entries) > MAX_FRAMES:
        entries = entries[: MAX_FRAMES // 4] + entries[-MAX_FRAMES * 3 // 4 :]
    return [_read(entry) for entry in entries]


def _read(entry: types.TracebackType) -> Frame:
    frame, code = entry.tb_frame, entry.tb_frame.f_code
    local = frame.f_locals
    plain = type(local) is dict or type(local).__module__ == "builtins"  # exec takes any mapping
    return Frame(
        filename=code.co_filename,
        lineno=entry.tb_lineno or code.co_firstlineno,
        code=code,
        names=dict(local) if plain else {},
        globals=frame.f_globals,
        position=_position(code, entry.tb_lasti),
    )


def _position(code: types.CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None]:
    if sys.version_info < (3, 11) or instruction < 0:
        return None, None, None, None
    positions = itertools.islice(code.co_positions(), instruction // 2, None)
    return next(positions, (None, None, None, None))


def _parse(text: str) -> ast.AST | None:
    text = textwrap.dedent(text).strip().rstrip("\\")
    header = text.startswith(("if ", "for ", "while ", "with ", "async ", "elif ", "@", "def ", "class "))
    for attempt in (text, f"({text}\n)", f"{text.removeprefix('el')} pass" if header else text):
        try:
            return ast.parse(attempt)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def mentions(tree: ast.AST | None, frame: Frame) -> list[Mention]:
    """What an expression mentions, in the order it is written: tensors, modules, containers, plain objects."""
    found: list[Mention] = []
    pending = [] if tree is None else [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            text, value = evaluate(node, frame)
            if value is not MISSING and _is_data(value):
                found.append(Mention(text, value))
                pending += _slices(node)
                continue
            if isinstance(node, ast.Name) or _is_dotted(node):
                continue
        if isinstance(node, ast.Call):
            pending += reversed([_receiver(node.func, frame), *node.args, *(word.value for word in node.keywords)])
        else:
            pending += reversed(list(ast.iter_child_nodes(node)))
    return found


def _receiver(function: ast.expr, frame: Frame) -> ast.AST:
    """What a call reads tensors from: a callable that holds some, or the object whose method it is."""
    _, value = evaluate(function, frame)
    holds = value is not MISSING and type(value) is not types.FunctionType
    if (holds and _is_data(value)) or not isinstance(function, ast.Attribute):
        return function
    _, owner = evaluate(function.value, frame)
    own_method = is_a(owner, torch.nn.Module) and not is_metric(owner)
    return ast.Tuple([], ast.Load()) if own_method else function.value


def _slices(node: ast.AST) -> list[ast.AST]:
    """The subscripts along a chain of attributes and subscripts."""
    found: list[ast.AST] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript):
            found.append(node.slice)
        node = node.value
    return found


def _is_dotted(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_data(value: Any) -> bool:
    if is_a(value, (torch.Tensor, torch.nn.Module, torch.Generator, list, tuple, dict)):
        return True
    if type(value) in (types.ModuleType, types.BuiltinFunctionType) or is_a(value, type):
        return False
    return bool(parts(value))


def evaluate(node: ast.AST, frame: Frame) -> tuple[str, Any]:
    """The longest part of a name, attribute or subscript up to the first tensor, and its stored value."""
    if isinstance(node, ast.Name):
        return node.id, frame.lookup(node.id)
    if isinstance(node, ast.Starred):
        return evaluate(node.value, frame)
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        return "", MISSING
    text, base = evaluate(node.value, frame)
    if base is MISSING or is_a(base, torch.Tensor):
        return text, base
    if isinstance(node, ast.Attribute):
        return f"{text}.{node.attr}", attribute(base, node.attr)
    key = _key(node.slice, frame)
    spelled = f'"{key}"' if type(key) is str else str(key) if type(key) is int else ""
    return f"{text}[{spelled}]", item(base, key)


def _key(node: ast.expr, frame: Frame) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if type(node.operand.value) is int else None
    _, value = evaluate(node, frame)
    return value
