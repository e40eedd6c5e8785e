"""The arguments of `DeviceCheck`, refused with their name, their value and the choices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from lightning_devcheck._report.rules import RULES

Action = Literal["raise", "warn", "ignore"]
ACTIONS = ("raise", "warn", "ignore")


def check_arguments(on_mismatch: Any, every_n_steps: Any, explain: Any) -> None:
    """Refuse what is no action, no number of steps, or neither True nor False."""
    if on_mismatch not in ACTIONS:
        choices = ", ".join(map(repr, ACTIONS))
        raise ValueError(f"DeviceCheck(on_mismatch={on_mismatch!r}) is not a known action; use one of {choices}.")
    if every_n_steps is not None and (type(every_n_steps) is not int or every_n_steps < 1):
        raise ValueError(f"DeviceCheck(every_n_steps={every_n_steps!r}): use a positive integer, or None.")
    if not isinstance(explain, bool):
        raise TypeError(f"DeviceCheck(explain={explain!r}): use True or False.")


def known_rules(ignore: Sequence[str]) -> tuple[str, ...]:
    """The ids of rules, all of which there are."""
    rules = texts("ignore", ignore)
    unknown = sorted(set(rules) - set(RULES))
    if unknown:
        choices = ", ".join(RULES)
        raise ValueError(f"DeviceCheck(ignore={list(rules)!r}): no rule {unknown[0]!r}; there are {choices}.")
    return rules


def texts(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """The strings of an argument."""
    found = tuple(values) if isinstance(values, Iterable) else (None,)
    if isinstance(values, str) or not all(isinstance(text, str) for text in found):
        examples = "['teacher.*', 'cpu']" if name == "allow" else "['device-round-trip']"
        raise TypeError(f"DeviceCheck({name}={values!r}): a list of strings is needed, such as {examples}.")
    return found
