"""Attributes replaced for a while and put back, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

_MISSING = object()
# owner, attribute name and stand-in
Change = tuple[Any, str, Any]


class Patches:
    """Sets attributes on entry and puts every one back on exit, also after an exception.

    Args:
        changes: Owner, attribute name and stand-in.
    """

    def __init__(self, changes: Iterable[Change]) -> None:
        self._changes = list(changes)
        self._originals: list[Change] = []

    def __enter__(self) -> Patches:
        for owner, name, value in self._changes:
            self._originals.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, value)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._originals:
            owner, name, value = self._originals.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
