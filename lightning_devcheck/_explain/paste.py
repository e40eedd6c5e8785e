"""How a fix can write a device: with what the line's own function knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._explain.bindings import find_binding, takes_self
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._judge.culprit import Writing
from lightning_devcheck._observe.devices import device_of, to_device
from lightning_devcheck._observe.inert import has_device, is_a, is_module
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import Point, statement_at
from lightning_devcheck._source.statements import spell


def writing_at(made: Origin | None, frames: Sequence[Frame], expected: torch.device | None) -> Writing | None:
    """How the code around a culprit can write the device where it should be.

    Args:
        made: The line that made the culprit.
        frames: The user's frames, innermost first.
        expected: Where things belong.
    """
    if not frames or made is None:
        return None
    place = next((frame for frame in frames if _is_in(made, frame)), None)
    here = device_before(frames[0], made, expected)
    if place is frames[0]:
        there = here
    elif place is not None:
        there = device_before(place, made, expected)
    else:
        shaped = re.search(r"\b(?!self\b)([a-z]\w*)\.(?:shape|size\()", _text_at(made))
        there = f"{shaped[1]}.device" if shaped else ""
    return Writing(
        here=here,
        there=there,
        has_module=any("self" in frame.names for frame in frames),
        has_device=place is not None and has_device(place.lookup("self")),
        takes_self=takes_self(made),
    )


def device_before(frame: Frame, made: Origin, expected: torch.device | None) -> str:
    """The device where it should be, as a variable of a frame knew it when a line ran.

    A variable that holds the device goes first, then tensors, then modules; of these what the line mentions, then
    what was made last.
    """
    found: list[tuple[int, bool, Point, str]] = []
    here, line = (made.lineno, made.column or 0), _text_at(made)
    for name, value in frame.names.items():
        kind, text = _device_in(name, value, expected)
        binding = find_binding(frame, name) if text else None
        if binding is not None and (binding.kind == "argument" or binding.end <= here):
            mentioned = re.search(rf"\b{name}\b", line) is not None
            found.append((kind, mentioned, binding.start, text))
    return max(found)[-1] if found else ""


def _device_in(name: str, value: Any, expected: torch.device | None) -> tuple[int, str]:
    """How to write the device where things should be with a variable, and how good that is."""
    if type(value) in (torch.device, str) and to_device(str(value)) == expected:
        return 3, name
    if is_a(value, torch.Tensor):
        return (2, f"{name}.device") if device_of(value) == expected else (0, "")
    if is_module(value) and (first := next(iter(tensors_of(value)), None)) is not None:
        return (1, f"next({name}.parameters()).device") if device_of(first[1]) == expected else (0, "")
    return 0, ""


def _text_at(place: Origin) -> str:
    """The text of the statement at a place."""
    statement = statement_at(place)
    return "" if statement is None else spell(statement)


def _is_in(line: Origin, frame: Frame) -> bool:
    """Whether a line is in the function that a frame runs."""
    own = frame.code.co_name
    return (frame.filename, "" if own in ("<module>", "<lambda>") else own) == (line.filename, line.function)
