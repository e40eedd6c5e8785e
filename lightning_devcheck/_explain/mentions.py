"""What an expression mentions, and what that stands for, looked up without running anything."""

from __future__ import annotations

import ast
import itertools
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import (
    GENERATOR,
    MISSING,
    attribute,
    inside,
    is_a,
    is_exactly,
    is_metric,
    item,
    parts,
)
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._source.path import Link
from lightning_devcheck._source.statements import MAKERS, device_argument, is_factory, is_move, spell
from lightning_devcheck._source.torch_names import meaning_of

MAX_TENSORS = 2_000


@dataclass(frozen=True, slots=True)
class Mention:
    """A name, attribute or subscript in an expression, and what it stands for.

    Attributes:
        text: As it is written.
        value: What it holds.
    """

    text: str
    value: Any

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors in it, each with its name."""
        for name, found in itertools.islice(inside(self.value, self.text), MAX_TENSORS):
            if is_a(found, torch.Tensor):
                yield name, found
            elif is_a(found, torch.nn.Module):
                yield from tensors_of(found, name)


def mentions(tree: ast.AST | None, frame: Frame) -> list[Mention]:
    """What an expression mentions, in the order it is written: tensors, modules, containers, plain objects.

    What ``.to()`` and its like copy comes last: the copy is what meets the others.
    """
    found: list[Mention] = []
    moves = [node.func for node in ast.walk(tree) if is_move(node)] if tree else []  # type: ignore[attr-defined]
    copied = {id(part) for move in moves for part in (move, move.value)}
    last: list[Mention] = []
    pending = [tree] if tree else []
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            text, value = evaluate(node, frame)
            if value is not MISSING and _is_data(value):
                (last if id(node) in copied else found).append(Mention(text, value))
                pending += [index for index in _slices(node) if not _may_stay(index, value, frame)]
                continue
            if _is_dotted(node):
                continue
        if isinstance(node, ast.Call):
            pending += reversed([_receiver(node.func, frame), *node.args, *(word.value for word in node.keywords)])
        else:
            pending += reversed(list(ast.iter_child_nodes(node)))
    return found + last


def tensors_in(tree: ast.AST | None, frame: Frame) -> list[tuple[str, torch.Tensor]]:
    """The tensors that an expression mentions, each with its name."""
    return [pair for mention in mentions(tree, frame) for pair in mention.tensors()]


def _receiver(function: ast.expr, frame: Frame) -> ast.AST:
    """What a call reads tensors from: a callable that holds some, or the object whose method it is."""
    _, value = evaluate(function, frame)
    holds = value is not MISSING and type(value) is not types.FunctionType
    if (holds and _is_data(value)) or not isinstance(function, ast.Attribute):
        return function
    _, owner = evaluate(function.value, frame)
    own_method = is_a(owner, torch.nn.Module) and not is_metric(owner)
    return ast.Tuple([], ast.Load()) if own_method else function.value


def _slices(node: ast.AST) -> list[ast.AST]:
    """The subscripts along a chain of attributes and subscripts."""
    found: list[ast.AST] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript):
            found.append(node.slice)
        node = node.value
    return found


def _may_stay(index: ast.AST, value: Any, frame: Frame) -> bool:
    """Whether a subscript is an index tensor on the CPU of a tensor elsewhere, which torch takes as it is."""
    _, given = evaluate(index, frame)
    on_cpu = is_a(given, torch.Tensor) and device_of(given).type == "cpu"
    return on_cpu and is_a(value, torch.Tensor) and device_of(value).type != "cpu"


def _is_dotted(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_data(value: Any) -> bool:
    if is_a(value, (torch.Tensor, torch.nn.Module, GENERATOR, list, tuple, dict)):
        return True
    if is_exactly(value, types.ModuleType, types.BuiltinFunctionType) or is_a(value, type):
        return False
    return bool(parts(value))


def evaluate(node: ast.AST, frame: Frame) -> tuple[str, Any]:
    """The longest part of a name, attribute or subscript up to the first tensor, and its stored value."""
    if isinstance(node, ast.Name):
        return node.id, frame.lookup(node.id)
    if isinstance(node, ast.Starred):
        return evaluate(node.value, frame)
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        return "", MISSING
    text, base = evaluate(node.value, frame)
    if base is MISSING or is_a(base, torch.Tensor):
        return text, base
    if isinstance(node, ast.Attribute):
        return f"{text}.{node.attr}", attribute(base, node.attr)
    return _item(text, base, node.slice, frame)


def _item(text: str, base: Any, node: ast.expr, frame: Frame) -> tuple[str, Any]:
    key = _key(node, frame)
    link = Link("item", key) if is_exactly(key, str, int) else Link("code", f"[{spell(node)}]")
    return f"{text}{link}", item(base, key)


def _key(node: ast.expr, frame: Frame) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if type(node.operand.value) is int else None
    if isinstance(node, ast.JoinedStr):
        return _text(node, frame)
    _, value = evaluate(node, frame)
    return value


def _text(node: ast.JoinedStr, frame: Frame) -> str | None:
    """A formatted string of plain texts and numbers."""
    pieces = [_key(p.value, frame) if isinstance(p, ast.FormattedValue) else _key(p, frame) for p in node.values]
    return "".join(map(str, pieces)) if all(is_exactly(piece, str, int) for piece in pieces) else None


def makes_tensor(node: ast.AST, frame: Frame) -> bool:
    """Whether a call makes a tensor and names no device, whatever name torch's function has here."""
    if is_factory(node):
        return True
    if not isinstance(node, ast.Call) or device_argument(node) is not None:
        return False
    _, function = evaluate(node.func, frame)
    name = meaning_of(function).partition(".")[2]
    if name not in MAKERS:
        return False
    node.torch_function = name  # type: ignore[attr-defined]  # an argument, say: the file alone does not tell
    return True
