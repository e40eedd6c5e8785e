"""What is known of plain tensors, which cannot carry it themselves."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from lightning_devcheck._witness.places import Place

# NOTE [Places of plain tensors]
# An attribute of a plain tensor would end up in `torch.save`, and a `WeakKeyDictionary` calls
# `Tensor.__eq__`. So plain tensors stand in a table by id; ids are used again at once, so each
# entry is a weak reference that takes itself out when its tensor dies: 0.4 us and 190 bytes.


class _Entry(weakref.ref):  # type: ignore[type-arg]  # a generic one has no slots
    __slots__ = ("key", "place")

    key: int
    place: Place


class Table:
    """The place of each living plain tensor that was seen."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, tensor: torch.Tensor) -> Place | None:
        """Find a tensor's place; None where it was not seen."""
        entry = self._entries.get(id(tensor))
        if entry is None:
            return None
        return entry.place

    def put(self, tensor: torch.Tensor, place: Place) -> None:
        """Write a tensor's place down, in place of an older one."""
        key = id(tensor)
        entry = _Entry(tensor, self._forget)
        entry.key = key
        entry.place = place
        self._entries[key] = entry

    def clear(self) -> None:
        """Forget every tensor."""
        self._entries.clear()

    def take(self, tensor: torch.Tensor) -> Place | None:
        """Take a tensor's entry out: torch refuses to swap tensors with weak references."""
        entry = self._entries.pop(id(tensor), None)
        if entry is None:
            return None
        return entry.place

    def _forget(self, entry: Any) -> None:
        key: int = entry.key
        if self._entries.get(key) is entry:
            del self._entries[key]
