"""`DeviceCheck` in every Trainer, through Lightning's entry points and an environment variable."""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "LIGHTNING_DEVCHECK"
ACTIONS: dict[str, Any] = {"1": "raise", "raise": "raise", "warn": "warn"}


def callbacks_from_environment() -> list[Any]:
    """The callbacks that ``LIGHTNING_DEVCHECK`` asks for: one `DeviceCheck`, or none.

    Lightning calls this for every Trainer of the environment. Without the variable it imports nothing.

    Raises:
        ValueError: If the variable has another value than ``raise``, ``warn`` or ``1`` (``0`` and nothing switch off).
    """
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return []
    if value not in ACTIONS:
        raise ValueError(
            f"{VARIABLE}={value!r} is not a known action; use one of 'raise', 'warn', '1', or '0' for off."
        )
    from lightning_devcheck._callback import DeviceCheck  # imports Lightning, which an idle entry point must not

    check = DeviceCheck(ACTIONS[value])
    check._automatic = True
    return [check]
