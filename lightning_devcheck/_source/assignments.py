"""Which statements of a class give an attribute its value, and which put something into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import origin_at
from lightning_devcheck._source.path import Link, Path
from lightning_devcheck._source.statements import (
    ADDERS,
    pairs_of,
    parts_of,
    receiver_of,
    spell,
    targets_of,
    text_in,
    word_of,
)

REGISTRARS = ("register_buffer", "register_parameter", "add_module", "register_module", "add_state")
EMPTY = ("list", "dict", "set", "tuple", "deque", "OrderedDict", "defaultdict", "SimpleNamespace")
ANY = "*"  # the attribute of a ``setattr`` whose name is computed

Content = Literal["value", "empty", "placeholder"]
Kind = Content | Literal["part", "added", "registered", "class"]
Assigned = tuple[str, Kind, Path]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a class.

    Attributes:
        filename: Its file.
        node: The statement.
        function: The function around it, empty in the body of the class.
    """

    filename: str
    node: ast.stmt
    function: str

    @property
    def origin(self) -> Origin:
        """Its place."""
        return origin_at(self.filename, self.node, self.function)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A statement that gives an attribute its value, or a part of it.

    Attributes:
        kind: ``value``; ``empty`` (an empty container); ``placeholder`` (a constant); ``part`` (an item or attribute
            of it); ``added`` (``append`` and the like, ``+=``); ``registered`` (``register_buffer``); ``class`` (in
            the class's own body).
        statement: The statement.
        path: What is assigned to; for `ANY` the attribute is a pattern.
    """

    kind: Kind
    statement: Statement
    path: Path


def read_assignments(statements: Sequence[Statement]) -> dict[str, list[Assignment]]:
    """The assignments to each attribute in a class's statements; those of the class itself come last."""
    found: dict[str, list[Assignment]] = {}
    for reader in (_assigned, _named):
        for statement in statements:
            for attribute, kind, path in reader(statement):
                found.setdefault(attribute, []).append(Assignment(kind, statement, path))
    return found


def _named(statement: Statement) -> Iterator[Assigned]:
    """The variables of the class itself; an annotation alone gives none its value."""
    node = statement.node
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return
    for target in targets_of(node):
        if not statement.function and isinstance(target, ast.Name):
            yield target.id, "class", Path(target.id)


def _assigned(statement: Statement) -> Iterator[Assigned]:
    """Attribute, kind and path of what a statement assigns, registers or adds to."""
    node = statement.node
    for target, value in pairs_of(node):
        for path in filter(None, map(own_path, parts_of(target))):
            yield path.attribute, "part" if len(path.links) > 1 else kind_of(value), path
    added = own_path(node.target) if isinstance(node, ast.AugAssign) else None
    if added is not None:
        yield added.attribute, "added", added
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield from _called(node.value)


def kind_of(value: ast.expr | None) -> Content:
    """Whether an assigned expression is a ``value``, an ``empty`` container or a ``placeholder``."""
    if value is None or isinstance(value, ast.Constant):
        return "placeholder"
    empty = isinstance(value, (ast.List, ast.Tuple, ast.Set)) and not value.elts
    if isinstance(value, ast.Call):
        given = [a for a in value.args if not isinstance(a, (ast.Name, ast.Lambda))]  # ``defaultdict(list)``
        empty = word_of(value.func) in EMPTY and not given and all(word.arg == "maxlen" for word in value.keywords)
    return "empty" if empty or (isinstance(value, ast.Dict) and not value.keys) else "value"


def _called(call: ast.Call) -> Iterator[Assigned]:
    first = call.args[0] if call.args else None
    filled = own_path(receiver_of(call, ADDERS))
    if word_of(call.func) in ("setattr", "__setattr__") and len(call.args) > 1:
        if (isinstance(first, ast.Name) and first.id == "self") or spell(call.func).startswith("super()."):
            yield from _set(call.args[-2])
    elif receiver_of(call, REGISTRARS):
        if name := text_in(first):
            yield name, "registered", attribute_path(name)
    elif filled is not None:
        yield filled.attribute, "added", filled


def _set(name: ast.expr) -> Iterator[Assigned]:
    """``setattr(self, name, value)`` and its like, where the name is written out or put together."""
    if text := text_in(name):
        yield text, "value", attribute_path(text)
        return
    pieces = name.values if isinstance(name, ast.JoinedStr) else []
    known = [re.escape(str(piece.value)) if isinstance(piece, ast.Constant) else ".*" for piece in pieces]
    yield ANY, "value", attribute_path("".join(known) or ".*")


def attribute_path(name: str) -> Path:
    """An attribute of ``self``."""
    return Path("self", (Link("attribute", name),))


def own_path(node: ast.AST | None) -> Path | None:
    """The attribute of ``self``, or its part, that an expression is; ``self.__dict__["name"]`` is ``self.name``.

    Of ``ctx`` too: it keeps what the forward of a custom Function has for its backward.
    """
    path = Path.of(node)
    if path is None or path.base not in ("self", "cls", "ctx") or not path.attribute:
        return None
    if path.attribute == "__dict__" and [link.kind for link in path.links[1:2]] == ["item"]:
        return Path(path.base, (Link("attribute", path.keys[1]), *path.links[2:]))
    return path
