"""The losses of a step as one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_devcheck._metric._terms import Losses, check_stacked, order_terms, refuse_terms
from lightning_devcheck._metric._weights import Weights


class Stacker:
    """Puts the losses of a step into one tensor, beside what else is added to the sums.

    Args:
        weights: The terms in declared order, and which constants can be kept.
        skip_nan: Whether a NaN term is left out; then an absent term is a NaN one, else it is a zero with a flag.
    """

    def __init__(self, weights: Weights, *, skip_nan: bool) -> None:
        self._weights = weights
        self._names = weights.names
        self._skip_nan = skip_nan
        self._constants: dict[Any, Tensor] = {}
        self.one: Tensor | None = None  # that of the step before, found without a look into the dictionary

    def stack(self, losses: Losses, compiling: bool) -> tuple[Tensor, tuple[str, ...] | None]:
        """``[1, *terms]`` in declared order, after ``[0, *flags]`` where terms are absent, and who is present then.

        Raises:
            DeviceMismatchError: If a term is on another device than the first.
            TypeError, ValueError, KeyError: As `LossAccumulator.forward`.
        """
        names, present = self._names, None
        terms: Any = losses
        # the usual case first: each call of a function and each `isinstance` costs as much as a part of an operator
        if type(losses) is not list or len(losses) != len(names) or type(losses[0]) is tuple:
            if isinstance(losses, Tensor):
                check_stacked(losses, names)
                return torch.cat([self._constant(1.0, losses)[None], losses]), None
            terms, present = order_terms(losses, names)
        try:
            first, one = terms[0], self.one
            if compiling or one is None or one.dtype is not first.dtype or one.device != first.device:
                one = self._new_one(first, compiling)
            stacked = torch.stack([one, *terms] if present is None else self._with_absent(one, terms, present))
            right = stacked.dim() == 1 and all(map(Tensor.is_floating_point, terms)) and stacked.element_size() > 1
        except (TypeError, RuntimeError, AttributeError):
            refuse_terms(terms, present or names)
            raise
        if not right:
            refuse_terms(terms, present or names)
        return stacked, present

    def _with_absent(self, one: Tensor, terms: list[Tensor], present: tuple[str, ...]) -> list[Tensor]:
        here = dict(zip(present, terms, strict=True))
        if self._skip_nan:
            nan = self._constant(torch.nan, one)
            return [one, *(here.get(name, nan) for name in self._names)]
        zero = self._constant(0.0, one)
        flags = [zero if name in here else one for name in self._names]
        return [zero, *flags, one, *(here.get(name, zero) for name in self._names)]

    def _new_one(self, first: Tensor, compiling: bool) -> Tensor:
        one = self._constant(1.0, first)
        kept = not compiling and self._weights.can_keep(one)
        self.one = one if kept else None
        return one

    def _constant(self, value: float, like: Tensor) -> Tensor:
        """A 0-dim constant beside the losses, made once; compiled code makes it as part of its graph."""
        if torch.compiler.is_compiling():
            return torch.full((), value, dtype=like.dtype, device=like.device)
        key = (repr(value), like.device, like.dtype)
        found = self._constants.get(key)
        if found is not None:
            return found
        with torch.inference_mode(False):  # one made in validation serves training as well
            made = torch.full((), value, dtype=like.dtype, device=like.device)
        if self._weights.can_keep(made):
            self._constants[key] = made
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_constants": {}, "one": None}
