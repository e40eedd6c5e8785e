"""A statement as it stands and as it should be become edits: only what differs is written.

All other text of the user's stays: comments, line breaks, quotes. What a changed statement keeps of
the old one is copied from the file, not spelled again.
"""

from __future__ import annotations

import ast
import copy
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Any

from lightning_devcheck._report.records import Edit
from lightning_devcheck._source.edits import NONE, Edits, Source
from lightning_devcheck._source.files import Node, Point, end_of, start_of
from lightning_devcheck._source.statements import parse_text, spell

# stands for a piece of the file while the code around it is spelled
KEPT = "_kept_{}_"
KEPT_NAME = re.compile(r"_kept_(\d+)_")
# what binds as tight as a name: nothing can be torn apart by what is written beside it
DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.JoinedStr, *DISPLAYS)
# where an expression stands by itself, between commas or at the end of a statement
LISTS = (ast.Call, ast.keyword, ast.List, ast.Set, ast.Dict)
ALONE = (*LISTS, ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)
# what the file tells the place of; operators and the like have none of their own
PLACED = (ast.expr, ast.stmt, ast.keyword, ast.arg)
LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER)

Pair = tuple[ast.AST, ast.AST]


def changes(source: Source, old: ast.AST, new: ast.AST) -> Edits:
    """Find the edits that make one statement or expression of a file into another.

    Args:
        source: The file.
        old: As it stands there, with its positions; of a compound statement the head.
        new: As it should be; it needs no positions.

    Returns:
        The edits; none where a compound statement would be written with its body.
    """
    edits: list[Edit] = []
    pending: list[Pair] = [(old, new)]
    for left, right in pending:  # grows on the way
        if _is_same(left, right):
            continue
        parts = _parts(left, right)
        added = _added_keywords(left, right)
        if parts is not None:
            pending += parts
        elif added:
            edits.append(_with_keywords(source, left, added))  # type: ignore[arg-type]
        elif isinstance(left, ast.stmt) and hasattr(left, "body"):
            return NONE
        else:
            edits += _rewritten(source, old, left, right)
    return tuple(edits)


def _is_same(old: ast.AST, new: ast.AST) -> bool:
    return ast.dump(old) == ast.dump(new)


def _parts(old: ast.AST, new: ast.AST) -> list[Pair] | None:
    """Pair the nearest parts that differ; None where the node itself does."""
    # before Python 3.12 the parts of an f-string have no right places
    if type(old) is not type(new) or isinstance(old, ast.JoinedStr):
        return None
    pairs: list[Pair] = []
    for field in old._fields:
        ones, others = _listed(old, field), _listed(new, field)
        if len(ones) != len(others):
            return None
        for left, right in zip(ones, others, strict=True):
            inner = _pairs(left, right)
            if inner is None:
                return None
            pairs += inner
    return pairs


def _pairs(left: ast.AST, right: ast.AST) -> list[Pair] | None:
    """Two children as a pair, or what differs in them; None where that has no place of its own."""
    is_node = isinstance(left, ast.AST) and isinstance(right, ast.AST)
    if not is_node:
        return [] if left == right else None
    if _is_same(left, right):
        return []
    if isinstance(left, PLACED):
        return [(left, right)]
    return _parts(left, right)


def _listed(node: ast.AST, field: str) -> list[ast.AST]:
    value = getattr(node, field, None)
    if isinstance(value, list):
        return value
    return [value]  # type: ignore[list-item]


def _added_keywords(old: ast.AST, new: ast.AST) -> list[ast.keyword]:
    """The arguments that a call has more than before; empty where anything else differs too."""
    if not isinstance(old, ast.Call) or not isinstance(new, ast.Call):
        return []
    count = len(old.keywords)
    common = new.keywords[:count]
    before = ast.Call(new.func, new.args, common)
    if not _is_same(before, old):
        return []
    return new.keywords[count:]


def _with_keywords(source: Source, call: ast.Call, added: list[ast.keyword]) -> Edit:
    """Write further arguments at the end of a call, before its last comma where there is one."""
    text = source.of(call)
    last = _last_token(text)
    point = _point(call, text, last.end)
    words = ", ".join(map(_keyword, added))
    if last.string != "(":
        words = f", {words}"
    return source.edit(point, point, words)


def _keyword(word: ast.keyword) -> str:
    return f"{word.arg}={spell(word.value)}"


def _last_token(call: str) -> tokenize.TokenInfo:
    """The last token inside of a call's parentheses, the comma at the end not counted."""
    # in parentheses of their own lines need no indentation
    lines = io.StringIO(f"({call})")
    tokens = tokenize.generate_tokens(lines.readline)
    found = [token for token in tokens if token.type not in LAYOUT]
    *_, before, last, _, _ = found
    if last.string == ",":
        return before
    return last


def _point(node: Node, text: str, end: Point) -> Point:
    """Where a token of a node's text, which was read inside of parentheses, ends in the file."""
    line, column = end
    row = text.split("\n")[line - 1]
    if line > 1:
        return node.lineno + line - 1, len(row[:column].encode())
    before = row[: column - 1].encode()
    return node.lineno, node.col_offset + len(before)


def _rewritten(source: Source, whole: ast.AST, old: ast.AST, new: ast.AST) -> Iterator[Edit]:
    """Spell a node anew, around the pieces of the file that it keeps."""
    keep = _Keep(source, whole)
    text = keep.spelled(new)
    start, end = start_of(old), end_of(old)  # type: ignore[arg-type]
    if isinstance(old, ast.stmt):
        indentation = source.indentation(old)
        text = text.replace("\n", f"\n{indentation}")
    if keep.nodes == [old]:
        # it is kept whole: only what comes before and behind is new
        before, behind = keep.around(text)
        if before:
            yield source.edit(start, start, before)
        if behind:
            yield source.edit(end, end, behind)
        return
    written = KEPT_NAME.sub(keep.piece, text)
    is_operation = isinstance(new, ast.expr) and not isinstance(new, (*ATOMS, ast.Constant))
    is_all = getattr(whole, "value", None) is old
    if is_operation and not is_all:
        written = f"({written})"
    yield source.edit(start, end, written)


class _Keep:
    """Puts a name for each expression that stands in the file as it is, the largest ones."""

    def __init__(self, source: Source, old: ast.AST) -> None:
        self._source = source
        self._known = {ast.dump(node): node for node in _values(old)}
        self.nodes: list[ast.expr] = []
        # whether each needs parentheses, or what is beside it would tear it apart
        self._torn: list[bool] = []

    def spelled(self, new: ast.AST) -> str:
        """Spell a node with names for what is kept."""
        changed: Any = copy.deepcopy(new)
        if isinstance(changed, ast.expr):
            changed = ast.Expr(changed)
        holder = ast.Module([changed], [])
        self._put_into(holder)
        return spell(holder)

    def piece(self, match: re.Match[str]) -> str:
        """The text that a name stands for."""
        number = int(match[1])
        text = self._source.of(self.nodes[number])
        if self._torn[number]:
            return f"({text})"
        return text

    def around(self, text: str) -> tuple[str, str]:
        """What comes before the one piece that is kept, and behind it."""
        before, _, behind = KEPT_NAME.split(text)
        if self._torn[0]:
            return f"{before}(", f"){behind}"
        return before, behind

    def _put_into(self, node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                value[:] = [self._kept(part, node) for part in value]
            elif isinstance(value, ast.AST):
                kept = self._kept(value, node)
                setattr(node, field, kept)

    def _kept(self, node: object, parent: ast.AST) -> object:
        if not isinstance(node, ast.AST):
            return node
        known = self._known.get(ast.dump(node))
        if known is None:
            self._put_into(node)
            return node
        is_called = getattr(parent, "func", None) is node
        is_alone = isinstance(parent, ALONE) and not is_called
        is_safe = is_alone or isinstance(known, ATOMS)
        text = self._source.of(known)
        is_torn = not is_safe or not _is_whole(text, known)
        self._torn.append(is_torn)
        name = KEPT.format(len(self.nodes))
        self.nodes.append(known)
        return ast.Name(name, ast.Load())


def _is_whole(text: str, node: ast.expr) -> bool:
    """Whether a text needs no parentheses, at the end of a statement and between commas."""
    name = ast.Name("_", ast.Load())
    call = ast.Call(name, [node], [])
    return _reads(text, node) and _reads(f"_({text})", call)


def _reads(text: str, expression: ast.expr) -> bool:
    """Whether a text is an expression's."""
    tree = parse_text(text)
    statement = ast.Expr(expression)
    return tree is not None and _is_same(tree, ast.Module([statement], []))


def _values(node: ast.AST) -> Iterator[ast.expr]:
    """The values in a statement or expression that have their right places."""
    context = getattr(node, "ctx", None)
    is_target = isinstance(context, (ast.Store, ast.Del))
    is_value = isinstance(node, ast.expr) and not isinstance(node, ast.Slice)
    if is_value and not is_target:
        yield node  # type: ignore[misc]
    if isinstance(node, ast.JoinedStr):
        return
    for part in ast.iter_child_nodes(node):
        yield from _values(part)
