"""`LossAccumulator`: weighted multi-scale losses, on the device, one collective."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torchmetrics import Metric
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from lightning_devcheck._metric._stack import Stacker
from lightning_devcheck._metric._sums import Usual, add_sums, convert_sums, sum_over_processes
from lightning_devcheck._metric._terms import Losses, NanPolicy, check_number, check_options, refuse_device, refuse_nans
from lightning_devcheck._metric._views import TermView
from lightning_devcheck._metric._weights import RESERVED, Weights


class LossAccumulator(Metric):
    """Sum weighted, named losses of a training step, and average each over an epoch and all processes.

    `forward` gives the differentiable weighted total on the losses' own device: it starts from no tensor of its own,
    so it cannot start on the wrong one. The running sums are one detached float64 state on that device (two float32
    where a device has no float64). No value is read by the host, the number of operators does not grow with the number
    of terms, and processes talk once per `compute`. ``self.log_dict(self.losses)`` logs the total and every term.

    Args:
        weights: Name → weight; or a sequence of weights, whose terms are named ``0``, ``1``, …; or a number of terms
            of weight 1. Read and set them at any time: ``metric.weights["half"] = 0.1``.
        nan: What a NaN term does. ``"propagate"``: its mean and the total become NaN. ``"skip"``: it counts for
            neither. ``"raise"``: like propagate, and `compute` raises.
        prefix: Put before the names in ``self.log_dict(self.losses)``, such as ``"val/"``.
        kwargs: What every `torchmetrics.Metric` takes.

    Raises:
        TypeError: If ``weights`` or one of its names or weights is of the wrong type.
        ValueError: If there is no term, a weight is not finite, a term is called ``loss`` (the total's name), ``nan``
            is none of the three, or ``dist_sync_on_step`` is asked for.

    Example:
        >>> import torch
        >>> from lightning_devcheck import LossAccumulator
        >>> losses = LossAccumulator({"full": 1 / 2, "half": 1 / 4})
        >>> losses({"full": torch.tensor(1.0), "half": torch.tensor(2.0)}, n=3)
        tensor(1.)
        >>> losses({"full": torch.tensor(3.0), "half": torch.tensor(2.0)}, n=1)
        tensor(2.)
        >>> {name: value.item() for name, value in losses.compute().items()}
        {'loss': 1.25, 'full': 1.5, 'half': 2.0}
    """

    is_differentiable = True
    higher_is_better = False
    full_state_update = False
    plot_lower_bound = 0.0

    packed: Tensor

    def __init__(
        self,
        weights: Mapping[str, float] | Sequence[float] | int,
        *,
        nan: NanPolicy = "propagate",
        prefix: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dist_sync_fn": sum_over_processes, **kwargs})
        check_options(nan, self.dist_sync_on_step)
        self._weights = Weights(weights)
        self._nan = nan
        self._stacker = Stacker(self._weights.names, skip_nan=nan == "skip")
        self._size = 1 + len(self._weights)
        self._last: tuple[Tensor, tuple[str, ...] | None, Tensor | None] | None = None
        self._rows: tuple[Tensor, int, int, Tensor] | None = None
        self._usual: Usual | None = None
        # blocks of 1 + K: [- | samples without the term], [samples | sums], [- | NaN samples]; one addition does it all
        zeros = torch.zeros(1, 3 * self._size, dtype=torch.float64, device="cpu")
        self.add_state("packed", convert_sums(zeros, self.device), dist_reduce_fx="sum")
        self._views = torch.nn.ModuleList(TermView(self, name, prefix) for name in (RESERVED, *self._weights))

    @property
    def weights(self) -> Weights:
        """The weights by name, as Python floats; set one with ``weights[name] = value``. They are on the checkpoint."""
        return self._weights

    def forward(self, losses: Losses, n: float = 1) -> Tensor:
        """Add the terms of one step and return their weighted total.

        Args:
            losses: 0-dim floating-point tensors: a mapping by name (absent names count for nothing), any iterable in
                the order of the weights or of pairs (name, loss), or one stacked ``[K]`` tensor. All on one device.
            n: The number of samples that the terms are means over.

        Returns:
            The total, 0-dim, with its graph, on the losses' device, in the losses' dtype. Processes do not talk.

        Raises:
            DeviceMismatchError: If a term is on another device than the first, or the sums are elsewhere since an
                earlier step. After this and all other errors the state is as it was.
            TypeError: If a term is not a floating-point tensor.
            ValueError: If a term is not 0-dim, a name comes twice, or the number of terms or ``n`` is wrong.
            KeyError: If a name is not one of the terms.
        """
        compiling = is_compiling()
        total = None if compiling else self._repeat(losses, n)
        if total is not None:
            return total
        terms = self._add(losses, n, compiling)
        weights = self._weights.like(terms, compiling)
        self._usual = None if compiling else self._usual_step(terms, weights)
        return torch.dot(terms, weights)

    def update(self, losses: Losses, n: float = 1) -> None:
        """Add the terms of one step; takes what `forward` takes."""
        self._add(losses, n, is_compiling())

    def compute(self) -> dict[str, Tensor]:
        """Average over all steps and processes: one collective.

        Returns:
            ``{"loss": total, name: mean, …}``: 0-dim, float64 (float32 where the device has no float64), on the state's
            device; means weighted by ``n``, the total by the present weights. A term that nobody saw is NaN, and left
            out of the total.

        Raises:
            ValueError: Under ``nan="raise"``, if a term was NaN; names the terms and how often.
        """
        absent, sums, self._nan_counts = self.packed.sum(0).view(3, -1)
        counts = sums[0] - (self._nan_counts if self._nan == "skip" else absent)
        means = sums / counts
        seen = counts > 0
        seen[0] = False  # the number of samples itself
        weighted = torch.where(seen, means * self._weights.like(means), 0.0)
        total = torch.where(seen.any(), weighted.sum(), torch.nan)
        return dict(zip((RESERVED, *self._weights), (total, *means[1:].unbind()), strict=True))

    def items(self) -> Iterator[tuple[str, Metric]]:
        """One metric for each value of `compute`, for ``self.log_dict(self.losses)``; together they sync once."""
        return iter([(view.label, view) for view in self._views if isinstance(view, TermView)])

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the terms' means and the total, or given values of `compute`, or a list of them (needs matplotlib)."""
        return self._plot(val, ax)

    def last_value(self, name: str) -> Tensor | None:
        """A term of the last step, or its total under ``loss``, detached; None where it was absent."""
        if self._last is None:
            return None
        added, present, nans = self._last
        terms = (added if nans is None else added[: -self._size])[-self._size :]
        if name == RESERVED:
            return torch.dot(terms, self._weights.like(terms))
        if present is not None and name not in present:
            return None
        terms = terms if nans is None else terms.masked_fill(nans, torch.nan)
        return terms[1 + self._weights.names.index(name)]

    def _add(self, losses: Losses, n: float, compiling: bool) -> Tensor:
        """Add to the state; give ``[1, *terms]`` with its graph, NaNs as zeros under ``nan="skip"``."""
        own = self.__dict__  # torch.nn.Module's own __setattr__ costs more than an operator
        if own["_is_synced"]:
            raise TorchMetricsUserError("LossAccumulator holds the sums of all processes; call unsync() first.")
        n = n if type(n) is int and n >= 0 else check_number(n)
        stacked, present = own["_stacker"].stack(losses, compiling)
        packed, size, nan = own["packed"], own["_size"], own["_nan"]
        if packed.device != stacked.device or (not compiling and packed.is_inference()):
            self._follow(stacked.device)
        flagged = present is not None and nan != "skip"  # the flags of absent terms come first
        terms: Tensor = stacked[size:] if flagged else stacked
        if nan == "propagate":
            nans, added = None, stacked.detach()
        else:
            nans = terms.isnan()
            if nan == "skip":
                terms = stacked = terms.masked_fill(nans, 0.0)
            added = torch.cat([stacked.detach(), nans])
        blocks = 1 + flagged + (nans is not None)
        add_sums(self._rows_at(0 if flagged else size, blocks * size, compiling), added, n)
        if compiling:  # torch 2.6 traces no write to __dict__; a count that is read means compiling in every step
            self._computed, self._last, self._update_count = None, (added, present, nans), 1
        else:
            own["_computed"], own["_last"] = None, (added, present, nans)
            own["_update_count"] += 1
        return terms

    def _repeat(self, losses: Any, n: Any) -> Tensor | None:
        """Make a step as `forward` does if it is like the one before in everything that matters, else do nothing."""
        # no function of ours is called: each of them costs as much as half an operator
        own, kind = self.__dict__, type(losses)
        if own["_usual"] is None or type(n) is not int or n < 0 or own["_is_synced"]:
            return None
        one, row, weights, packed, names = own["_usual"]
        if (kind is not list and kind is not dict) or len(losses) != len(names) or packed is not own["packed"]:
            return None
        try:
            terms = losses if kind is list else [losses[name] for name in names]
            stacked = torch.stack([one, *terms])
            usual = stacked.dim() == 1 and all(map(Tensor.is_floating_point, terms))
        except (TypeError, RuntimeError, AttributeError, KeyError):
            return None  # what is wrong is said where it is looked at closely
        usual = usual and stacked.dtype is one.dtype and stacked.device == one.device
        if not usual or weights is not own["_weights"].latest:
            return None
        added = stacked.detach()
        row.add_(added, alpha=n)
        own["_computed"], own["_last"] = None, (added, None, None)
        own["_update_count"] += 1
        return torch.dot(stacked, weights)

    def _usual_step(self, terms: Tensor, weights: Tensor) -> Usual | None:
        """What `_repeat` needs after this step: every term there, no NaN policy, sums in float64."""
        one, rows, last = self._stacker.one, self._rows, self._last
        if one is None or rows is None or last is None or last[1] is not None or last[2] is not None:
            return None
        kept = one.dtype is terms.dtype and len(rows[0]) == 1 and not rows[0].is_inference()
        return (one, rows[3], weights, rows[0], self._weights.names) if kept else None

    def _rows_at(self, start: int, length: int, compiling: bool) -> Tensor:
        """A part of the sums; the view is kept, since making it costs as much as the addition."""
        packed = self.packed
        if compiling:
            return packed.narrow(1, start, length)
        rows = self._rows
        if rows is None or rows[0] is not packed or rows[1] != start or rows[2] != length:
            with torch.inference_mode(False):
                rows = self._rows = (packed, start, length, packed.narrow(1, start, length))
        return rows[3]

    def _follow(self, device: torch.device) -> None:
        """The sums go to the losses' device at the first update after a reset; later the two must agree."""
        if self.packed.device != device:
            if self._update_count:
                refuse_device(self.packed, device)
            self._move(device)
        elif not torch.is_inference_mode_enabled():
            self.packed = self.packed.clone()  # made in validation, written in training

    def _move(self, device: torch.device) -> None:
        self.packed = convert_sums(self.packed, device)
        self._defaults["packed"] = torch.zeros_like(self.packed)
        self._device = device
        self._weights.move(device)

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> Any:
        """Move the sums with the module; never cast them: bfloat16 sums are useless after 256 steps."""
        computed, self._computed, self._last = self._computed, None, None
        super()._apply(fn, exclude_state=[*exclude_state, "packed"])
        self._move(fn(torch.zeros(1, device=self.packed.device)).device)
        if computed is not None:
            self._computed = {name: value.to(self.packed.device) for name, value in computed.items()}
        return self

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """Leave out torchmetrics' wrapper: `_add` counts, and detaches what it keeps."""
        return update

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Sync and cache as torchmetrics does; give copies, and refuse NaNs when the local sums are back in place."""
        wrapped = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def compute_synced() -> dict[str, Tensor]:
            values = wrapped()
            if self._nan == "raise":
                refuse_nans(self._weights.names, self._nan_counts[1:].tolist())
            return {name: value.clone() for name, value in values.items()}

        return compute_synced

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As torchmetrics has it: empty unless `persistent`; the weights are there once one was set."""
        state = super().state_dict(*args, **kwargs)
        if self._persistent["packed"] or self._weights.changed:
            prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
            state[prefix + "weights"] = torch.tensor(list(self._weights.values()), dtype=torch.float64, device="cpu")
        return state

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        """Take over sums and weights, not the checkpoint's device; loaded sums count as an update."""
        weights, packed = state_dict.pop(prefix + "weights", None), state_dict.pop(prefix + "packed", None)
        if weights is not None and len(weights) != len(self._weights):
            errors.append(f"{prefix}weights: the checkpoint has {len(weights)} terms, this has {len(self._weights)}.")
            return
        if weights is not None:
            self._weights.update(zip(self._weights, weights.tolist(), strict=True))
        if packed is not None:
            self.reset()
            self.packed = convert_sums(packed.clone(), self.packed.device)
            self._update_count = int(bool(self.packed.any()))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    def reset(self) -> None:
        """Forget all steps; the weights stay as they were set."""
        super().reset()
        self._last = self._rows = self._usual = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_rows": None, "_usual": None}
