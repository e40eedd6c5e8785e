"""`DeviceCheck` in every Trainer, through Lightning's entry points and an environment variable."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

VARIABLE = "LIGHTNING_DEVCHECK"
BY_VALUE: dict[str, Any] = {"1": "raise", "raise": "raise", "warn": "warn"}
NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
STAGES = ("fit", "validate", "test", "predict")


def callbacks_from_environment() -> list[Any]:
    """Have every Trainer run with the `DeviceCheck` that ``LIGHTNING_DEVCHECK`` asks for.

    Lightning calls this for every Trainer of the environment. Without the variable it imports nothing. The check is
    among a Trainer's callbacks while that runs, and not before or after: what a program makes of its list of callbacks
    stays as it is. A `DeviceCheck` that the program has itself is used alone.

    Returns:
        No callback.

    Raises:
        ValueError: If the variable has another value than ``raise``, ``warn`` or ``1`` (``0`` and nothing switch off).
    """
    if _action() is not None:
        import lightning_devcheck._check.callback  # noqa: F401  now, not in the middle of a run

        for namespace in NAMESPACES:
            trainer = getattr(sys.modules.get(namespace), "Trainer", None)
            for stage in STAGES if trainer is not None else ():
                _check_during(trainer, stage)
    return []


def _action() -> Any:
    """What the variable asks for; None where it asks for nothing."""
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return None
    if value not in BY_VALUE:
        raise ValueError(
            f"{VARIABLE}={value!r} is not a known action; use one of 'raise', 'warn', '1', or '0' for off."
        )
    return BY_VALUE[value]


def _check_during(trainer_class: Any, stage: str) -> None:
    """Have an entry point of a Trainer run with a check, where it does not do so yet."""
    original: Callable[..., Any] = getattr(trainer_class, stage)
    if hasattr(original, "is_checked"):
        return

    @functools.wraps(original)
    def checked(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        check = _add_check(trainer)
        try:
            return original(trainer, *args, **kwargs)
        finally:
            if check in trainer.callbacks:
                trainer.callbacks.remove(check)

    checked.is_checked = True  # type: ignore[attr-defined]
    setattr(trainer_class, stage, checked)


def _add_check(trainer: Any) -> Any:
    """Add the check that the variable asks for, before what saves checkpoints; None where there is one."""
    from lightning_devcheck._check.callback import (
        DeviceCheck,  # imports torch and more, which an idle entry point must not
    )

    action = _action()
    if action is None or any(isinstance(callback, DeviceCheck) for callback in trainer.callbacks):
        return None
    check = DeviceCheck(action)
    trainer.callbacks.insert(len(trainer.callbacks) - len(trainer.checkpoint_callbacks), check)
    return check
