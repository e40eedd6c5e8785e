"""The frames of a traceback and the expression that failed in each, read without running anything."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lightning_devcheck._observe.inert import MISSING
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import (
    UNKNOWN,
    Point,
    Position,
    end_of,
    head_of,
    innermost,
    is_framework,
    line_of,
    own_nodes,
    parse,
)
from lightning_devcheck._source.statements import parse_text

MAX_FRAMES = 200
# to the dictionary of a frame's variables: the frame's, the variable that is asked about, and the question's own
OWN_REFERENCES = 3


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
        depth: 0 for a frame of the traceback; for a function that has returned, how many calls lead to it.
    """

    filename: str
    lineno: int
    code: types.CodeType
    names: dict[str, Any]
    globals: dict[str, Any]
    position: Position = UNKNOWN
    depth: int = 0

    @property
    def is_user(self) -> bool:
        """Whether it is the user's own code."""
        return not is_framework(self.filename)

    @property
    def origin(self) -> Origin:
        """The failing line."""
        return line_of(self.filename, self.lineno, self.code.co_name, self.position)

    def lookup(self, name: str) -> Any:
        """A variable's value, or `MISSING`."""
        return self.names.get(name, dict.get(self.globals, name, MISSING))

    @property
    def point(self) -> Point:
        """Where the failing expression begins."""
        return self.lineno, self.position[2] or 0

    def failing(self) -> ast.AST | None:
        """The syntax tree of the failing expression; of its statement where that is all that Python tells."""
        found = self._find()
        if found is None:
            return None
        statement, expression = found
        stored = isinstance(getattr(expression, "ctx", None), (ast.Store, ast.Del))
        return expression if isinstance(expression, ast.expr) and not stored else head_of(statement)

    def failed_nodes(self) -> Iterator[ast.AST]:
        """Everything in the failing expression, then in the statement around it."""
        for tree in (self.failing(), self.statement()):
            if tree is not None:
                yield from ast.walk(tree)

    def statement(self) -> ast.AST | None:
        """The syntax tree of the statement around what failed, of a compound one the head; of a lambda its body."""
        found = self._find()
        if found is None:
            return None
        statement, expression = found
        if self.code.co_name == "<lambda>":  # other parts of the statement use its names for other things
            nodes = own_nodes(statement)
            bodies = [node.body for node in nodes if isinstance(node, ast.Lambda)]
            around = [body for body in bodies if expression in ast.walk(body)]
            if around:
                return around[-1]
        return head_of(statement)

    def _find(self) -> tuple[ast.stmt, ast.AST] | None:
        """The statement in the file, and what failed of it; None where the file is not, or no more, what runs."""
        tree = parse(self.filename) if self.is_user else _parse_function(self.code)
        statement = None if tree is None else innermost(tree, (self.lineno, self.position[2]))
        if statement is None:
            return None
        expression = statement if self.position[2] is None else self._expression(statement)
        if expression is None:
            return None
        used = {node.id for node in own_nodes(expression) if isinstance(node, ast.Name)}
        mangled = {name for name in used if name.startswith("__")}
        inside = self.position[2] is None and self.code.co_name.startswith("<")  # its statement has other names
        return (statement, expression) if inside or used - mangled <= _names_in(self.code) else None

    def _expression(self, statement: ast.stmt) -> ast.AST | None:
        """What stands exactly where the instruction that failed comes from."""
        first, last, start, end = self.position
        found = None
        for node in own_nodes(statement):
            ends = (getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None))
            if ends == (last, end) and (first, start) in _starts(node):
                found = node
        return found


def _starts(node: Any) -> list[Point]:
    """Where Python may say that a node begins: a method that is called on a later line begins at its name."""
    starts = [(node.lineno, node.col_offset)]
    named = node.func if isinstance(node, ast.Call) else node
    if isinstance(named, ast.Attribute):
        line, column = end_of(named)
        starts.append((line, column - len(named.attr.encode())))
    return starts


@functools.lru_cache(maxsize=256)
def _names_in(code: types.CodeType) -> frozenset[str]:
    """The names that a function and the functions in it use."""
    parts = list(_codes(code))
    groups = (names for part in parts for names in (part.co_names, part.co_varnames, part.co_freevars))
    return frozenset(itertools.chain(*groups))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


@functools.lru_cache(maxsize=256)
def _parse_function(code: types.CodeType) -> ast.Module | None:
    """The syntax tree of one function of a framework, whose files are long, with the positions that it has there."""
    first = code.co_firstlineno
    ends = (end for part in _codes(code) for _, end, *_ in part.co_positions() if end is not None)
    text = "".join(linecache.getlines(code.co_filename)[first - 1 : max(ends, default=first)])
    before = "if 1:\n" if text[:1].isspace() else "\n"  # a method's lines are indented
    tree = parse_text(before + text)
    if tree is not None:
        ast.increment_lineno(tree, first - 2)
    return tree


def read_frames(traceback: types.TracebackType | None) -> list[Frame]:
    """The frames of a traceback, outermost first; the middle of a very deep one is left out."""
    entries: list[types.TracebackType] = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    if len(entries) > MAX_FRAMES:
        entries = entries[: MAX_FRAMES // 4] + entries[-MAX_FRAMES * 3 // 4 :]
    return [_read(entry) for entry in entries]


def read_stack(frame: types.FrameType | None) -> list[Frame]:
    """A frame that runs and those that led to it, outermost first; of very many the innermost."""
    found: list[Frame] = []
    while frame is not None and len(found) < MAX_FRAMES:
        found.append(_of(frame, frame.f_lineno, frame.f_lasti))
        frame = frame.f_back
    return found[::-1]


def _read(entry: types.TracebackType) -> Frame:
    return _of(entry.tb_frame, entry.tb_lineno, entry.tb_lasti)


def _of(frame: types.FrameType, lineno: int | None, instruction: int) -> Frame:
    code = frame.f_code
    return Frame(
        filename=code.co_filename,
        lineno=lineno or code.co_firstlineno,
        code=code,
        names=_variables(frame),
        globals=frame.f_globals,
        position=_position(code, instruction),
    )


def _variables(frame: types.FrameType) -> dict[str, Any]:
    """The local variables of a frame.

    Until Python 3.13 a function's frame keeps the dictionary that it gives away, and with it what the variables held,
    whatever becomes of them; so it is emptied, unless it is the program's as well (``options = locals()``).
    """
    local = frame.f_locals
    if type(local) is not dict and type(local).__module__ != "builtins":
        return {}  # exec takes any mapping
    names = dict(local)
    is_copy = type(local) is dict and bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    if is_copy and sys.getrefcount(local) == OWN_REFERENCES:
        local.clear()
    return names


def _position(code: types.CodeType, instruction: int) -> Position:
    if instruction < 0:
        return UNKNOWN
    return next(itertools.islice(code.co_positions(), instruction // 2, None), UNKNOWN)
