"""The line of a class that assigns an attribute, moves or keeps a part, or returns."""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Iterator

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.assignments import (
    Binding,
    Kind,
    Statement,
    by_attribute,
    find_binding,
)
from lightning_devcheck._source.files import end_of, is_framework, origin_at, parse, start_of
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.statements import (
    BUILDERS,
    FUNCTIONS,
    Function,
    calls_in,
    kept_by,
    moved_in_place,
    pairs_of,
    puts_on_host,
    spell,
    text_in,
    word_of,
)

MAX_CLASSES = 256
INNER = (ast.ClassDef, ast.expr)  # no statement of a class is in these
Source = tuple[str, ast.ClassDef]


def class_source(cls: type) -> tuple[str, int] | None:
    """File and a line of a class of the user's; None for those of frameworks and C extensions."""
    members = type.__getattribute__(cls, "__dict__")
    for function in list(members.values()):
        if type(function) in (staticmethod, classmethod):
            function = function.__func__
        if type(function) is not types.FunctionType:
            continue
        code = function.__code__
        # dataclasses make methods from strings
        if code.co_filename != "<string>" and not is_framework(code.co_filename):
            return code.co_filename, code.co_firstlineno
    module = sys.modules.get(str(members.get("__module__")), types)
    file: object = vars(module).get("__file__")
    if type(file) is not str or is_framework(file):
        return None
    return file, 0  # a class without methods


def sources_of(owner: type) -> Iterator[Source]:
    """Find file and definition of a class and its bases, as far as they are the user's."""
    for cls in type.__getattribute__(owner, "__mro__"):
        source = class_source(cls)
        if source is None:
            continue
        filename, lineno = source
        tree = parse(filename)
        definition = tree and _definition(tree, type.__getattribute__(cls, "__name__"), lineno)
        if definition:
            yield filename, definition


@functools.lru_cache(maxsize=MAX_CLASSES)
def _definition(tree: ast.Module, name: str, lineno: int) -> ast.ClassDef | None:
    """The class of that name that holds a line; any for line 0."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or node.name != name:
            continue
        last, _ = end_of(node)
        if not lineno or node.lineno <= lineno <= last:
            return node
    return None


def statements_of(owner: type) -> Iterator[Statement]:
    """Walk the source of a class and its bases in its order, without the classes inside."""
    for source in sources_of(owner):
        yield from _statements(source)


@functools.lru_cache(maxsize=MAX_CLASSES)
def _statements(source: Source) -> list[Statement]:
    filename, definition = source
    found = []
    pending: list[tuple[ast.AST, str]] = [(definition, "")]
    while pending:
        node, function = pending.pop()
        if isinstance(node, ast.stmt):
            found.append(Statement(filename, node, function))
        if isinstance(node, FUNCTIONS):
            function = node.name
        if isinstance(node, INNER) and node is not definition:
            continue
        inner = list(ast.iter_child_nodes(node))
        pending += [(child, function) for child in inner[::-1]]
    return found


def methods_of(owner: type, name: str = "") -> Iterator[tuple[str, Function]]:
    """Find a method, or all, in the source of a class and its bases, each with its file."""
    for statement in statements_of(owner):
        node = statement.node
        if statement.function or not isinstance(node, FUNCTIONS):
            continue
        if name in ("", node.name):
            yield statement.filename, node


def attribute_origin(owner: type, attribute: str) -> Origin | None:
    """The line of a class or its bases that gives ``self.attribute`` its value.

    The last one that assigns more than a constant counts: ``self.layer = None`` in ``__init__`` is
    a placeholder. ``register_buffer`` and its like count where nothing else assigns the attribute.
    """
    for found in _bindings_of(owner, attribute):
        whole = _of_kinds(found, "value", "empty")
        chosen = whole[-1:] or found
        return chosen[0].origin
    return method_line(owner, attribute)  # a cached property


def part_origin(owner: type, attribute: str, path: Path) -> Origin | None:
    """The line that puts what a name stands for into ``self.attribute``.

    ``self.cache["k"] = …`` is one, and ``self.cache.append(…)``. One that makes a tensor
    on the CPU goes before one that takes over what another line made.

    Args:
        owner: The class.
        attribute: The attribute.
        path: The whole name; where no line puts it in, that of the attribute counts.
    """
    for found in _bindings_of(owner, attribute):
        parts = _of_kinds(found, "part")
        exact = [one for one in parts if path.ends_like(one.path)]
        whole = _of_kinds(found, "value")
        loose = []
        if path.links[-1].kind != "attribute":
            loose = _of_kinds(found, "part", "added")
        chosen = exact[-1:] or _best(whole[::-1]) or _best(loose)
        if chosen:
            return chosen[0].origin
    return attribute_origin(owner, attribute)


def hands_on(owner: type, line: Origin) -> bool:
    """Whether a line of a class keeps what comes from elsewhere: ``self.mean = mean.clone()``."""
    for statement in statements_of(owner):
        if statement.origin != line:
            continue
        if _makes(statement.node):
            return False
        given = _arguments(owner, line.function)
        return _reads(statement.node, given)
    return False


def _arguments(owner: type, method: str) -> set[str]:
    """The arguments of a method, that of a base too."""
    found: set[str] = set()
    for _, function in methods_of(owner, method):
        nodes = ast.walk(function.args)
        found |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return found


def _makes(statement: ast.stmt) -> bool:
    """Whether a statement makes a tensor or an object of a class."""
    if puts_on_host(statement):
        return True
    for call in calls_in(statement):
        name = word_of(call.func)
        if name[:1].isupper():
            return True
    return False


def _reads(statement: ast.stmt, variables: set[str]) -> bool:
    """Whether what a statement assigns is computed from one of some variables."""
    for _, value in pairs_of(statement):
        if value is None:
            continue
        nodes = ast.walk(value)
        words = [node.id for node in nodes if isinstance(node, ast.Name)]
        if not variables.isdisjoint(words):
            return True
    return False


def outside_origin(owner: type, path: Path) -> Origin | None:
    """The line of a class that sets an attribute of a part: ``self.body.adapter = …``.

    Args:
        owner: The class.
        path: Its name for what is kept there, ``self.body.adapter[0]``.
    """
    for found in _bindings_of(owner, path.attribute):
        for one in reversed(_of_kinds(found, "part")):
            if path.is_in(one.path):
                return one.origin
    return None


def _of_kinds(found: list[Binding], *kinds: Kind) -> list[Binding]:
    return [one for one in found if one.kind in kinds]


def _best(found: list[Binding]) -> list[Binding]:
    """Those that make a tensor on the CPU, else all."""
    return [one for one in found if puts_on_host(one.node)] or found


def _bindings_of(owner: type, attribute: str) -> Iterator[list[Binding]]:
    """The bindings of an attribute in each class that has some, the class itself first."""
    for source in sources_of(owner):
        found = _by_attribute(source).get(attribute)
        if found:
            yield found


@functools.lru_cache(maxsize=MAX_CLASSES)
def _by_attribute(source: Source) -> dict[str, list[Binding]]:
    return by_attribute(_statements(source))


def move_line(owner: type, attribute: str) -> Origin | None:
    """The line of a class or its bases that moves ``self.attribute``: ``self.teacher.cpu()``."""
    for statement in statements_of(owner):
        moved = moved_in_place(statement.node)
        if moved is not None and spell(moved) == f"self.{attribute}":
            return statement.origin
    return None


def keeping_line(owner: type, path: Path) -> Origin | None:
    """The line of a class or its bases that fills or adds to an attribute outside ``__init__``."""
    for statement in statements_of(owner):
        if statement.function in ("", "__init__"):
            continue
        kept = kept_by(statement.node)
        if kept is None:
            continue
        name, _ = kept
        if name == str(path):
            return statement.origin
    return None


def leaf_line(owner: type, method: str) -> Origin | None:
    """The first simple line of a method that makes a leaf by ``requires_grad``."""
    for statement in statements_of(owner):
        if statement.function != method or hasattr(statement.node, "body"):
            continue
        if "requires_grad" in spell(statement.node):
            return statement.origin
    return None


def method_line(owner: type, method: str) -> Origin | None:
    """The last ``return`` of a method in the source of a class or its bases, else its ``def``."""
    for filename, function in methods_of(owner, method):
        return origin_at(filename, _last_return(function), method)
    return None


def _last_return(function: Function) -> ast.stmt:
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    return [function, *returns][-1]


def returned_line(owner: type, method: str) -> Origin | None:
    """The line that made what a method returns last, or its ``"loss"``."""
    for filename, function in methods_of(owner, method):
        value = getattr(_last_return(function), "value", None)
        if isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            value = next((held for key, held in pairs if text_in(key) == "loss"), value)
        if isinstance(value, ast.Name):
            binding = find_binding(filename, value.id, start_of(value))
            return None if binding is None else binding.origin
        return method_line(owner, method)
    return None


def is_building(line: Origin, owner: type | None) -> bool:
    """Whether a line runs while its module is built: in ``__init__``, its like, or what they call.

    Args:
        line: The line.
        owner: The module's class; where it and its bases do not tell, the file does.
    """
    scopes: list[ast.AST] = []
    if owner is not None:
        scopes += [definition for _, definition in sources_of(owner)]
    tree = parse(line.filename)
    if tree and not _callers_of(line.function, scopes):
        scopes = [tree]
    return _runs_while_building(line.function, scopes, frozenset())


def _runs_while_building(function: str, scopes: list[ast.AST], seen: frozenset[str]) -> bool:
    if function in BUILDERS or function in seen:
        return function in BUILDERS
    callers = _callers_of(function, scopes) - {function}
    seen |= {function}
    return bool(callers) and all(_runs_while_building(one, scopes, seen) for one in callers)


def _callers_of(function: str, scopes: list[ast.AST]) -> set[str]:
    found = (_callers(scope).get(function, set()) for scope in scopes)
    return set().union(*found)


@functools.lru_cache(maxsize=MAX_CLASSES)
def _callers(scope: ast.AST) -> dict[str, set[str]]:
    """The methods of a class or file that call a method of their own object, by its name."""
    found: dict[str, set[str]] = {}
    methods = (node for node in ast.walk(scope) if isinstance(node, FUNCTIONS))
    for method in methods:
        for call in calls_in(method):
            owner, _, name = spell(call.func).rpartition(".")
            if owner in ("self", "super()"):
                found.setdefault(name, set()).add(method.name)
    return found
