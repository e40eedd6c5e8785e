"""Which statements of a class give an attribute its value, and which put something into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lightning_devcheck._source.statements import puts_on_host, spell

REGISTRARS = ("register_buffer", "register_parameter", "add_module", "register_module", "add_state")
ADDERS = ("append", "appendleft", "extend", "insert", "add", "update", "setdefault")
EMPTY = ("list", "dict", "set", "tuple", "deque", "OrderedDict", "defaultdict", "SimpleNamespace")
ANY = "*"  # the attribute of a ``setattr`` whose name is computed


@dataclass(frozen=True, slots=True)
class Assignment:
    """A statement that gives an attribute its value, or a part of it.

    Attributes:
        kind: ``value``; ``empty`` (an empty container); ``placeholder`` (a constant); ``part`` (an item or attribute
            of it); ``added`` (``append`` and the like, ``+=``); ``registered`` (``register_buffer``); ``class`` (in
            the class's own body).
        node: The statement.
        method: The method it is in.
        text: What is assigned to, without ``self.``; for `ANY` a pattern of attributes.
        makes: Whether it makes a tensor and names no device, or copies one to the CPU.
    """

    kind: str
    node: ast.stmt
    method: str
    text: str = ""
    makes: bool = False


def read_assignments(body: Sequence[ast.stmt]) -> dict[str, list[Assignment]]:
    """The assignments to each attribute in a class's statements, the whole ones before those of parts.

    Args:
        body: All statements of the class, nested ones too, in the order of the source, the class itself first.
    """
    found: dict[str, list[Assignment]] = {}
    method = ""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            method = node.name
        makes = puts_on_host(node)
        for attribute, kind, text in _assigned(node):
            found.setdefault(attribute, []).append(Assignment(kind, node, method, text, makes))
    for node in getattr(body[0], "body", ()) if body else ():
        for name in (t.id for t in targets_of(node) if isinstance(t, ast.Name)):
            found.setdefault(name, []).append(Assignment("class", node, "", name))
    return found


def _assigned(node: ast.stmt) -> Iterator[tuple[str, str, str]]:
    """Attribute, kind and text of what a statement assigns, registers or adds to."""
    for target in targets_of(node):
        for part in _parts(target):
            attribute = _attribute_of(part)
            if attribute:
                text = spell(part).partition(".")[2]
                whole = isinstance(part, ast.Attribute) and text == attribute
                kind = "added" if isinstance(node, ast.AugAssign) else "part"
                yield attribute, kind_of(getattr(node, "value", None)) if whole and kind == "part" else kind, text
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield from _called(node.value)


def kind_of(value: ast.expr | None) -> str:
    """Whether an assigned expression is a ``value``, an ``empty`` container or a ``placeholder``."""
    if value is None or isinstance(value, ast.Constant):
        return "placeholder"
    empty = isinstance(value, (ast.List, ast.Tuple, ast.Set)) and not value.elts
    if isinstance(value, ast.Call):
        named = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        given = [a for a in value.args if not isinstance(a, (ast.Name, ast.Lambda))]  # ``defaultdict(list)``
        empty = named in EMPTY and not given and all(word.arg == "maxlen" for word in value.keywords)
    return "empty" if empty or (isinstance(value, ast.Dict) and not value.keys) else "value"


def _called(call: ast.Call) -> Iterator[tuple[str, str, str]]:
    first = call.args[0] if call.args else None
    setter = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if setter in ("setattr", "__setattr__") and len(call.args) > 1:
        if (isinstance(first, ast.Name) and first.id == "self") or spell(call.func).startswith("super()."):
            yield from _set(call.args[-2])
    elif isinstance(call.func, ast.Attribute) and call.func.attr in REGISTRARS:
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value, "registered", first.value
    elif isinstance(call.func, ast.Attribute) and call.func.attr in ADDERS:
        attribute = _attribute_of(call.func.value)
        if attribute:
            yield attribute, "added", spell(call.func.value).partition(".")[2]


def _set(name: ast.expr) -> Iterator[tuple[str, str, str]]:
    """``setattr(self, name, value)`` and its like, where the name is written out or put together."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value, "value", name.value
        return
    pieces = name.values if isinstance(name, ast.JoinedStr) else []
    known = [re.escape(str(piece.value)) if isinstance(piece, ast.Constant) else ".*" for piece in pieces]
    yield ANY, "value", "".join(known) or ".*"


def targets_of(node: ast.stmt) -> list[ast.expr]:
    """What a statement assigns to."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []


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
