"""Fixes that can be pasted: with a device that the line's own function knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

import torch

from lightning_devcheck._explain.bindings import find_binding, takes_self
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._observe.devices import device_of, to_device
from lightning_devcheck._observe.inert import has_device, is_a, is_module
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import Point, statement_at


def pasteable(fix: str, named: Named, frames: Sequence[Frame], expected: torch.device | None) -> str:
    """A fix without ``self.device`` where the user's code has none: the device is that of what the culprit met.

    Args:
        fix: The fix.
        named: The culprit.
        frames: The user's frames, innermost first.
        expected: Where things belong.
    """
    made = named.origin
    if not frames or made is None:
        return fix
    if fix.startswith("self.register_buffer"):
        other = device_before(frames[0], made, expected)
        has_module = named.kind == "attribute" or any("self" in frame.names for frame in frames)
        return f"{named.name}.to({other})" if other and not has_module else fix
    place = next((frame for frame in frames if _is_in(made, frame)), None)
    if "self.device" not in fix or (place is not None and has_device(place.lookup("self"))):
        return fix
    text = _text_at(made)
    shaped = re.search(r"\b(?!self\b)([a-z]\w*)\.(?:shape|size\()", text) if place is None else None
    other = device_before(place, made, expected) if place is not None else f"{shaped[1]}.device" if shaped else ""
    if other or takes_self(made) or not made.function:
        return fix.replace("self.device", other or "self.device")
    return f"{fix.replace('self.device', 'device')}\n(device: a new argument of {made.function}, from its caller)"


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
    return "" if statement is None else ast.unparse(statement)


def _is_in(line: Origin, frame: Frame) -> bool:
    """Whether a line is in the function that a frame runs."""
    own = frame.code.co_name
    return (frame.filename, "" if own in ("<module>", "<lambda>") else own) == (line.filename, line.function)
