"""Where a local name got its value: the last statement before a line that binds it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from lightning_devcheck._explain._frames import Frame
from lightning_devcheck._source import parse
from lightning_devcheck._statements import is_move

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Binding:
    """A statement that gives a name its value.

    Attributes:
        kind: ``value`` (assigned, or what ``with`` gives), ``loop``, ``argument``, ``import`` or ``move`` (a ``.to()``
            whose result is thrown away).
        lineno: Its line; that of the ``def`` for an argument.
        value: The expression the value comes from.
        function: The function it is in, empty at module level.
        unpacked: Whether the name takes a part of the value.
    """

    kind: str
    lineno: int
    value: ast.expr | None = None
    function: str = ""
    unpacked: bool = False


def find_binding(frame: Frame, name: str, lineno: int | None = None) -> Binding | None:
    """The binding of a name that holds at a line of a frame, in its function or around it."""
    tree = parse(frame.filename)
    if tree is None:
        return None
    lineno = frame.lineno if lineno is None else lineno
    for scope in _scopes(tree, frame.lineno):
        found = _in_scope(scope, name, lineno)
        if found is not None:
            return found
    return None


def _scopes(tree: ast.Module, lineno: int) -> list[Scope]:
    """The functions around a line, innermost first, and the module."""
    found: list[Scope] = [tree]
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            if first <= lineno <= (node.end_lineno or first):
                found.append(node)
    return found[::-1]


def _in_scope(scope: Scope, name: str, lineno: int) -> Binding | None:
    function = getattr(scope, "name", "")
    bound = [binding for node in _nodes(scope) for binding in _bindings(node, name, function)]
    before = [b for b in bound if b.lineno < lineno or (b.kind == "loop" and b.lineno == lineno)]
    if before:
        return max(before, key=lambda b: b.lineno)
    if not isinstance(scope, ast.Module) and _takes(scope.args, name):
        return Binding("argument", scope.lineno, None, function)
    return max(bound, key=lambda b: b.lineno) if bound else None  # a loop comes back to it


def _nodes(scope: Scope) -> Iterator[ast.AST]:
    """Everything in a scope, but not what is in the functions and classes inside it."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, SCOPES):
            pending += ast.iter_child_nodes(node)


def _takes(arguments: ast.arguments, name: str) -> bool:
    plain = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return any(argument is not None and argument.arg == name for argument in plain)


def _bindings(node: ast.AST, name: str, function: str) -> Iterator[Binding]:
    lineno = getattr(node, "lineno", 0)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        if any((alias.asname or alias.name) == name for alias in node.names):
            yield Binding("import", lineno, None, function)
    elif isinstance(node, ast.Expr):
        if is_move(node.value) and ast.unparse(node.value.func.value) == name:  # type: ignore[attr-defined]
            yield Binding("move", lineno, node.value, function)
    else:
        for target, value, kind in _targets(node):
            if _names(target, name):
                yield Binding(kind, lineno or target.lineno, value, function, not isinstance(target, ast.Name))


def _targets(node: ast.AST) -> list[tuple[ast.expr, ast.expr | None, str]]:
    if isinstance(node, ast.Assign):
        return [pair for target in node.targets for pair in _paired(target, node.value)]
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        return [(node.target, node.value, "value")] if node.value is not None else []
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        return [(node.target, node.iter, "loop")]
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return [(node.optional_vars, node.context_expr, "value")]
    return []


def _paired(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr | None, str]]:
    """Targets with their values: ``a, b = x, y`` is two assignments."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [(left, right, "value") for left, right in zip(target.elts, value.elts, strict=True)]
    return [(target, value, "value")]


def _names(target: ast.expr, name: str) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_names(element, name) for element in target.elts)
    if isinstance(target, ast.Starred):
        return _names(target.value, name)
    return isinstance(target, ast.Name) and target.id == name
