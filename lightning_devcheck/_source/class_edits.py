"""Edits of a class: a statement that goes to another method, a buffer for what the file keeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lightning_devcheck._source.edits import (
    NONE,
    Edits,
    Source,
    inserted_after,
    inserted_before,
    removed,
    replaced,
)
from lightning_devcheck._source.files import contains, end_of, parse, start_of
from lightning_devcheck._source.statements import FUNCTIONS, spell, targets_of

BLOCKS = ("body", "orelse", "finalbody")
BUILD = "__init__"


def taken_out(filename: str, statement: ast.stmt) -> Edits:
    """Find the edit that takes a statement out of a file; none where it is not there."""
    found = _found(filename, statement)
    if found is None:
        return NONE
    original, block = found
    return removed(Source(filename), original, block)


def moved_into(
    filename: str,
    statement: ast.stmt,
    method: str,
    text: str = "",
) -> Edits:
    """Find the edits that move a statement to the beginning of another method of its class.

    Args:
        filename: The file.
        statement: The statement.
        method: The method's head; it is added at the end of the class where there is none.
        text: What the statement becomes there; empty where it stays as it is.
    """
    owner = class_around(filename, statement)
    out = taken_out(filename, statement)
    if owner is None or not out or not _can_leave(owner, statement):
        return NONE
    source = Source(filename)
    text = text or spell(statement)
    name = method.partition("(")[0]
    existing = _method(owner, name)
    if existing is not None:
        first = _first_statement(existing)
        return out + inserted_before(source, first, text)
    last = owner.body[-1]
    added = f"\ndef {method}:\n    {text}"
    return out + inserted_after(source, last, added)


def _can_leave(owner: ast.ClassDef, statement: ast.stmt) -> bool:
    """Whether a statement means the same in another method of a Lightning module."""
    bases = list(map(spell, owner.bases))
    if not bases or bases[-1].endswith("nn.Module"):
        return False
    point, end = start_of(statement), end_of(statement)
    around = [node for node in owner.body if contains(node, point)]
    function = next(iter(around), None)
    if not isinstance(function, ast.FunctionDef):
        return False
    needed = _loaded([statement]) - _bound([statement])
    local = _arguments(function) | _bound(function.body)
    if needed & (local - {"self"}):
        return False
    # what follows in the function may want what the statement makes
    later = [node for node in function.body if start_of(node) >= end]
    read = set(map(spell, _values(later)))
    targets = map(spell, targets_of(statement))
    return read.isdisjoint(targets)


def plain_class(filename: str, statement: ast.stmt) -> ast.ClassDef | None:
    """The class around a statement where it has no base, no decorator, and an ``__init__``."""
    owner = class_around(filename, statement)
    if owner is None or owner.bases or owner.keywords or owner.decorator_list:
        return None
    if _method(owner, BUILD) is None:
        return None
    return owner


def as_module(filename: str, owner: ast.ClassDef, base: str) -> Edits:
    """Find the edits that make a plain class a module.

    Args:
        filename: The file.
        owner: The class.
        base: How the file writes ``nn.Module``.
    """
    source = Source(filename)
    build = _method(owner, BUILD)
    if build is None:
        return NONE
    line, column = owner.lineno, owner.col_offset
    behind = line, column + len(f"class {owner.name}".encode())
    head = source.text((line, column), behind)
    if head != f"class {owner.name}" or not source.behind(behind).startswith(":"):
        return NONE
    based = source.edit(behind, behind, f"({base})")
    started = inserted_before(source, _first_statement(build), f"super().{BUILD}()")
    return based, *started


def buffer_for(filename: str, user: ast.stmt, name: str, attribute: str) -> Edits:
    """Find the edits that make something of the file a buffer of the class that uses it.

    Args:
        filename: The file.
        user: A statement in the class.
        name: What the file keeps, as typed.
        attribute: The buffer's name.
    """
    owner = class_around(filename, user)
    build = None if owner is None else _method(owner, BUILD)
    if owner is None or build is None or _has(owner, attribute):
        return NONE
    source = Source(filename)
    start = next((node for node in build.body if _is_start(node)), None)
    if start is None:
        return NONE
    line = f'self.register_buffer("{attribute}", {name}, persistent=False)'
    edits = inserted_after(source, start, line)
    for use in _uses(owner, name):
        edits += replaced(source, use, f"self.{attribute}")
    return edits


def class_around(filename: str, statement: ast.stmt) -> ast.ClassDef | None:
    """The innermost class around a statement of a file."""
    tree = parse(filename)
    if tree is None:
        return None
    point = start_of(statement)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    around = [node for node in classes if contains(node, point)]
    return max(around, key=start_of, default=None)


def gradient_of(filename: str, statement: ast.stmt) -> str:
    """The name of the first gradient that the ``backward`` around a statement gets; else empty."""
    owner = class_around(filename, statement)
    method = None if owner is None else _method(owner, "backward")
    if method is None or not contains(method, start_of(statement)):
        return ""
    names = [argument.arg for argument in method.args.args]
    given = names[1:2]
    return "".join(given)


def _found(filename: str, statement: ast.stmt) -> tuple[ast.stmt, list[ast.stmt]] | None:
    """The statement in the file's own tree, and the block that it is in."""
    tree = parse(filename)
    if tree is None:
        return None
    point = start_of(statement)
    for node in ast.walk(tree):
        for name in BLOCKS:
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for part in block:
                if start_of(part) == point:
                    return part, block
    return None


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def _first_statement(function: ast.FunctionDef) -> ast.stmt:
    """The first statement behind the docstring, where another one follows that."""
    documented = ast.get_docstring(function, clean=False) is not None
    if documented and len(function.body) > 1:
        return function.body[1]
    return function.body[0]


def _has(owner: ast.ClassDef, attribute: str) -> bool:
    """Whether a class assigns, or defines, something of that name."""
    for node in ast.walk(owner):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == attribute:
            return True
        assigned = map(spell, targets_of(node))
        if f"self.{attribute}" in assigned:
            return True
    return False


def _is_start(statement: ast.stmt) -> bool:
    """Whether a statement calls the base's ``__init__``: before it a module registers nothing."""
    return isinstance(statement, ast.Expr) and f"{BUILD}(" in spell(statement)


def _uses(owner: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """Where the methods of a class read something, but for its ``__init__``."""
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name == BUILD:
            continue
        if "self" not in _arguments(method):
            continue
        for node in _values(method.body):
            if spell(node) == name:
                yield node


def _values(block: list[ast.stmt]) -> Iterator[ast.expr]:
    for node in _nodes(block):
        if isinstance(node, ast.expr):
            yield node


def _arguments(function: ast.FunctionDef) -> set[str]:
    nodes = ast.walk(function.args)
    return {node.arg for node in nodes if isinstance(node, ast.arg)}


def _bound(block: list[ast.stmt]) -> set[str]:
    """The names that statements assign."""
    return _names(block, ast.Store)


def _loaded(block: list[ast.stmt]) -> set[str]:
    """The names that statements read."""
    return _names(block, ast.Load)


def _names(block: list[ast.stmt], use: type[ast.expr_context]) -> set[str]:
    found = set()
    for node in _nodes(block):
        if isinstance(node, ast.Name) and isinstance(node.ctx, use):
            found.add(node.id)
    return found


def _nodes(block: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in block:
        yield from ast.walk(statement)
