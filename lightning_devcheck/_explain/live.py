"""The program that asks for a check: what its variables call a tensor, and which of its lines made it."""

from __future__ import annotations

import dataclasses
import types

import torch

from lightning_devcheck._compat import no_torch_function
from lightning_devcheck._explain.frames import read_stack
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.names import Search
from lightning_devcheck._explain.paste import writing_at
from lightning_devcheck._judge.case import Cure
from lightning_devcheck._judge.culprit import paste
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import inside
from lightning_devcheck._report.records import Finding


class Caller:
    """The frames that led to a call; nothing is read of them before a question is asked.

    Args:
        frame: The frame that made the call.
        module: The module that is trained.
    """

    def __init__(self, frame: types.FrameType, module: torch.nn.Module) -> None:
        self._frame, self._module = frame, module

    def history(self, tensor: torch.Tensor, expected: torch.device | None) -> Named | None:
        """The name and the line of a tensor that one of the caller's variables holds."""
        with no_torch_function():
            frames = read_stack(self._frame)
            last = len(frames) - 1
            held = (pair for variable, value in frames[last].names.items() for pair in inside(value, variable))
            name = next((name for name, found in held if found is tensor), None)
            if name is None:
                return None
            search = Search(frames, self._module, tensor, device_of(tensor), expected)
            return search.follow(last, name)

    def in_its_words(self, finding: Finding, expected: torch.device | None) -> Finding:
        """A finding whose fix uses what the caller has."""
        frames = [frame for frame in reversed(read_stack(self._frame)) if frame.is_user]
        made = finding.origin
        writing = writing_at(made, frames, expected)
        if made is None or writing is None:
            return finding
        given = Cure(finding.why, finding.fix, finding.edits)
        cure = paste(given, finding.name, made, writing, in_module=writing.has_module)
        return dataclasses.replace(finding, fix=cure.fix, edits=cure.edits)
