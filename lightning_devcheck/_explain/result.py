"""The line that made a value: where a function of the user's returned it, the line in there."""

from __future__ import annotations

import ast
import types
from typing import Any

from lightning_devcheck._explain.bindings import find_binding
from lightning_devcheck._explain.calls import MAX_DEPTH, frame_inside, method_of, returned, unwrap
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.mentions import evaluate
from lightning_devcheck._observe.inert import MISSING
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import origin_at


def made_at(expression: ast.expr, frame: Frame) -> Origin | None:
    """Find the line that made what an expression of a frame gives; None where nothing tells."""
    origin = None
    for _ in range(MAX_DEPTH):
        if isinstance(expression, ast.Name):
            binding = find_binding(frame, expression.id)
            if binding is None or binding.kind != "value" or binding.value is None:
                return origin
            origin = origin_at(frame.filename, binding.node, binding.function)
            if binding.unpacked:
                return origin
            expression = binding.value
        function, owner = called(expression, frame)
        results = _returned(function)
        if function is None or not results:
            return origin
        expression = _loss_in(results[-1])
        frame = frame_inside(function, owner, frame, expression)
        origin = origin_at(frame.filename, expression, function.__name__)
    return origin


def made_by_method(owner: type, method: str, outer: Frame) -> Origin | None:
    """Find the line that made what a method returned.

    Args:
        owner: The class.
        method: The method's name.
        outer: A frame that led to the call.
    """
    function = method_of(owner, method)
    results = _returned(function)
    if function is None or not results:
        return None
    expression = _loss_in(results[-1])
    inner = frame_inside(function, MISSING, outer, expression)
    return made_at(expression, inner) or origin_at(inner.filename, expression, method)


def _returned(function: types.FunctionType | None) -> list[ast.expr]:
    if function is None:
        return []
    return returned(function)


def called(expression: ast.expr, frame: Frame) -> tuple[types.FunctionType | None, Any]:
    """The function of the user's that an expression calls, and its ``self``."""
    if not isinstance(expression, ast.Call):
        return None, MISSING
    function = expression.func
    if isinstance(function, ast.Name):
        return unwrap(frame.lookup(function.id)), MISSING
    if not isinstance(function, ast.Attribute):
        return None, MISSING
    owner = evaluate(function.value, frame)[1]
    if owner is MISSING:
        return None, MISSING
    return method_of(owner, function.attr), owner


def _loss_in(expression: ast.expr) -> ast.expr:
    """What stands under ``"loss"`` in a dictionary that is written out."""
    if not isinstance(expression, ast.Dict):
        return expression
    for key, value in zip(expression.keys, expression.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "loss":
            return value
    return expression
