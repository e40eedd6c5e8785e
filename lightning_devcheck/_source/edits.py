"""Edits of a source file: a statement as it stands and as it should be become the pieces to write anew.

All other text of the user's stays as it is: comments, line breaks, quotes. What a changed statement
keeps of the old one is copied from the file, not spelled again.
"""

from __future__ import annotations

import ast
import copy
import io
import itertools
import linecache
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lightning_devcheck._report.records import Edit
from lightning_devcheck._source.files import Node, Point, end_of, start_of
from lightning_devcheck._source.statements import parse_text, spell

# stands for a piece of the file while the code around it is spelled
_KEPT = "_kept_%d_"
_KEPT_NAME = re.compile(r"_kept_(\d+)_")
# what binds as tight as a name: nothing can be torn apart by what is written beside it
ATOMS: tuple[type[ast.expr], ...] = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Call,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.JoinedStr,
)
ATOMS += (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# where an expression stands by itself, between commas or at the end of a statement
ALONE = (ast.Call, ast.keyword, ast.List, ast.Set, ast.Dict, ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)


class Source:
    """The text of a file, by the positions that Python gives: lines from 1, columns in bytes of UTF-8."""

    def __init__(self, filename: str, lines: list[str] | None = None) -> None:
        """Read a file as `linecache` knows it.

        Args:
            filename: The file.
            lines: Its lines, where they are not that file's.
        """
        self.filename = filename
        self.lines = linecache.getlines(filename) if lines is None else lines

    def text(self, start: Point, end: Point) -> str:
        """The text between two points."""
        first, last = start[0], end[0]
        rows = [line.encode() for line in self.lines[first - 1 : last]]
        rows[-1] = rows[-1][: end[1]]
        rows[0] = rows[0][start[1] :]
        return b"".join(rows).decode()

    def of(self, node: Node) -> str:
        """The text of a statement or expression."""
        return self.text((node.lineno, node.col_offset), end_of(node))

    def edit(self, start: Point, end: Point, new: str) -> Edit:
        """What writes a text between two points."""
        return Edit(self.filename, *start, *end, self.text(start, end), new)

    def indentation(self, lineno: int) -> str:
        """What a line begins with."""
        line = self.lines[lineno - 1]
        return line[: len(line) - len(line.lstrip())]


def changes(source: Source, old: ast.AST, new: ast.AST) -> tuple[Edit, ...]:
    """Find the edits that make one statement or expression of a file into another.

    Args:
        source: The file.
        old: As it stands there, with its positions.
        new: As it should be; it needs no positions.
    """
    return tuple(_Changes(source, old).between(old, new))


def replaced(source: Source, old: ast.AST, new: str) -> tuple[Edit, ...]:
    """Find the edit that puts a text in the place of a statement or expression."""
    return (source.edit(start_of(old), end_of(old), new),)  # type: ignore[arg-type]


def inserted_before(source: Source, statement: ast.stmt, text: str) -> tuple[Edit, ...]:
    """Find the edit that puts lines before a statement, with its indentation."""
    line, column = start_of(statement)
    before = source.text((line, 0), (line, column))
    if before.strip():  # another statement stands there, or the head of the block
        return (source.edit((line, column), (line, column), f"{text}; "),) if "\n" not in text else ()
    written = _indented(text, source.indentation(line))
    return (source.edit((line, 0), (line, 0), written),)


def inserted_after(source: Source, statement: ast.stmt, text: str) -> tuple[Edit, ...]:
    """Find the edit that puts lines after a simple statement, with its indentation."""
    line, column = end_of(statement)
    if _shares_line(source, (line, column)):
        return (source.edit((line, column), (line, column), f"; {text}"),) if "\n" not in text else ()
    written = _indented(text, source.indentation(start_of(statement)[0]))
    if line < len(source.lines):
        return (source.edit((line + 1, 0), (line + 1, 0), written),)
    last = source.lines[-1]
    column = len(last.rstrip("\n").encode())
    return (source.edit((line, column), (line, column), "\n" + written.removesuffix("\n")),)


def removed(source: Source, statement: ast.stmt, block: list[ast.stmt]) -> tuple[Edit, ...]:
    """Find the edit that takes a statement out of its block; the only one becomes ``pass``."""
    if len(block) == 1:
        return replaced(source, statement, "pass")
    (first, start), (last, end) = start_of(statement), end_of(statement)
    before = source.text((first, 0), (first, start))
    if not before.strip() and not _shares_line(source, (last, end)):
        if last < len(source.lines):
            return (source.edit((first, 0), (last + 1, 0), ""),)
        return (source.edit((first, 0), (last, len(source.lines[last - 1].encode())), ""),)
    index = block.index(statement)
    if index + 1 < len(block):  # up to the next one of the line
        return (source.edit((first, start), start_of(block[index + 1]), ""),)
    return (source.edit(end_of(block[index - 1]), (last, end), ""),)


def _shares_line(source: Source, point: Point) -> bool:
    """Whether another statement follows on the line."""
    line, column = point
    behind = source.lines[line - 1].encode()[column:].decode().strip()
    return bool(behind) and not behind.startswith("#")


def apply(text: str, edits: Iterable[Edit]) -> str | None:
    """Write the edits of one file into its text; None where they overlap, or something else stands there.

    Args:
        text: The file's text, its lines ended by line feeds.
        edits: The edits; equal ones are written once, and what is put in at one point in their order.
    """
    source = Source("", text.splitlines(keepends=True) or [""])
    unique = sorted(dict.fromkeys(edits), key=lambda edit: (*_start(edit), *_end(edit)))
    for one, other in itertools.pairwise(unique):
        if _end(one) > _start(other):
            return None
    written: list[str] = []
    at: Point = (1, 0)
    for edit in unique:
        if not _stands(source, edit):
            return None
        written += source.text(at, _start(edit)), edit.new
        at = _end(edit)
    end = len(source.lines), len(source.lines[-1].encode())
    written.append(source.text(at, end) if at <= end else "")
    return "".join(written)


def compiles(source: Source, edits: Iterable[Edit]) -> bool:
    """Whether a file is Python with the edits."""
    text = apply("".join(source.lines), edits)
    return text is not None and parse_text(text) is not None


def with_text(edits: Iterable[Edit], old: str, new: str) -> tuple[Edit, ...]:
    """The edits, with another text for one in what they write."""
    return tuple(replace(edit, new=edit.new.replace(old, new)) for edit in edits)


def _start(edit: Edit) -> Point:
    return edit.lineno, edit.column


def _end(edit: Edit) -> Point:
    return edit.end_lineno, edit.end_column


def _stands(source: Source, edit: Edit) -> bool:
    """Whether a file still has what an edit is to replace."""
    last = len(source.lines)
    is_end = edit.end_lineno == last + 1 and edit.end_column == 0
    if edit.end_lineno > last and not is_end:
        return False
    return source.text(_start(edit), _end(edit)) == edit.old


def _indented(text: str, indentation: str) -> str:
    lines = (f"{indentation}{line}".rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class _Changes:
    """What differs between a statement of a file and a changed copy of it."""

    source: Source
    old: ast.AST

    def between(self, old: ast.AST, new: ast.AST) -> Iterator[Edit]:
        """Edit what differs, as deep inside as it can be told apart."""
        if ast.dump(old) == ast.dump(new):
            return
        parts = self._parts(old, new)
        if parts is not None:
            for one, other in parts:
                yield from self.between(one, other)
        elif (added := _added_keywords(old, new)) and isinstance(old, ast.Call):
            yield self._with_keywords(old, added)
        else:
            yield from self._rewritten(old, new)

    def _parts(self, old: ast.AST, new: ast.AST) -> list[tuple[ast.AST, ast.AST]] | None:
        """The children that differ, in pairs; None where the node itself does."""
        if type(old) is not type(new) or isinstance(old, ast.JoinedStr):
            return None
        pairs: list[tuple[ast.AST, ast.AST]] = []
        for field in old._fields:
            one, other = getattr(old, field, None), getattr(new, field, None)
            ones = one if isinstance(one, list) else [one]
            others = other if isinstance(other, list) else [other]
            if len(ones) != len(others):
                return None
            for left, right in zip(ones, others, strict=True):
                if isinstance(left, ast.AST) and isinstance(right, ast.AST):
                    pairs.append((left, right))
                elif left != right:
                    return None
        changed = [pair for pair in pairs if ast.dump(pair[0]) != ast.dump(pair[1])]
        return changed if all(_has_place(left) for left, _ in changed) else None

    def _with_keywords(self, call: ast.Call, added: list[ast.keyword]) -> Edit:
        """Write further arguments at the end of a call, before its last comma where there is one."""
        text = self.source.of(call)
        last = _last_token(text)
        point = _point(call, text, last.end)
        words = ", ".join(f"{word.arg}={spell(word.value)}" for word in added)
        return self.source.edit(point, point, words if last.string == "(" else f", {words}")

    def _rewritten(self, old: ast.AST, new: ast.AST) -> Iterator[Edit]:
        """Spell a node anew, around the pieces of the file that it keeps."""
        keep = _Keep(self.source, self.old)
        changed = copy.deepcopy(new)
        keep.put(changed)
        text = spell(changed)
        if isinstance(old, ast.stmt):
            text = text.replace("\n", "\n" + self.source.indentation(old.lineno))
        pieces = _KEPT_NAME.split(text)
        start, end = start_of(old), end_of(old)  # type: ignore[arg-type]
        if len(keep.nodes) == 1 and keep.nodes[0] is old:
            # it is kept whole: only what comes before and behind is new
            opening, closing = ("(", ")") if keep.torn[0] else ("", "")
            before, behind = pieces[0] + opening, closing + pieces[2]
            if before:
                yield self.source.edit(start, start, before)
            if behind:
                yield self.source.edit(end, end, behind)
            return
        written = _KEPT_NAME.sub(lambda match: keep.text(int(match[1])), text)
        if isinstance(new, ast.expr) and not isinstance(new, (*ATOMS, ast.Constant)):
            written = f"({written})"
        yield self.source.edit(start, end, written)


class _Keep:
    """Puts a name for each expression that stands in the file as it is, the largest ones."""

    def __init__(self, source: Source, old: ast.AST) -> None:
        self._source = source
        self._known = {ast.dump(node): node for node in _expressions(old)}
        self.nodes: list[ast.expr] = []
        self.torn: list[bool] = []

    def text(self, number: int) -> str:
        """The text of a piece; in parentheses where what is beside it would tear it apart."""
        text = self._source.of(self.nodes[number])
        return f"({text})" if self.torn[number] else text

    def put(self, node: ast.AST) -> None:
        """Put names for what is kept in the parts of a node."""
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                value[:] = [self._kept(part, node) for part in value]
            elif isinstance(value, ast.AST):
                setattr(node, field, self._kept(value, node))

    def _kept(self, node: object, parent: ast.AST) -> object:
        if not isinstance(node, ast.AST):
            return node
        known = self._known.get(ast.dump(node))
        if known is None:
            self.put(node)
            return node
        is_alone = isinstance(parent, ALONE) and getattr(parent, "func", None) is not node
        is_bare = isinstance(known, ast.Tuple) and not self._source.of(known).startswith("(")
        self.torn.append(is_bare or not (is_alone or isinstance(known, ATOMS)))
        self.nodes.append(known)
        return ast.Name(_KEPT % (len(self.nodes) - 1), ast.Load())


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """The values in a statement or expression; before Python 3.12 the parts of an f-string have no right places."""
    if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
        yield node
    if not isinstance(node, ast.JoinedStr):
        for part in ast.iter_child_nodes(node):
            yield from _expressions(part)


def _has_place(node: ast.AST) -> bool:
    """Whether the file tells where a node stands; operators, arguments and the like have no place of their own."""
    return isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.arg))


def _added_keywords(old: ast.AST, new: ast.AST) -> list[ast.keyword]:
    """The arguments that a call has more than before; empty where anything else differs too."""
    if not (isinstance(old, ast.Call) and isinstance(new, ast.Call)):
        return []
    count = len(old.keywords)
    before = ast.Call(new.func, new.args, new.keywords[:count])
    return new.keywords[count:] if ast.dump(before) == ast.dump(old) else []


def _last_token(call: str) -> tokenize.TokenInfo:
    """The last token inside of a call's parentheses, the comma at the end not counted."""
    tokens = tokenize.generate_tokens(io.StringIO(f"({call})").readline)
    skipped = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER)
    found = [token for token in tokens if token.type not in skipped][:-2]
    return found[-2] if found[-1].string == "," else found[-1]


def _point(node: Node, text: str, end: tuple[int, int]) -> Point:
    """Where a token of a node's text, which was read inside of parentheses, ends in the file."""
    line, column = end
    row = text.splitlines()[line - 1]
    if line == 1:
        return node.lineno, node.col_offset + len(row[: column - 1].encode())
    return node.lineno + line - 1, len(row[:column].encode())
