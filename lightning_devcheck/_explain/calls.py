"""What the user's own functions return, read off their source."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator
from typing import Any

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._observe.inert import MISSING, class_member, closure_parts, is_a, is_exactly
from lightning_devcheck._source.files import Node, is_installed, parse, position_of, start_of

MAX_DEPTH = 4  # of calls in calls
CACHED = type(functools.cache(len))
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def method_of(owner: Any, name: str) -> types.FunctionType | None:
    """The function of the user's behind a method of an object, or a static or class method of a class."""
    found = class_member(owner if is_a(owner, type) else type(owner), name)
    return unwrap(found.__func__ if is_exactly(found, staticmethod, classmethod) else found)


def getter_of(owner: Any, name: str) -> types.FunctionType | None:
    """The function of the user's behind a property."""
    found = class_member(type(owner), name)
    return unwrap(found.fget) if type(found) is property else None


def unwrap(function: Any) -> types.FunctionType | None:
    """The function of the user's that a plain or cached one is, below decorators made with `functools.wraps`."""
    for _ in range(MAX_DEPTH):
        if type(function) not in (types.FunctionType, CACHED) or "__wrapped__" not in vars(function):
            break
        function = vars(function)["__wrapped__"]
    plain = type(function) is types.FunctionType and not is_installed(function.__code__.co_filename)
    return function if plain else None


def returned(function: types.FunctionType) -> list[ast.expr]:
    """The expressions that a function returns or yields."""
    return _returned(function.__code__)


@functools.lru_cache(maxsize=256)
def _returned(code: types.CodeType) -> list[ast.expr]:
    node = definition(code)
    if node is None:
        return []
    if isinstance(node, ast.Lambda):
        return [node.body]
    given = [inner for inner in scope_nodes(node) if isinstance(inner, (ast.Return, ast.Yield, ast.YieldFrom))]
    return [inner.value for inner in sorted(given, key=start_of) if inner.value is not None]


def definition(code: types.CodeType) -> Definition | None:
    tree = parse(code.co_filename)
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if start_of(node)[0] == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name:
            return node
    return None


def scope_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function or module, but not what is in the functions and classes inside it."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, INNER):
            pending += ast.iter_child_nodes(node)


def frame_inside(function: types.FunctionType, owner: Any, outer: Frame | None, at: Node) -> Frame:
    """A function that has returned, as a frame: its own variables are gone, but ``self`` and the closure are known.

    Args:
        function: The function.
        owner: Its ``self``, or `MISSING`.
        outer: The frame that called it, where that is known.
        at: The expression in it that is looked at.
    """
    names = {} if owner is MISSING else {"self": owner}
    names |= {link.key: value for link, value in closure_parts(function)}
    code = function.__code__
    position = position_of(at)
    depth = 1 if outer is None else outer.depth + 1
    return Frame(code.co_filename, at.lineno, code, names, function.__globals__, position, depth)
