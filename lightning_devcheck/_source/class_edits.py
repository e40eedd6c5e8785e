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
from lightning_devcheck._source.files import contains, parse, start_of
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


def moved_into(filename: str, statement: ast.stmt, method: str) -> Edits:
    """Find the edits that move a statement to the beginning of another method of its class.

    Args:
        filename: The file.
        statement: The statement.
        method: The method; it is added at the end of the class where there is none.
    """
    owner = class_around(filename, statement)
    out = taken_out(filename, statement)
    if owner is None or not out:
        return NONE
    source = Source(filename)
    text = spell(statement)
    existing = _method(owner, method)
    if existing is not None:
        first = _first_statement(existing)
        return out + inserted_before(source, first, text)
    last = owner.body[-1]
    added = f"\ndef {method}(self):\n    {text}"
    return out + inserted_after(source, last, added)


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
    methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
    return next((node for node in methods if node.name == name), None)


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
        names = [argument.arg for argument in method.args.args]
        if "self" not in names:
            continue
        for node in _nodes(method.body):
            if isinstance(node, ast.expr) and spell(node) == name:
                yield node


def _nodes(block: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in block:
        yield from ast.walk(statement)
