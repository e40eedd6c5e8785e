"""The one file that touches private names of torch and Lightning: each with a probe and what happens without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _probe(root: Any, path: str) -> Any:
    """Follow a dotted path, or None where a part of it is missing."""
    for part in path.split("."):
        root = getattr(root, part, None)
        if root is None:
            return None
    return root


# torch 2.0 and newer: the number of the thread's next graph node. Without it every step looks unchanged.
sequence_number: Callable[[], int] = _probe(torch, "_C._autograd._get_sequence_nr") or (lambda: 0)
