"""The state of an accumulator: sums and names, and every way by which they come and go."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_devcheck._metric._names import (
    SumByName,
    decode_names,
    encode_names,
    list_names,
    rearrange,
    same_names,
)
from lightning_devcheck._metric._sums import convert_sums
from lightning_devcheck._metric._weights import Weights


class NamedSums(Metric):
    """Running sums of named terms, matched by name in checkpoints, across processes and in merges.

    Args:
        weights: The terms, with their weights.
        nan: What a NaN term does; accumulators that differ in it share no compute group.
        kwargs: What every `torchmetrics.Metric` takes.
    """

    __jit_unused_properties__: ClassVar[list[str]] = [
        *Metric.__jit_unused_properties__,
        "packed",
        "weights",
    ]

    def __init__(self, weights: Weights, nan: str, kwargs: dict[str, Any]) -> None:
        kwargs = dict(kwargs)
        if kwargs.get("dist_sync_fn") is None:
            kwargs["dist_sync_fn"] = SumByName(weights.names)
        super().__init__(**kwargs)
        self._weights = weights
        self._nan = nan
        self._size = 1 + len(weights)
        self.terms: Tensor  # TorchScript cannot read the text of an annotation of the class
        terms = encode_names(nan, weights.names, self.device)
        # first: other names are refused before a sum is made
        self.add_state("terms", terms, dist_reduce_fx=same_names)
        # blocks of 1 + K: [- | samples left out], [samples | sums], [- | NaN samples];
        # one addition does it all
        width = 3 * self._size
        zeros = torch.zeros(1, width, dtype=torch.float64, device="cpu")
        packed = convert_sums(zeros, self.device)
        self.add_state("packed", packed, dist_reduce_fx="sum")

    @property
    def packed(self) -> Tensor:
        """The running sums of this process."""
        return self.__dict__["_packed"]  # type: ignore[no-any-return]

    @packed.setter
    def packed(self, sums: Tensor) -> None:
        """Take a copy, so that no two metrics and no two processes add into one storage."""
        with torch.inference_mode(False):  # sums made in validation are written in training
            copied = sums.clone()
        own = self.__dict__
        own["_packed"] = copied
        own["_handed_over"] = False

    def _move(self, device: torch.device) -> None:
        self.packed = convert_sums(self.packed, device)
        self.terms = encode_names(self._nan, self._weights.names, device)
        zeros = torch.zeros_like(self.packed)
        self._defaults.update(packed=zeros, terms=self.terms)
        self._device = device
        self._weights.move(device)

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> Any:
        """Move the sums with the module; never cast them: bfloat16 is useless after 256 steps."""
        computed = self._computed
        self._computed = None
        excluded = [*exclude_state, *self._defaults]
        super()._apply(fn, exclude_state=excluded)
        probe = torch.zeros(1, device=self.packed.device)
        moved = fn(probe)
        self._move(moved.device)
        if computed is not None:
            device = self.packed.device
            self._computed = {name: value.to(device) for name, value in computed.items()}
        return self

    def sync(self, dist_sync_fn: Any = None, *args: Any, **kwargs: Any) -> None:
        """Sync as `compute` does: torchmetrics gathers where it is asked without a function."""
        if dist_sync_fn is None:
            dist_sync_fn = self.dist_sync_fn
        super().sync(dist_sync_fn, *args, **kwargs)

    def merge_state(self, incoming_state: Any) -> None:
        """Add the sums of another accumulator with the same names, or a dictionary of its states.

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
            arranged = self._arranged(packed, names)
            incoming_state = {"packed": arranged, "terms": self.terms}
        super().merge_state(incoming_state)
        self._computed = None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As torchmetrics has it: empty unless `persistent` or a weight was set."""
        state = super().state_dict(*args, **kwargs)
        if not self._persistent["packed"] and not self._weights.changed:
            return state
        prefix = kwargs.get("prefix", "")
        if len(args) > 1:
            prefix = args[1]
        weights = list(self._weights.values())
        state[prefix + "weights"] = torch.tensor(weights, dtype=torch.float64, device="cpu")
        state[prefix + "terms"] = self.terms.clone()
        return state

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: Any,
        unexpected: Any,
        errors: Any,
    ) -> None:
        """Take over sums and weights by name; loaded sums count as an update."""
        weights = state_dict.pop(prefix + "weights", None)
        packed = state_dict.pop(prefix + "packed", None)
        terms = state_dict.pop(prefix + "terms", None)
        names = self._names_of(terms)  # older checkpoints have no names
        problem = self._difference(names, packed, weights)
        if problem:
            errors.append(f"{prefix}terms: the checkpoint {problem}")
            return
        if weights is not None:
            values = weights.tolist()
            self._weights.update(zip(names, values, strict=True))
        if packed is not None:
            self.reset()
            # a model made without memory takes the checkpoint's tensors, as `assign` does
            if self.packed.is_meta:
                self._move(packed.device)
            if terms is None and self._nan == "skip":
                packed = _with_left_out(packed)
            self.packed = self._arranged(packed, names)
            is_updated = bool(self.packed.any())
            self._update_count = int(is_updated)
        rest = (metadata, strict, missing, unexpected, errors)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _names_of(self, terms: Tensor | None) -> tuple[str, ...]:
        if terms is None:
            return self._weights.names
        return decode_names(terms)

    def _difference(
        self,
        names: tuple[str, ...],
        packed: Tensor | None,
        weights: Tensor | None = None,
    ) -> str | None:
        """How a state from elsewhere is of other terms than this one's, or None."""
        own = self._weights.names
        size = len(names)
        if weights is not None:
            size = len(weights)
        ours, theirs = list_names(own), list_names(names)
        if size != len(own):
            return f"has {size} terms, this has {len(own)}: {theirs} and {ours}."
        if sorted(names) != sorted(own):
            return f"has the terms {theirs}; this has {ours}."
        if packed is None:
            return None
        shape = list(packed.shape)
        width = 3 * self._size
        if shape in ([1, width], [2, width]):  # two float32 rows where there is no float64
            return None
        return f"has sums of shape {shape}, which are not those of the terms {ours}."

    def _arranged(self, packed: Tensor, names: Sequence[str]) -> Tensor:
        """Sums from elsewhere in this one's order, on its device."""
        arranged = rearrange(packed, names, self._weights.names)
        return convert_sums(arranged, self.packed.device)

    def __copy__(self) -> NamedSums:
        """Copy the weights and the views too: those of a shallow copy would be the original's."""
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        # multiprocessing moves what it pickles into shared memory: the next step starts with a copy
        self.__dict__.update(_rows=None, _usual=None, _handed_over=True)
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.packed = self.packed  # not the storage of whoever else unpickles it


def _with_left_out(packed: Tensor) -> Tensor:
    """Sums of nan="skip" as they are now, from a checkpoint without names."""
    blocks = packed.unflatten(1, (3, -1))
    left_out, sums, nans = blocks.unbind(1)
    left_out = left_out + nans
    nothing = torch.zeros_like(nans)
    return torch.cat([left_out, sums, nothing], 1)
