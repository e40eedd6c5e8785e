"""Names and weights of the terms of a loss: what is accepted, and how they are read and set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from numbers import Real

RESERVED = "loss"  # the name of the total


class Weights(MutableMapping[str, float]):
    """The weights by name; names are fixed, values can be set at any time.

    Args:
        given: Name → weight, a sequence of weights (named ``0``, ``1``, …), or a number of terms of weight 1.

    Raises:
        TypeError: If ``given`` is none of these, or a name or weight is of the wrong type.
        ValueError: If there is no term, a weight is not finite, or a term is called ``loss``.
    """

    def __init__(self, given: Mapping[str, float] | Sequence[float] | int) -> None:
        self._values: dict[str, float] = {}
        self.version = 0
        for name, weight in _pairs(given):
            if not isinstance(name, str):
                raise TypeError(
                    f"LossAccumulator(weights=…): the name {name!r} is a {type(name).__name__}; use a string."
                )
            if name == RESERVED:
                raise ValueError(f"LossAccumulator(weights=…): {RESERVED!r} is the name of the total; use another.")
            self._values[name] = checked(name, weight)
        if not self._values:
            raise ValueError(f"LossAccumulator(weights={given!r}): at least one term is needed.")
        self.initial = dict(self._values)

    @property
    def changed(self) -> bool:
        """Whether a weight is not what it was at first."""
        return self._values != self.initial

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __setitem__(self, name: str, weight: float) -> None:
        if name not in self._values:
            raise KeyError(unknown(name, self._values))
        self._values[name] = checked(name, weight)
        self.version += 1

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the terms are fixed: set weights[{name!r}] = 0.0 to switch one off.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


def _pairs(given: Mapping[str, float] | Sequence[float] | int) -> list[tuple[str, float]]:
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, int) and not isinstance(given, bool):
        return [(str(index), 1.0) for index in range(given)]
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [(str(index), weight) for index, weight in enumerate(given)]
    raise TypeError(
        f"LossAccumulator(weights={given!r}): use a mapping name → weight, a sequence of weights or a number of terms."
    )


def checked(name: str, weight: object) -> float:
    """The weight as a finite float."""
    if not isinstance(weight, Real) or isinstance(weight, bool):
        raise TypeError(f"the weight of {name!r} is {weight!r}, a {type(weight).__name__}; use a Python number.")
    if not math.isfinite(weight):
        raise ValueError(f"the weight of {name!r} is {weight!r}; use a finite number.")
    return float(weight)


def unknown(name: object, names: Mapping[str, float]) -> str:
    """What is said of a name that was not declared."""
    return f"no term named {name!r}; the terms are {', '.join(map(repr, names))}."
