"""The state of an accumulator: sums and names, and every way in which they come from elsewhere or go there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_devcheck._metric._names import SumByName, decode_names, encode_names, list_names, rearrange, same_names
from lightning_devcheck._metric._sums import convert_sums
from lightning_devcheck._metric._weights import Weights


class NamedSums(Metric):
    """Running sums of named terms: matched by name in checkpoints, between processes and when two are merged.

    Args:
        weights: The terms, with their weights.
        nan: What a NaN term does; accumulators that differ in it are not of one compute group of a collection.
        kwargs: What every `torchmetrics.Metric` takes.
    """

    __jit_unused_properties__: ClassVar[list[str]] = [*Metric.__jit_unused_properties__, "packed", "weights"]

    def __init__(self, weights: Weights, nan: str, kwargs: dict[str, Any]) -> None:
        super().__init__(**{"dist_sync_fn": SumByName(weights.names), **kwargs})
        self._weights = weights
        self._nan = nan
        self._size = 1 + len(weights)
        self.terms: Tensor  # TorchScript cannot read the text of an annotation of the class
        terms = encode_names(nan, weights.names, self.device)
        self.add_state("terms", terms, dist_reduce_fx=same_names)  # first: other names are refused before a sum is made
        # blocks of 1 + K: [- | samples left out], [samples | sums], [- | NaN samples]; one addition does it all
        zeros = torch.zeros(1, 3 * self._size, dtype=torch.float64, device="cpu")
        self.add_state("packed", convert_sums(zeros, self.device), dist_reduce_fx="sum")

    @property
    def packed(self) -> Tensor:
        """The running sums of this process."""
        return self.__dict__["_packed"]  # type: ignore[no-any-return]

    @packed.setter
    def packed(self, sums: Tensor) -> None:
        """Take a copy, so that no two metrics and no two processes add into one storage."""
        with torch.inference_mode(False):  # sums made in validation are written in training
            self.__dict__.update(_packed=sums.clone(), _handed_over=False)

    def _move(self, device: torch.device) -> None:
        self.packed = convert_sums(self.packed, device)
        self.terms = encode_names(self._nan, self._weights.names, device)
        self._defaults.update(packed=torch.zeros_like(self.packed), terms=self.terms)
        self._device = device
        self._weights.move(device)

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> Any:
        """Move the sums with the module; never cast them: bfloat16 sums are useless after 256 steps."""
        computed, self._computed = self._computed, None
        super()._apply(fn, exclude_state=[*exclude_state, *self._defaults])
        self._move(fn(torch.zeros(1, device=self.packed.device)).device)
        if computed is not None:
            self._computed = {name: value.to(self.packed.device) for name, value in computed.items()}
        return self

    def merge_state(self, incoming_state: Any) -> None:
        """Add the sums of another accumulator with the same names, in any order, or a dictionary of its states.

        Raises:
            ValueError: If it has other names.
        """
        if isinstance(incoming_state, NamedSums):
            incoming_state = incoming_state.metric_state
        if isinstance(incoming_state, dict) and "packed" in incoming_state:
            packed = incoming_state["packed"]
            names = self._names_of(incoming_state.get("terms"))
            problem = self._difference(names, packed)
            if problem:
                raise ValueError(f"LossAccumulator: the incoming state {problem}")
            incoming_state = {"packed": self._arranged(packed, names), "terms": self.terms}
        super().merge_state(incoming_state)
        self._computed = None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As torchmetrics has it: empty unless `persistent`; weights and names are there once a weight was set."""
        state = super().state_dict(*args, **kwargs)
        if self._persistent["packed"] or self._weights.changed:
            prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
            state[prefix + "weights"] = torch.tensor(list(self._weights.values()), dtype=torch.float64, device="cpu")
            state[prefix + "terms"] = self.terms.clone()
        return state

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        """Take over sums and weights by name, not the checkpoint's device; loaded sums count as an update."""
        weights, packed, terms = (state_dict.pop(prefix + key, None) for key in ("weights", "packed", "terms"))
        names = self._names_of(terms)  # older checkpoints have no names
        problem = self._difference(names, packed, weights)
        if problem:
            errors.append(f"{prefix}terms: the checkpoint {problem}")
            return
        if weights is not None:
            self._weights.update(zip(names, weights.tolist(), strict=True))
        if packed is not None:
            self.reset()
            if terms is None and self._nan == "skip":
                packed = _with_left_out(packed)
            self.packed = self._arranged(packed, names)
            self._update_count = int(bool(self.packed.any()))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    def _names_of(self, terms: Tensor | None) -> tuple[str, ...]:
        return self._weights.names if terms is None else decode_names(terms)

    def _difference(self, names: tuple[str, ...], packed: Tensor | None, weights: Tensor | None = None) -> str | None:
        """How a state from elsewhere is of other terms than this one's, or None."""
        own = self._weights.names
        size = len(names) if weights is None else len(weights)
        if size != len(own):
            return f"has {size} terms, this has {len(own)}: {list_names(names)} and {list_names(own)}."
        if sorted(names) != sorted(own):
            return f"has the terms {list_names(names)}; this has {list_names(own)}."
        # two float32 rows where there is no float64
        if packed is None or list(packed.shape) in [[rows, 3 * self._size] for rows in (1, 2)]:
            return None
        return f"has sums of shape {list(packed.shape)}, which are not those of the terms {list_names(own)}."

    def _arranged(self, packed: Tensor, names: Sequence[str]) -> Tensor:
        """Sums from elsewhere in this one's order, on its device."""
        return convert_sums(rearrange(packed, names, self._weights.names), self.packed.device)

    def __getstate__(self) -> dict[str, Any]:
        # multiprocessing moves what it pickles into shared memory, so the next step here starts with a copy
        self.__dict__.update(_rows=None, _usual=None, _handed_over=True)
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.packed = self.packed  # not the storage of whoever else unpickles it


def _with_left_out(packed: Tensor) -> Tensor:
    """Sums of nan="skip" as they are now, from a checkpoint that counts what is left out with the NaN samples."""
    left_out, sums, nans = packed.unflatten(1, (3, -1)).unbind(1)
    return torch.cat([left_out + nans, sums, torch.zeros_like(nans)], 1)
