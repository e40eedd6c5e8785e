"""What the forward of a custom Function saved for its backward."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lightning_devcheck._explain.calls import frame_inside, method_of
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.mentions import evaluate
from lightning_devcheck._observe.inert import MISSING, class_member, is_a
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import statement_at
from lightning_devcheck._source.queries import methods_of
from lightning_devcheck._source.statements import calls_in, puts_on_host, spell

if TYPE_CHECKING:
    from lightning_devcheck._explain.names import Search


def saved_line(search: Search, frame: Frame, value: ast.Attribute, name: str) -> Origin | None:
    """The line in a custom Function's forward that put what it saved on the CPU.

    Args:
        search: The search for the tensor.
        frame: The backward.
        value: ``ctx.saved_tensors``.
        name: What the backward calls the tensor; what the forward calls so goes first.
    """
    _, context = evaluate(value.value, frame)
    for function, call in _saves(class_member(type(context), "_forward_cls")):
        for given in sorted(call.args, key=lambda given: spell(given) != name):
            made = search.in_returned(frame_inside(function, MISSING, frame, given), given)
            statement = statement_at(made)
            if statement is not None and puts_on_host(statement):
                return made
    return None


def _saves(kind: type) -> Iterator[tuple[types.FunctionType, ast.Call]]:
    """The calls of ``save_for_backward`` in a custom Function, with the methods they are in."""
    for _, node in methods_of(kind) if is_a(kind, type) else ():
        function = method_of(kind, node.name)
        for call in calls_in(node):
            if function and spell(call.func) == "ctx.save_for_backward":
                yield function, call
