"""Where a name of a frame got its value."""

from __future__ import annotations

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._observe.inert import is_module
from lightning_devcheck._source import assignments
from lightning_devcheck._source.assignments import Binding, takes_self
from lightning_devcheck._source.files import Point
from lightning_devcheck._source.path import base_of

__all__ = ["find_binding", "takes_self"]


def find_binding(frame: Frame, name: str, point: Point | None = None) -> Binding | None:
    """The binding of a name that holds at a point of a frame; None takes what failed."""
    base = base_of(name)
    held = frame.lookup(base)
    # a module's ``.to()`` moves it in place
    moves = not is_module(held)
    here = frame.point
    filename = frame.filename
    return assignments.find_binding(filename, name, here, point, moves=moves)
