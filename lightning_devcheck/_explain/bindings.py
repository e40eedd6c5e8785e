"""Where a local name got its value: the last statement before a line that binds it, or a part of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lightning_devcheck._explain.calls import scope_nodes
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._observe.inert import is_module
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.assignments import kind_of
from lightning_devcheck._source.files import (
    Node,
    Point,
    contains,
    end_of,
    own_nodes,
    parse,
    start_of,
    statements_around,
)
from lightning_devcheck._source.path import Path, base_of
from lightning_devcheck._source.statements import (
    ADDERS,
    ASSIGNMENTS,
    FUNCTIONS,
    has_factory,
    moved_in_place,
    pairs_of,
    parts_of,
    receiver_of,
    spell,
    targets_of,
)

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Kind = Literal["value", "loop", "argument", "import", "move"]


@dataclass(frozen=True, slots=True)
class Binding:
    """A statement that gives a name its value.

    Attributes:
        kind: ``value`` (assigned, or what ``with`` gives), ``loop`` (taken out of something by ``for`` or ``match``),
            ``argument``, ``import`` or ``move`` (a ``.to()`` whose result is thrown away).
        node: What gives it: a statement, the target of a ``for`` or ``with``, a pattern, or an expression.
        value: The expression the value comes from.
        function: The function it is in, empty at module level.
        unpacked: Whether the name takes a part of the value.
    """

    kind: Kind
    node: Node
    value: ast.expr | None = None
    function: str = ""
    unpacked: bool = False

    @property
    def start(self) -> Point:
        """Where it begins."""
        return start_of(self.node)

    @property
    def end(self) -> Point:
        """From where on the name has this value."""
        return end_of(self.node)


def find_binding(frame: Frame, name: str, point: Point | None = None) -> Binding | None:
    """The binding of a name, or of the part of it that was set last, that holds at a point of a frame.

    Args:
        frame: The frame.
        name: The whole name, ``cfg["weight"]``.
        point: The point; None takes what failed.
    """
    tree = parse(frame.filename)
    if tree is None:
        return None
    point = frame.point if point is None else point
    base = base_of(name)
    moves = not is_module(frame.lookup(base))  # a module's ``.to()`` moves it in place
    for scope in _scopes(tree, frame.point):
        found = _in_scope(scope, base, point, moves)
        if found is not None:
            return _part(scope, found, name, point) or found
        if isinstance(scope, FUNCTIONS):
            point = end_of(tree.body[-1])  # ran after all of these
    return None


def _scopes(tree: ast.Module, point: Point) -> list[Scope]:
    """The functions around a point, innermost first, and the module."""
    found: list[Scope] = [tree]
    for statement in statements_around(tree, point):
        if isinstance(statement, FUNCTIONS):
            found.append(statement)
        lambdas = (node for node in own_nodes(statement) if isinstance(node, ast.Lambda))
        found += [node for node in lambdas if contains(node, point)]
    return found[::-1]


def _in_scope(scope: Scope, name: str, point: Point, moves: bool) -> Binding | None:
    function = getattr(scope, "name", "")
    around = statements_around(scope, point)
    bound = []
    for node in scope_nodes(scope):
        # what a comprehension binds, it binds for itself: it is asked for by the statement that it is in
        if not isinstance(node, COMPREHENSIONS) or not around or contains(around[-1], start_of(node)):
            bound += [b for b in _bindings(node, name, function) if moves or b.kind != "move"]
    before = [b for b in bound if b.end <= point or isinstance(b.node, COMPREHENSIONS)]
    if before:
        return max(before, key=lambda b: (contains(b.node, point), b.start))
    if not isinstance(scope, ast.Module) and _takes(scope.args, name):
        return Binding("argument", scope, None, function)
    return max(bound, key=lambda b: b.start) if bound else None  # a loop comes back to it


def _stays_on_host(value: ast.expr) -> bool:
    return has_factory(value) or ".cpu()" in spell(value)


def _part(scope: Scope, held: Binding, name: str, point: Point) -> Binding | None:
    """The statement that put what a name stands for into what its variable holds."""
    function = getattr(scope, "name", "")
    exact: list[Binding] = []
    loose: list[Binding] = []
    for node in scope_nodes(scope):
        if not isinstance(node, ast.stmt) or start_of(node) < held.end or end_of(node) > point:
            continue
        for path, value in _partial(node, base_of(name)):
            known = path.links and not isinstance(node, ast.AugAssign) and Path.parse(name).is_in(path)
            (exact if known else loose).append(Binding("value", node, value, function))
    if exact:
        return max(exact, key=lambda b: b.start)
    if held.kind != "value" or kind_of(held.value) == "value":
        return None
    loose.sort(key=lambda b: b.start)
    return next((b for b in loose if b.value is not None and _stays_on_host(b.value)), loose[0] if loose else None)


def _partial(node: ast.AST, base: str) -> Iterator[tuple[Path, ast.expr | None]]:
    """What a statement changes of a variable: ``cfg["a"] = x``, ``cfg.a = x``, ``terms.append(x)``, ``total += x``."""
    for target in targets_of(node):
        plain = isinstance(target, ast.Name) and not isinstance(node, ast.AugAssign)
        path = Path.of(target)
        if path is not None and path.base == base and not plain:
            yield path, node.value  # type: ignore[attr-defined]
    call = node.value if isinstance(node, ast.Expr) else None
    filled = Path.of(receiver_of(call, ADDERS))
    if filled is not None and filled.base == base and call.args:  # type: ignore[union-attr]
        yield Path(base), call.args[-1]  # type: ignore[union-attr]


def takes_self(line: Origin) -> bool:
    """Whether a line is in a function that has a ``self``."""
    tree = parse(line.filename)
    scopes = _scopes(tree, (line.lineno, line.column or 0)) if tree else []
    return any(_takes(scope.args, "self") for scope in scopes if not isinstance(scope, ast.Module))


def _takes(arguments: ast.arguments, name: str) -> bool:
    plain = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return any(argument is not None and argument.arg == name for argument in plain)


def _bindings(node: ast.AST, name: str, function: str) -> Iterator[Binding]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        if any((alias.asname or alias.name) == name for alias in node.names):
            yield Binding("import", node, None, function)
    elif isinstance(node, ast.Expr):
        moved = moved_in_place(node)
        if isinstance(moved, ast.Name) and moved.id == name:
            yield Binding("move", node, node.value, function)
    elif isinstance(node, ast.Match):
        for pattern in (inner for case in node.cases for inner in ast.walk(case.pattern)):
            if isinstance(pattern, (ast.MatchAs, ast.MatchStar)) and pattern.name == name:
                yield Binding("loop", pattern, node.subject, function)
    else:
        for target, value, kind in _targets(node):
            if any(isinstance(part, ast.Name) and part.id == name for part in parts_of(target)):
                whole = node if isinstance(node, (*ASSIGNMENTS, *COMPREHENSIONS)) else target
                yield Binding(kind, whole, value, function, not isinstance(target, ast.Name))


def _targets(node: ast.AST) -> list[tuple[ast.expr, ast.expr | None, Kind]]:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [(node.target, node.iter, "loop")]
    if isinstance(node, COMPREHENSIONS):
        return [(part.target, part.iter, "loop") for part in node.generators]
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return [(node.optional_vars, node.context_expr, "value")]
    return [(target, value, "value") for target, value in pairs_of(node) if value is not None]
