"""What the user calls the tensor that a line moves, and which line made it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lightning_devcheck._records import Origin
from lightning_devcheck._source import class_body, class_source, line_of, parse

MOVES = ("cpu", "to", "cuda", "type_as", "numpy")


def name_move(place: Origin) -> tuple[str, Origin]:
    """Name what a line brings to another device, as typed, and give the line that made it.

    ``x = loss.cpu()`` makes ``x``; ``losses[0] = loss`` writes into ``losses``, made where it was assigned last;
    ``terms.append(term.cpu())`` moves ``term``. The name is empty where the value has none.
    """
    statement, function = _statement(place)
    target = _target(statement)
    if isinstance(target, ast.Subscript):
        name = ast.unparse(target.value)
        return name, _assignment(function, name, place) or place
    if isinstance(target, (ast.Name, ast.Attribute)):
        return ast.unparse(target), place
    return _receiver(statement), place


def leaf_line(owner: type, method: str) -> Origin | None:
    """The first line of a method that makes a leaf by ``requires_grad``."""
    for cls in owner.__mro__:
        source = class_source(cls) if method in vars(cls) else None
        for function in _functions(class_body(*source), method) if source else ():
            for node in ast.walk(function):
                simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
                if isinstance(node, ast.stmt) and simple and "requires_grad" in ast.unparse(node):
                    return line_of(source[0], node.lineno, method) if source else None
    return None


def _functions(nodes: Iterator[ast.stmt], name: str) -> Iterator[ast.FunctionDef]:
    return (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name)


def _statement(place: Origin) -> tuple[ast.stmt | None, ast.AST | None]:
    """The innermost statement on a line, and the function it is in."""
    tree = parse(place.filename)
    around = [
        node
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.stmt) and node.lineno <= place.lineno <= (node.end_lineno or node.lineno)
    ]
    functions = [node for node in around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return (around[-1] if around else None), (functions[-1] if functions else tree)


def _target(statement: ast.stmt | None) -> ast.expr | None:
    if isinstance(statement, ast.Assign):
        return statement.targets[0]
    return statement.target if isinstance(statement, (ast.AnnAssign, ast.AugAssign)) else None


def _assignment(function: ast.AST | None, name: str, place: Origin) -> Origin | None:
    """The last assignment to a name in a function before a line."""
    if function is None:
        return None
    lines = [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno < place.lineno
        if (target := _target(node)) is not None and ast.unparse(target) == name
    ]
    return line_of(place.filename, max(lines), place.function) if lines else None


def _receiver(statement: ast.stmt | None) -> str:
    """What ``.cpu()`` or ``.to()`` is called on, where that has a name."""
    for node in ast.walk(statement) if statement else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
            value = node.func.value
            return ast.unparse(value) if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)) else ""
    return ""
