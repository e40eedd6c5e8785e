"""Edits of a source file: where they stand, and what is put in or taken out."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from dataclasses import replace

from lightning_devcheck._report.edits import apply
from lightning_devcheck._report.records import Edit
from lightning_devcheck._source.files import Node, Point, end_of, start_of
from lightning_devcheck._source.statements import parse_text

Edits = tuple[Edit, ...]
NONE: Edits = ()


class Source:
    """The text of a file, by the positions that Python gives.

    Lines count from 1, columns are bytes of UTF-8. The end of the file is the beginning of the line
    behind its last one.
    """

    def __init__(self, filename: str, lines: list[str] | None = None) -> None:
        """Read a file as `linecache` knows it.

        Args:
            filename: The file.
            lines: Its lines, where they are not that file's.
        """
        if lines is None:
            lines = linecache.getlines(filename)
        self.filename = filename
        self._rows = [line.encode() for line in lines]

    @property
    def whole(self) -> str:
        """The text of the file."""
        return b"".join(self._rows).decode()

    @property
    def end(self) -> Point:
        """Behind the last character."""
        if not self._rows:
            return 1, 0
        last = self._rows[-1]
        number = len(self._rows)
        return number, len(last)

    def text(self, start: Point, end: Point) -> str:
        """The text between two points."""
        first, column = start
        last, end_column = end
        rows = self._rows[first - 1 : last]
        if len(rows) > last - first:
            rows[-1] = rows[-1][:end_column]
        if rows:
            rows[0] = rows[0][column:]
        return b"".join(rows).decode()

    def of(self, node: Node) -> str:
        """The text of a statement or expression, without decorators."""
        start = node.lineno, node.col_offset
        return self.text(start, end_of(node))

    def before(self, point: Point) -> str:
        """What stands on the line before a point."""
        return self.text((point[0], 0), point)

    def behind(self, point: Point) -> str:
        """What stands on the line behind a point."""
        line, column = point
        row = self._rows[line - 1]
        return row[column:].decode()

    def indentation(self, node: Node) -> str:
        """What the line of a statement begins with."""
        line = self.behind((node.lineno, 0))
        code = line.lstrip()
        return line.removesuffix(code)

    def next_line(self, point: Point) -> Point:
        """The beginning of the line behind a point, or the end of the file."""
        following = point[0] + 1, 0
        return min(following, self.end)

    def edit(self, start: Point, end: Point, new: str) -> Edit:
        """What writes a text between two points."""
        old = self.text(start, end)
        return Edit(self.filename, *start, *end, old, new)


def replaced(source: Source, old: Node, new: str) -> Edits:
    """Find the edit that puts a text in the place of a statement or expression."""
    edit = source.edit(start_of(old), end_of(old), new)
    return (edit,)


def inserted_before(source: Source, statement: ast.stmt, text: str) -> Edits:
    """Find the edit that puts lines before a statement, with its indentation."""
    point = start_of(statement)
    begin = point[0], 0
    if not source.before(point).strip():
        lines = _indented(text, source.indentation(statement))
        return (source.edit(begin, begin, lines),)
    # another statement stands there, or the head of the block
    if "\n" in text:
        return NONE
    return (source.edit(point, point, f"{text}; "),)


def inserted_after(source: Source, statement: ast.stmt, text: str) -> Edits:
    """Find the edit that puts lines after a simple statement, with its indentation."""
    point = end_of(statement)
    if _is_shared(source, point):
        if "\n" in text:
            return NONE
        return (source.edit(point, point, f"; {text}"),)
    lines = _indented(text, source.indentation(statement))
    following = source.next_line(point)
    is_last = following == source.end
    if is_last and not source.behind(point).endswith("\n"):
        lines = "\n" + lines.removesuffix("\n")
    return (source.edit(following, following, lines),)


def removed(source: Source, statement: ast.stmt, block: list[ast.stmt]) -> Edits:
    """Find the edit that takes a statement out of its block; the only one becomes ``pass``."""
    if len(block) == 1:
        return replaced(source, statement, "pass")
    start, end = start_of(statement), end_of(statement)
    index = block.index(statement)
    if _is_shared(source, end):
        following = start_of(block[index + 1])
        return (source.edit(start, following, ""),)
    if source.before(start).strip():
        earlier = end_of(block[index - 1])
        return (source.edit(earlier, end, ""),)
    begin = start[0], 0
    return (source.edit(begin, source.next_line(end), ""),)


def compiles(source: Source, edits: Iterable[Edit]) -> bool:
    """Whether a file is Python with the edits."""
    text = apply(source.whole, edits)
    return text is not None and parse_text(text) is not None


def with_text(edits: Iterable[Edit], old: str, new: str) -> Edits:
    """The edits, with another text for one in what they write."""
    changed = []
    for edit in edits:
        text = edit.new.replace(old, new)
        changed.append(replace(edit, new=text))
    return tuple(changed)


def _is_shared(source: Source, point: Point) -> bool:
    """Whether another statement follows on the line."""
    behind = source.behind(point).strip()
    return bool(behind) and not behind.startswith("#")


def _indented(text: str, indentation: str) -> str:
    lines = []
    for line in text.splitlines():
        written = f"{indentation}{line}".rstrip()
        lines.append(f"{written}\n")
    return "".join(lines)
