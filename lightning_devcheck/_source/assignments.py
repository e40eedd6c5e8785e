"""Which statements of a class give an attribute its value, and which put something into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import origin_at
from lightning_devcheck._source.statements import ADDERS, receiver_of, spell, targets_of, word_of

REGISTRARS = ("register_buffer", "register_parameter", "add_module", "register_module", "add_state")
EMPTY = ("list", "dict", "set", "tuple", "deque", "OrderedDict", "defaultdict", "SimpleNamespace")
ANY = "*"  # the attribute of a ``setattr`` whose name is computed

Content = Literal["value", "empty", "placeholder"]
Kind = Content | Literal["part", "added", "registered", "class"]
Assigned = tuple[str, Kind, str]


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
        text: What is assigned to, without ``self.``; for `ANY` a pattern of attributes.
    """

    kind: Kind
    statement: Statement
    text: str


def read_assignments(statements: Sequence[Statement]) -> dict[str, list[Assignment]]:
    """The assignments to each attribute in a class's statements; those of the class itself come last."""
    found: dict[str, list[Assignment]] = {}
    for reader in (_assigned, _named):
        for statement in statements:
            for attribute, kind, text in reader(statement):
                found.setdefault(attribute, []).append(Assignment(kind, statement, text))
    return found


def _named(statement: Statement) -> Iterator[Assigned]:
    """The variables of the class itself."""
    for target in targets_of(statement.node):
        if not statement.function and isinstance(target, ast.Name):
            yield target.id, "class", target.id


def _assigned(statement: Statement) -> Iterator[Assigned]:
    """Attribute, kind and text of what a statement assigns, registers or adds to."""
    node = statement.node
    for target in targets_of(node):
        for part in _parts(target):
            attribute = _attribute_of(part)
            if attribute:
                text = spell(part).partition(".")[2]
                whole = isinstance(part, ast.Attribute) and text == attribute
                kind: Kind = "part"
                if isinstance(node, ast.AugAssign):
                    kind = "added"
                elif whole:
                    kind = kind_of(getattr(node, "value", None))
                yield attribute, kind, text
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
    filled = receiver_of(call, ADDERS)
    if word_of(call.func) in ("setattr", "__setattr__") and len(call.args) > 1:
        if (isinstance(first, ast.Name) and first.id == "self") or spell(call.func).startswith("super()."):
            yield from _set(call.args[-2])
    elif receiver_of(call, REGISTRARS):
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value, "registered", first.value
    elif filled is not None and (attribute := _attribute_of(filled)):
        yield attribute, "added", spell(filled).partition(".")[2]


def _set(name: ast.expr) -> Iterator[Assigned]:
    """``setattr(self, name, value)`` and its like, where the name is written out or put together."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value, "value", name.value
        return
    pieces = name.values if isinstance(name, ast.JoinedStr) else []
    known = [re.escape(str(piece.value)) if isinstance(piece, ast.Constant) else ".*" for piece in pieces]
    yield ANY, "value", "".join(known) or ".*"


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _parts(element)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _attribute_of(target: ast.expr) -> str:
    """The attribute of ``self`` that an expression is, or is a part of; ``self.__dict__["name"]`` is ``name``.

    Of ``ctx`` too: it keeps what the forward of a custom Function has for its backward.
    """
    chain: list[ast.expr] = []
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        chain.append(target)
        target = target.value
    if not chain or not isinstance(target, ast.Name) or target.id not in ("self", "cls", "ctx"):
        return ""
    first = chain[-1]
    if not isinstance(first, ast.Attribute):
        return ""
    key = getattr(chain[-2], "slice", None) if len(chain) > 1 and first.attr == "__dict__" else None
    return str(key.value) if isinstance(key, ast.Constant) else first.attr
