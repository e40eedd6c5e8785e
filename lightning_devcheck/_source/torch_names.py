"""What a file calls torch's functions: ``zeros``, ``T.zeros``, ``make = torch.zeros``."""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Iterator, Mapping

from lightning_devcheck._source.statements import pairs_of, word_of

MAX_STEPS = 8  # from a name to the one that it stands for
OTHER = ""  # the meaning of what is none of torch's
# an expression, a dotted name of torch's, or None for what the module holds under the name
Meaning = ast.expr | str | None


def mark_torch_calls(tree: ast.Module, namespace: Mapping[str, object]) -> None:
    """Write at each call of a function of torch's which one it is; `torch_function` reads it.

    Args:
        tree: The tree of a file.
        namespace: The variables of its module, which say what a name is that comes from elsewhere.
    """
    names = _Names(tree, namespace)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            module, _, function = names.meaning(node.func).partition(".")
            if module == "torch":
                node.torch_function = function  # type: ignore[attr-defined]


def meaning_of(value: object) -> str:
    """Name what a value is of torch's, also with arguments filled in, but for a device."""
    torch = sys.modules.get("torch")
    if value is torch and torch is not None:
        return "torch"
    if type(value) is functools.partial and "device" not in value.keywords:
        return meaning_of(value.func)
    if type(value) is not types.BuiltinFunctionType:
        return OTHER
    name = value.__name__
    known = getattr(torch, name, None) is value
    return f"torch.{name}" * known


class _Names:
    """What the names of a file stand for; one with several meanings in it stands for nothing."""

    def __init__(self, tree: ast.Module, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._meanings: dict[str, list[Meaning]] = {}
        assigned: set[ast.AST] = set()
        for node in ast.walk(tree):
            if node in assigned:
                continue
            for name, meaning in _bound(node):
                self._meanings.setdefault(name, []).append(meaning)
            assigned.update(target for target, _ in pairs_of(node))

    def meaning(self, node: ast.expr, steps: int = MAX_STEPS) -> str:
        """Name what an expression stands for of torch's."""
        if not steps:
            return OTHER
        if isinstance(node, ast.Call) and _is_open_partial(node):
            return self.meaning(node.args[0], steps - 1)
        name = _dotted(node)
        if name in self._meanings:
            meanings = self._meanings[name]
            found = {self._step(name, meaning, steps - 1) for meaning in meanings}
            if len(found) > 1:
                return OTHER
            return found.pop()
        base = isinstance(node, ast.Attribute) and self.meaning(node.value, steps - 1)
        if base:
            return f"{base}.{node.attr}"  # type: ignore[attr-defined]
        return meaning_of(self._held(node))

    def _step(self, name: str, meaning: Meaning, steps: int) -> str:
        if isinstance(meaning, str):
            return meaning
        known = meaning is not None and self.meaning(meaning, steps)
        return known or meaning_of(self._namespace.get(name))

    def _held(self, node: ast.expr) -> object:
        """Look a name up in this module, or in another one that this module knows."""
        if isinstance(node, ast.Name):
            return self._namespace.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        module = self._held(node.value)
        if isinstance(module, types.ModuleType):
            return vars(module).get(node.attr)
        return None


def _bound(node: ast.AST) -> Iterator[tuple[str, Meaning]]:
    """The names that a node gives a meaning, each with it."""
    match node:
        case ast.Import():
            yield from map(_imported, node.names)
        case ast.ImportFrom():
            prefix = f"{node.module}."
            from_torch = prefix.startswith("torch.") and not node.level
            for alias in node.names:
                name = alias.asname or alias.name
                yield name, (prefix + alias.name) * from_torch or None
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, OTHER
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            yield name, OTHER
    for target, value in pairs_of(node):
        name = _dotted(target)
        if name:
            yield name, value


def _imported(alias: ast.alias) -> tuple[str, Meaning]:
    """The name that an ``import`` gives, with its meaning."""
    top = alias.name.partition(".")[0]
    name = alias.asname or top
    if top != "torch":
        return name, None
    if alias.asname:
        return name, alias.name
    return name, top


def _dotted(node: ast.expr) -> str:
    """Spell ``make`` and ``self.make``; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Attribute):
        return ""
    base = _dotted(node.value)
    return base and f"{base}.{node.attr}"


def _is_open_partial(call: ast.Call) -> bool:
    """Whether a call is a ``functools.partial`` that fills in no device."""
    fixed = {word.arg for word in call.keywords}
    if not call.args:
        return False
    return word_of(call.func) == "partial" and fixed.isdisjoint(("device", None))
