"""Names and weights of the terms of a loss: what is accepted, and how they are read and set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from lightning_devcheck._compat import default_device, is_transformed

RESERVED = "loss"  # the name of the total
WITHOUT_FLOAT64 = {"mps"}  # device types; sums are held in two float32 there


def best_dtype(device: torch.device) -> torch.dtype:
    """The most precise floating-point type of a device."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


class Weights(MutableMapping[str, float]):
    """The weights by name, as Python floats; names are fixed, values can be set at any time.

    Setting one reads nothing from a device, and compiled code is not compiled again.

    Args:
        given: Name → weight, a sequence of weights (named ``0``, ``1``, …), or a number of terms of weight 1.

    Raises:
        TypeError: If ``given`` is none of these, or a name or weight is of the wrong type.
        ValueError: If there is no term, a weight is not finite, or a term is called ``loss``.
    """

    def __init__(self, given: Mapping[str, float] | Sequence[float] | int) -> None:
        self._values: dict[str, float] = {}
        for name, weight in _pairs(given):
            self._values[_checked_name(name)] = _checked_weight(name, weight)
        if not self._values:
            raise ValueError(f"LossAccumulator(weights={given!r}): at least one term is needed.")
        self.names = tuple(self._values)
        self.changed = False  # whether one was ever set; then they belong on the checkpoint
        self._copies: dict[Any, Tensor] = {}
        self.latest: Tensor | None = None  # the copy used last, until a weight is set
        self.move(default_device())

    def like(self, terms: Tensor) -> Tensor:
        """The weights ``[1 + K]`` where the terms are, in the narrowest type that they are weighed in."""
        found = self._copies.get((terms.device, terms.dtype))
        if found is None:
            dtype = self._dtype_beside(terms)
            with torch.inference_mode(False):  # a copy made in validation serves training as well
                found = torch.tensor([0.0, *self._values.values()], device=terms.device, dtype=dtype)
            if not self.can_keep(found):
                return found
            self._copies[terms.device, terms.dtype] = found
        self.latest = found
        return found

    def _dtype_beside(self, terms: Tensor) -> torch.dtype:
        for dtype in (terms.dtype, torch.promote_types(terms.dtype, torch.float32)):
            if all(_holds(dtype, weight) for weight in self._values.values()):
                return dtype
        return best_dtype(terms.device)

    def weigher(self, terms: Tensor, weights: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """How terms of this type are weighed: by the one operator where that is enough."""
        simple = weights.dtype is terms.dtype and all(self._values.values())
        return torch.dot if simple else weigh

    def can_keep(self, constant: Tensor) -> bool:
        """Whether a constant serves later steps too: not one made under fake tensors or a transform of torch.func."""
        return type(constant) is type(self.tensor) and not is_transformed(constant)

    def move(self, device: torch.device) -> None:
        """Hold the tensor on a device."""
        with torch.inference_mode(False):
            # [1 + K]: the first belongs to the number of samples, which is no part of the total
            self.tensor = torch.tensor([0.0, *self._values.values()], device=device, dtype=best_dtype(device))
        self._copies, self.latest = {}, None

    def update(self, *given: Any, **named: Any) -> None:
        """Set several weights, or none where one of them is refused."""
        checked = {}
        for name, weight in dict(*given, **named).items():
            checked[name] = self._checked(name, weight)
        self._values.update(checked)
        self.changed = True
        self.move(self.tensor.device)

    def _checked(self, name: str, weight: object) -> float:
        if name not in self._values:
            raise KeyError(unknown_name(name, self.names))
        return _checked_weight(name, weight)

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __setitem__(self, name: str, weight: float) -> None:
        value = self._checked(name, weight)
        self._values[name] = value
        self.changed, self.latest = True, None
        index = 1 + self.names.index(name)
        self.tensor = _with(self.tensor, index, value)
        kept = {}
        for key, copy in self._copies.items():
            if _holds(copy.dtype, value):
                kept[key] = _with(copy, index, value)
        self._copies = kept

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the terms are fixed; weights[{name!r}] = 0.0 switches one off.")

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return repr(self._values)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copies": {}, "latest": None}


def weigh(terms: Tensor, weights: Tensor) -> Tensor:
    """The weighted total in the terms' type; a weight of 0 leaves its term out, also a NaN or infinite one."""
    used = terms.to(weights.dtype).masked_fill(weights == 0, 0.0)
    return torch.dot(used, weights).to(terms.dtype)


def _holds(dtype: torch.dtype, weight: float) -> bool:
    """Whether a weight is neither too large nor too small: half precision has 6e-5 to 65504."""
    limits = torch.finfo(dtype)
    return weight == 0 or limits.tiny <= abs(weight) <= limits.max


def _with(tensor: Tensor, index: int, value: float) -> Tensor:
    """A copy with one element set; the old tensor may be saved in a graph that still goes backward."""
    with torch.inference_mode(False):
        tensor = tensor.clone()
        tensor[index].fill_(value)
        return tensor


def _pairs(given: Any) -> list[tuple[Any, Any]]:
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, int) and not isinstance(given, bool):
        return [(str(index), 1.0) for index in range(given)]
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        return [(str(index), weight) for index, weight in enumerate(given)]
    raise TypeError(
        f"LossAccumulator(weights={given!r}) is a {type(given).__name__}; "
        "use a mapping name → weight, a sequence of weights or a number of terms."
    )


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"LossAccumulator(weights=…): the name {name!r} is a {type(name).__name__}; use a string.")
    if name == RESERVED:
        raise ValueError(f"LossAccumulator(weights=…): {RESERVED!r} is the name of the total; use another.")
    return name


def _checked_weight(name: object, weight: object) -> float:
    if not isinstance(weight, Real) or isinstance(weight, bool):
        raise TypeError(f"the weight of {name!r} is {weight!r}, a {type(weight).__name__}; use a Python number.")
    number = as_float(weight)
    if not math.isfinite(number):
        raise ValueError(f"the weight of {name!r} is {weight!r}; use a finite number.")
    return number


def as_float(number: Real) -> float:
    """A number as a float; infinity where it is larger than all of them."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def unknown_name(name: object, names: Sequence[str]) -> str:
    """What is said of a name that was not declared."""
    return f"no term is named {name!r}; the terms are {', '.join(map(repr, names))}."
