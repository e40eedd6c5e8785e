"""Make the module that `lightning-devcheck scan` is asked for, and say why it cannot be made."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from lightning_devcheck._report.text import location
from lightning_devcheck._source.files import user_lines


class TargetError(Exception):
    """What the user asked to scan is not there, or no module."""


def in_one_line(error: BaseException) -> str:
    """What was raised by code that is scanned, and where."""
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = "(its message cannot be shown)"
    lines = user_lines(traceback.format_tb(error.__traceback__))
    place = f" ({location(lines[0])}  {lines[0].line})" if lines else ""
    return f"importing or making it raised {type(error).__name__}: {said}{place}"


def build(target: str) -> Any:
    """Make the module that ``package.module:Class`` names.

    Raises:
        TargetError: If nothing has that name, or it makes no module without arguments.
    """
    import torch

    name, colon, attribute = target.partition(":")
    if not (name and colon and attribute) or name.startswith("."):
        raise TargetError("write MODULE:CLASS, such as package.models:Net")
    sys.path.insert(0, os.getcwd())
    value = _imported(name)
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise TargetError(str(error)) from error
    if isinstance(value, type) or not isinstance(value, torch.nn.Module):
        value = _made(value)
    if not isinstance(value, torch.nn.Module):
        raise TargetError(f"a torch.nn.Module is needed, this is a {type(value).__name__}")
    return value


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        own = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if not own:
            raise
        raise TargetError(f"{error} in {os.getcwd()}, nor installed") from error


def _made(value: Any) -> Any:
    """What a class or a function makes without arguments; another value as it is."""
    if not callable(value):
        return value
    try:
        wanted = inspect.signature(value)
    except (TypeError, ValueError):
        return value()  # it does not tell what it needs
    try:
        wanted.bind()
    except TypeError as error:
        raise TargetError(f"{error}; name a function that makes it") from error
    make: Callable[[], Any] = value
    return make()
