"""Values of an accumulator, one by one, as Lightning wants to log them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

if TYPE_CHECKING:
    from lightning_devcheck._metric import LossAccumulator


class TermView(Metric):
    """One value of an accumulator, as a metric that Lightning can log."""

    full_state_update = False
    __jit_unused_properties__: ClassVar[list[str]] = [*Metric.__jit_unused_properties__, "_forward_cache", "device"]

    def __init__(self, owner: LossAccumulator, name: str, prefix: str) -> None:
        super().__init__(sync_on_compute=False, compute_with_cache=False)
        self.name, self.label = name, prefix + name
        self._owner = (owner,)  # in a tuple: the owner is not a part of its part
        self._update_count = 1

    @property  # type: ignore[override]
    def _forward_cache(self) -> Tensor | None:
        """A step's value, where Lightning reads it; asked for late, it costs nothing where steps are not logged."""
        return self._owner[0].last_value(self.name)

    @_forward_cache.setter
    def _forward_cache(self, value: None) -> None:
        """Keep nothing: torchmetrics assigns None."""

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> Any:
        """Move nothing: what there is moves with the owner."""
        return self

    @property
    def device(self) -> torch.device:
        """Where the owner's sums are."""
        return self._owner[0].packed.device

    def update(self) -> None:
        """Do nothing: the owner is updated."""

    def compute(self) -> Tensor:
        """The owner's value; the first of its views to ask makes it sync."""
        return self._owner[0].compute()[self.name]

    def reset(self) -> None:
        """Reset the owner."""
        self._owner[0].reset()
