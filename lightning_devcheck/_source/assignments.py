"""Where names and attributes get their values: one record for each statement that gives one."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import (
    Node,
    Point,
    contains,
    end_of,
    origin_at,
    own_nodes,
    parse,
    start_of,
    statements_around,
)
from lightning_devcheck._source.path import Link, Path
from lightning_devcheck._source.statements import (
    ADDERS,
    FUNCTIONS,
    moved_in_place,
    pairs_of,
    parts_of,
    puts_on_host,
    receiver_of,
    spell,
    text_in,
    word_of,
)

REGISTRARS = ("register_buffer", "register_parameter", "add_module", "register_module", "add_state")
EMPTY = ("list", "dict", "set", "tuple", "deque", "OrderedDict", "defaultdict", "SimpleNamespace")
SETTERS = ("setattr", "__setattr__")
OWN = ("self", "cls")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
MAX_SCOPES = 256

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Content = Literal["value", "empty", "placeholder"]
Later = Literal["part", "added", "registered", "class"]
Kind = Content | Later | Literal["loop", "argument", "import", "move"]
CONTENTS = ("value", "empty", "placeholder")
Pair = tuple[ast.expr, ast.expr]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, or the part of one that gives something its value.

    Attributes:
        filename: Its file.
        node: The statement; a pattern, a comprehension, or the target of a ``for`` or ``with``.
        function: The function around it; empty in the body of a class or file.
    """

    filename: str
    node: Any  # of three syntax classes, as the attribute says
    function: str

    @property
    def origin(self) -> Origin:
        """Its place."""
        return origin_at(self.filename, self.node, self.function)


@dataclass(frozen=True, slots=True)
class Binding:
    """A statement that gives a name or an attribute its value, or a part of it.

    Attributes:
        kind: ``value``; ``empty`` (an empty container); ``placeholder`` (a constant); ``part`` (an
            item or attribute of it); ``added`` (``append`` and the like, ``+=``); ``registered``
            (``register_buffer``); ``class`` (in the class's own body); ``loop`` (taken out of
            something by ``for`` or ``match``); ``argument``; ``import``; ``move`` (a ``.to()``
            whose result is thrown away).
        statement: What gives it.
        path: What is given a value.
        value: The expression the value comes from.
    """

    kind: Kind
    statement: Statement
    path: Path
    value: ast.expr | None = None

    @property
    def origin(self) -> Origin:
        """Its place."""
        return self.statement.origin

    @property
    def node(self) -> Node:
        """What gives it."""
        node: Node = self.statement.node
        return node

    @property
    def start(self) -> Point:
        """Where it begins."""
        return start_of(self.node)

    @property
    def end(self) -> Point:
        """From where on the name has this value."""
        return end_of(self.node)

    @property
    def is_variable(self) -> bool:
        """Whether it assigns to a variable."""
        return self.is_whole and self.kind in CONTENTS

    @property
    def is_whole(self) -> bool:
        """Whether it gives all of the name's value."""
        return not self.path.links and self.kind != "added"


def by_attribute(statements: Iterable[Statement]) -> dict[str, list[Binding]]:
    """The bindings of each attribute in a class's statements; the class's own come last."""
    found: dict[str, list[Binding]] = {}
    of_class = []
    for statement in statements:
        for one in bindings_of(statement.node, statement):
            if one.path.base in OWN and one.path.links and one.kind != "move":
                attribute = one.path.attribute
                found.setdefault(attribute, []).append(one)
            elif one.is_variable and not statement.function:
                of_class.append(replace(one, kind="class"))
    for one in of_class:
        name = one.path.base
        found.setdefault(name, []).append(one)
    return found


def bindings_of(node: ast.AST, statement: Statement) -> Iterator[Binding]:
    """What a node by itself gives a value, adds to or moves.

    Args:
        node: A statement, comprehension or ``with`` item.
        statement: Where it stands.
    """
    match node:
        case ast.Import() | ast.ImportFrom():
            for alias in node.names:
                yield Binding("import", statement, Path(alias.asname or alias.name))
        case ast.AugAssign():
            yield from _binding("added", statement, node.target, node.value)
        case ast.Expr(value=ast.Call() as call):
            yield from _called(call, statement)
        case _:
            yield from _taken(node, statement)
            for target, value in pairs_of(node):
                if value is not None:
                    yield from _binding(kind_of(value), statement, target, value)


def _taken(node: ast.AST, statement: Statement) -> Iterator[Binding]:
    """What a loop, a pattern or a ``with`` takes out of something."""
    match node:
        case ast.For() | ast.AsyncFor():
            yield from _looped(node.target, node.iter, replace(statement, node=node.target))
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for part in node.generators:
                yield from _looped(part.target, part.iter, replace(statement, node=node))
        case ast.Match():
            for pattern in _names_in(node):
                place = replace(statement, node=pattern)
                yield Binding("loop", place, Path(pattern.name or ""), node.subject)
        case ast.withitem(optional_vars=ast.expr() as target):
            place = replace(statement, node=target)
            yield from _binding("value", place, target, node.context_expr)


def _names_in(node: ast.Match) -> Iterator[ast.MatchAs | ast.MatchStar]:
    for case in node.cases:
        for pattern in ast.walk(case.pattern):
            if isinstance(pattern, (ast.MatchAs, ast.MatchStar)) and pattern.name:
                yield pattern


def _binding(
    kind: Kind,
    statement: Statement,
    target: ast.expr,
    value: ast.expr | None,
) -> Iterator[Binding]:
    """The binding of each part of a target."""
    for part in parts_of(target):
        path = Path.of(part)
        if path is None:
            continue
        depth = len(path.links) - (path.base in OWN)
        if depth > 0 and kind in CONTENTS:
            yield Binding("part", statement, path, value)
        else:
            yield Binding(kind, statement, path, value)


def _looped(target: ast.expr, source: ast.expr, statement: Statement) -> Iterator[Binding]:
    for part, whole in loop_pairs(target, source):
        yield from _binding("loop", statement, part, whole)


def loop_pairs(target: ast.expr, source: ast.expr) -> Iterator[Pair]:
    """What a loop fills, each with what it takes that from, through ``enumerate`` and the like."""
    held = receiver_of(source, ("items", "values"))
    if held is not None:
        yield target, held
        return
    elements = getattr(target, "elts", [])
    sources = [source] * len(elements)
    if isinstance(source, ast.Call):
        function = word_of(source.func)
        if function == "zip" and len(source.args) == len(elements):
            sources = source.args
        elif function == "enumerate" and len(elements) == 2 and source.args:
            sources = [source, source.args[0]]
    if not elements:
        yield target, source
    for part, whole in zip(elements, sources, strict=True):
        yield from loop_pairs(part, whole)


def kind_of(value: ast.expr | None) -> Content:
    """Tell a value from an empty container and from a constant, which is a placeholder."""
    match value:
        case None | ast.Constant():
            return "placeholder"
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Set(elts=[]) | ast.Dict(keys=[]):
            return "empty"
        case ast.Call() if word_of(value.func) in EMPTY:
            # ``defaultdict(list)``, ``deque(maxlen=3)``
            given = [one for one in value.args if not isinstance(one, (ast.Name, ast.Lambda))]
            words = {word.arg for word in value.keywords}
            if not given and words <= {"maxlen"}:
                return "empty"
    return "value"


def _called(call: ast.Call, statement: Statement) -> Iterator[Binding]:
    """What a call that stands by itself moves, adds to, sets or registers."""
    last = call.args[-1] if call.args else None
    moved = Path.of(moved_in_place(statement.node))
    filled = Path.of(receiver_of(call, ADDERS))
    if moved is not None:
        yield Binding("move", statement, moved, call)
    elif filled is not None:
        yield Binding("added", statement, filled, last)
    elif word_of(call.func) in SETTERS:
        # ``setattr(self, name, value)``, ``super().__setattr__(name, value)``
        before = map(spell, call.args[:-2])
        owner = "".join(before) or "self"
        names = map(text_in, call.args[-2:-1])
        name = "".join(names)
        if owner == "self" and name:
            yield Binding("value", statement, attribute_path(name), last)
    elif receiver_of(call, REGISTRARS) is not None:
        names = map(text_in, call.args[:1])
        name = "".join(names)
        if name:
            yield Binding("registered", statement, attribute_path(name), call)


def attribute_path(name: str) -> Path:
    """An attribute of ``self``."""
    return Path("self", (Link("attribute", name),))


def find_binding(
    filename: str,
    name: str,
    here: Point,
    point: Point | None = None,
    *,
    moves: bool = True,
) -> Binding | None:
    """The binding of a name, or of the part of it that was set last, that holds at a point.

    Args:
        filename: The file.
        name: The whole name, ``cfg["weight"]``.
        here: A point in the function that is looked at.
        point: The point; None takes that one.
        moves: Whether a line of its own that moves the name counts.
    """
    tree = parse(filename)
    if tree is None:
        return None
    path = Path.parse(name)
    point = here if point is None else point
    for scope in _scopes(tree, here):
        by_name = _by_name(filename, scope)
        named = by_name.get(path.base, [])
        if not moves:
            named = [one for one in named if one.kind != "move"]
        found = _last(scope, named, point)
        if found is None and takes(scope, path.base):
            function = getattr(scope, "name", "")
            place = Statement(filename, scope, function)
            found = Binding("argument", place, Path(path.base))
        if found is not None:
            return _part(named, found, path, point) or found
        if isinstance(scope, FUNCTIONS):
            last = tree.body[-1]
            point = end_of(last)  # ran after all of these
    return None


def _scopes(tree: ast.Module, point: Point) -> list[Scope]:
    """The functions around a point, innermost first, and the module."""
    found: list[Scope] = [tree]
    for statement in statements_around(tree, point):
        if isinstance(statement, FUNCTIONS):
            found.append(statement)
        lambdas = [node for node in own_nodes(statement) if isinstance(node, ast.Lambda)]
        found += [node for node in lambdas if contains(node, point)]
    return found[::-1]


def scope_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function or module without what is in the functions and classes inside."""
    pending = [*ast.iter_child_nodes(scope)]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, SCOPES):
            pending += ast.iter_child_nodes(node)


@functools.lru_cache(maxsize=MAX_SCOPES)
def _by_name(filename: str, scope: Scope) -> dict[str, list[Binding]]:
    """The bindings in a function or module, by variable."""
    found: dict[str, list[Binding]] = {}
    function = getattr(scope, "name", "")
    for node in scope_nodes(scope):
        place = Statement(filename, node, function)
        for one in bindings_of(node, place):
            base = one.path.base
            found.setdefault(base, []).append(one)
    return found


def _last(scope: Scope, named: list[Binding], point: Point) -> Binding | None:
    """The last binding before a point, where there is one."""
    around = statements_around(scope, point)
    found = []
    for one in named:
        node = one.node
        is_comprehension = isinstance(node, COMPREHENSIONS)
        # what a comprehension binds, it binds for itself: its own statement asks for it
        if is_comprehension and around and not contains(around[-1], one.start):
            continue
        if one.is_whole and (is_comprehension or one.end <= point):
            found.append(one)
    return max(found, key=lambda one: (contains(one.node, point), one.start), default=None)


def _part(named: list[Binding], held: Binding, path: Path, point: Point) -> Binding | None:
    """The statement that put what a name stands for into what its variable holds."""
    parts = [one for one in named if not one.is_whole]
    later = [one for one in parts if one.start >= held.end]
    later = [one for one in later if one.end <= point]
    later.sort(key=lambda one: one.start)
    stored = [one for one in later if one.kind != "added"]
    exact = [one for one in stored if path.is_in(one.path)]
    if exact:
        return exact[-1]
    if held.kind not in ("empty", "placeholder"):
        return None
    on_host = (one for one in later if puts_on_host(one.node))
    return next(on_host, None) or next(iter(later), None)


def takes_self(line: Origin) -> bool:
    """Whether a line is in a function that has a ``self``."""
    tree = parse(line.filename)
    if tree is None:
        return False
    scopes = _scopes(tree, (line.lineno, line.column or 0))
    return any(takes(scope, "self") for scope in scopes)


def takes(scope: Scope, name: str) -> bool:
    """Whether something is an argument of a function."""
    if isinstance(scope, ast.Module):
        return False
    nodes = ast.walk(scope.args)
    names = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return name in names
