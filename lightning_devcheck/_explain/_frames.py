"""The frames of a traceback and the expression that failed in each, read without running anything."""

from __future__ import annotations

import ast
import itertools
import linecache
import textwrap
import types
from dataclasses import dataclass, replace
from typing import Any

from lightning_devcheck._records import Origin
from lightning_devcheck._source import is_framework, line_of, parse
from lightning_devcheck._values import MISSING

MAX_FRAMES = 200


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
    position: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    depth: int = 0

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
        return self.names.get(name, dict.get(self.globals, name, MISSING))

    def failing(self) -> ast.AST | None:
        """The syntax tree of the failing expression; of its statement where Python does not tell which it is."""
        first, last, start, end = self.position
        if first is not None and last is not None and start is not None and end is not None:
            lines = [linecache.getline(self.filename, n).encode() for n in range(first, min(last, first + 200) + 1)]
            if all(lines):
                lines[-1] = lines[-1][:end]
                lines[0] = lines[0][start:]
                tree = _parse(b"".join(lines).decode(errors="replace"))
                if tree is not None and not self._is_target(tree):
                    return tree
        return self._lambda() or self.statement()

    def _lambda(self) -> ast.AST | None:
        """What a lambda computes, where Python does not tell which expression failed and one alone is on its line."""
        tree = parse(self.filename) if self.code.co_name == "<lambda>" else None
        found = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda) and n.lineno == self.lineno] if tree else []
        return found[0].body if len(found) == 1 else None

    def _is_target(self, tree: ast.AST) -> bool:
        """Whether storing failed: Python points to the target alone."""
        body = getattr(tree, "body", [])
        value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
        whole = self.statement() if isinstance(value, (ast.Attribute, ast.Subscript)) else None
        stored = [node for node in ast.walk(whole) if isinstance(node, ast.Assign)] if whole is not None else []
        return any(ast.unparse(target) == ast.unparse(value) for node in stored for target in node.targets if value)

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


def read_stack(frame: types.FrameType | None) -> list[Frame]:
    """A frame that runs and those that led to it, outermost first; of very many the innermost."""
    found: list[Frame] = []
    while frame is not None and len(found) < MAX_FRAMES:
        found.append(_of(frame, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]


def _read(entry: types.TracebackType) -> Frame:
    position = _position(entry.tb_frame.f_code, entry.tb_lasti)
    return replace(_of(entry.tb_frame, entry.tb_lineno), position=position)


def _of(frame: types.FrameType, lineno: int | None) -> Frame:
    code, local = frame.f_code, frame.f_locals
    plain = type(local) is dict or type(local).__module__ == "builtins"  # exec takes any mapping
    return Frame(
        filename=code.co_filename,
        lineno=lineno or code.co_firstlineno,
        code=code,
        names=dict(local) if plain else {},
        globals=frame.f_globals,
    )


def _position(code: types.CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None]:
    if instruction < 0:
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
