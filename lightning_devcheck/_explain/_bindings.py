"""Where a local name got its value: the last statement before a line that binds it, or a part of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from lightning_devcheck._assignments import ADDERS, kind_of, spell
from lightning_devcheck._explain._calls import own_nodes
from lightning_devcheck._explain._frames import Frame
from lightning_devcheck._records import Origin
from lightning_devcheck._source import parse
from lightning_devcheck._statements import device_argument, is_factory, is_move
from lightning_devcheck._values import is_module

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (ast.If, ast.Try, ast.Match, ast.For, ast.While)


@dataclass(frozen=True, slots=True)
class Binding:
    """A statement that gives a name its value.

    Attributes:
        kind: ``value`` (assigned, or what ``with`` gives), ``loop`` (taken out of something by ``for`` or ``match``),
            ``argument``, ``import`` or ``move`` (a ``.to()`` whose result is thrown away).
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


def base_of(name: str) -> str:
    """The variable that a name starts with."""
    return name.partition(".")[0].partition("[")[0].partition("(")[0]


def find_binding(frame: Frame, name: str, lineno: int | None = None) -> Binding | None:
    """The binding of a name, or of the part of it that was set last, that holds at a line of a frame.

    Args:
        frame: The frame.
        name: The whole name, ``cfg["weight"]``.
        lineno: The line; None takes the one that failed.
    """
    tree = parse(frame.filename)
    lineno = frame.lineno if lineno is None else lineno
    base = base_of(name)
    moves = not is_module(frame.lookup(base))  # a module's ``.to()`` moves it in place
    for scope in _scopes(tree, frame.lineno) if tree else ():
        found = _in_scope(scope, base, lineno, moves)
        if found is not None and tree is not None:
            return _part(scope, found, name, lineno) or _set_elsewhere(tree, found, base) or found
        if isinstance(scope, FUNCTIONS):
            lineno = len(tree.body) and (tree.body[-1].end_lineno or 0) + 1 if tree else 0  # ran after all of these
    return None


def _scopes(tree: ast.Module, lineno: int) -> list[Scope]:
    """The functions around a line, innermost first, and the module."""
    found: list[Scope] = [tree]
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            if first <= lineno <= (node.end_lineno or first):
                found.append(node)
    return found[::-1]


def _in_scope(scope: Scope, name: str, lineno: int, moves: bool) -> Binding | None:
    function = getattr(scope, "name", "")
    nodes = list(own_nodes(scope))
    bound = [b for node in nodes for b in _bindings(node, name, function) if moves or b.kind != "move"]
    before = [b for b in bound if b.lineno < lineno or (b.kind == "loop" and b.lineno == lineno)]
    if before:
        return _taken(max(before, key=lambda b: b.lineno), before, nodes, lineno)
    if not isinstance(scope, ast.Module) and _takes(scope.args, name):
        return Binding("argument", scope.lineno, None, function)
    return max(bound, key=lambda b: b.lineno) if bound else None  # a loop comes back to it


def _taken(last: Binding, before: list[Binding], nodes: list[ast.AST], lineno: int) -> Binding:
    """The binding that made a CPU tensor, where the last one names a device on a branch that may not have run."""
    if last.value is None or _stays_on_host(last.value) or not _names_device(last.value):
        return last
    for node in nodes:
        if isinstance(node, BRANCHES) and node.lineno <= last.lineno <= (node.end_lineno or 0) < lineno:
            others = [b for b in before if b.value is not None and _stays_on_host(b.value)]
            return max(others, key=lambda b: b.lineno, default=last)
    return last


def _stays_on_host(value: ast.expr) -> bool:
    return any(is_factory(node) for node in ast.walk(value)) or ".cpu()" in ast.unparse(value)


def _names_device(value: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and (device_argument(n) is not None or is_move(n)) for n in ast.walk(value))


def _part(scope: Scope, held: Binding, name: str, lineno: int) -> Binding | None:
    """The statement that put what a name stands for into what its variable holds."""
    function = getattr(scope, "name", "")
    exact: list[Binding] = []
    loose: list[Binding] = []
    for node in own_nodes(scope):
        for text, value in _partial(node, base_of(name)):
            if held.lineno < getattr(node, "lineno", 0) < lineno:
                known = text != base_of(name) and not isinstance(node, ast.AugAssign) and _is_part(name, text)
                (exact if known else loose).append(Binding("value", node.lineno, value, function))  # type: ignore[attr-defined]
    if exact:
        return max(exact, key=lambda b: b.lineno)
    if held.kind != "value" or kind_of(held.value) == "value":
        return None
    loose.sort(key=lambda b: b.lineno)
    return next((b for b in loose if b.value is not None and _stays_on_host(b.value)), loose[0] if loose else None)


def _is_part(name: str, text: str) -> bool:
    return name == text or (name.startswith(text) and name[len(text)] in ".[(")


def _partial(node: ast.AST, base: str) -> Iterator[tuple[str, ast.expr | None]]:
    """What a statement changes of a variable: ``cfg["a"] = x``, ``cfg.a = x``, ``terms.append(x)``, ``total += x``."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    for target in targets:
        plain = isinstance(target, ast.Name) and not isinstance(node, ast.AugAssign)
        if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) and not plain:
            text = spell(target)
            if base_of(text) == base:
                yield text, node.value  # type: ignore[attr-defined]
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
        return
    if call.func.attr in ADDERS and base_of(spell(call.func.value)) == base:
        yield base, call.args[-1]


def _set_elsewhere(tree: ast.Module, held: Binding, name: str) -> Binding | None:
    """The binding in a function that declares the name ``nonlocal`` or ``global``, where it holds a placeholder."""
    if held.kind != "value" or kind_of(held.value) != "placeholder":
        return None
    found: list[Binding] = []
    for function in ast.walk(tree):
        if isinstance(function, FUNCTIONS):
            nodes = list(own_nodes(function))
            if any(isinstance(n, (ast.Nonlocal, ast.Global)) and name in n.names for n in nodes):
                found += [b for n in nodes for b in _bindings(n, name, function.name)]
    return max((b for b in found if kind_of(b.value) == "value"), key=lambda b: b.lineno, default=None)


def takes_self(line: Origin) -> bool:
    """Whether a line is in a function that has a ``self``."""
    tree = parse(line.filename)
    scopes = _scopes(tree, line.lineno) if tree else []
    return any(_takes(scope.args, "self") for scope in scopes if not isinstance(scope, ast.Module))


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
    elif isinstance(node, ast.Match):
        for pattern in (inner for case in node.cases for inner in ast.walk(case.pattern)):
            if isinstance(pattern, (ast.MatchAs, ast.MatchStar)) and pattern.name == name:
                yield Binding("loop", pattern.lineno, node.subject, function)
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
    kinds = (ast.Tuple, ast.List)
    if not isinstance(target, kinds) or not isinstance(value, kinds) or len(target.elts) != len(value.elts):
        return [(target, value, "value")]
    if any(isinstance(element, ast.Starred) for element in (*target.elts, *value.elts)):
        return [(target, value, "value")]
    return [pair for left, right in zip(target.elts, value.elts, strict=True) for pair in _paired(left, right)]


def _names(target: ast.expr, name: str) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_names(element, name) for element in target.elts)
    if isinstance(target, ast.Starred):
        return _names(target.value, name)
    return isinstance(target, ast.Name) and target.id == name
