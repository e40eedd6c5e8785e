"""Warnings that torch gives at our lines, shown at the line that they would name on a real device.

A warning from C++ names the Python line that called it. Python's filters and its once-per-line go by that line, so such
a warning is let through to where it is shown, and given once more there, at the right line.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lightning_devcheck._simulate.compat import OPERATORS, SHOW_WARNING
from lightning_devcheck._simulate.patch import Patches

PACKAGE = __name__.rpartition(".")[0]
OURS = str(Path(__file__).parents[1])
CALLING = str(OPERATORS.__file__)
DISPATCH = str(torch.overrides.__file__)  # its caller is a function that hands itself over to us


@contextmanager
def warnings_at_callers() -> Iterator[None]:
    """Show the warnings of a simulation at its callers."""
    if not hasattr(*SHOW_WARNING):
        yield
        return
    modules = [module for name, module in sys.modules.items() if name.startswith(PACKAGE) or module is OPERATORS]
    # without a registry Python does not note that a warning was shown at a line
    changes = [(module, "__warningregistry__", None) for module in modules]
    names = re.compile(f"{re.escape(PACKAGE)}|{re.escape(OPERATORS.__name__)}$")
    let_through: Any = ("always", None, Warning, names, 0)
    # not by `filterwarnings`, which makes Python forget what it has shown, everywhere
    warnings.filters.insert(0, let_through)  # type: ignore[attr-defined]
    try:
        with Patches([*changes, (*SHOW_WARNING, _showing(getattr(*SHOW_WARNING)))]):
            yield
    finally:
        if let_through in warnings.filters:
            warnings.filters.remove(let_through)  # type: ignore[attr-defined]


def _showing(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """What Python calls with a warning that passed its filters."""

    def show(given: warnings.WarningMessage) -> None:
        frame = _caller(given) if _is_ours(given.filename) else None
        if frame is None:
            original(given)
            return
        registry = frame.f_globals.setdefault("__warningregistry__", {})
        name = frame.f_globals.get("__name__", "<unknown>")
        place = (frame.f_code.co_filename, frame.f_lineno, name, registry)
        warnings.warn_explicit(given.message, given.category, *place, source=given.source)

    return show


def _caller(given: warnings.WarningMessage) -> FrameType | None:
    """The frame outside of ours that led to the line of a warning, without torch's way from a function to us."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != given.filename:
        frame = frame.f_back
    inner = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not _is_ours(name) and DISPATCH not in (name, inner):
            return frame
        inner = name
        frame = frame.f_back
    return None


def _is_ours(filename: str) -> bool:
    return filename.startswith(OURS) or filename == CALLING
