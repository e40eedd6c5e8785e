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
from lightning_devcheck._metric._state import NamedSums
from lightning_devcheck._metric._sums import Usual, add_sums
from lightning_devcheck._metric._terms import Losses, NanPolicy, check_number, check_options, refuse_device, refuse_nans
from lightning_devcheck._metric._views import TermView
from lightning_devcheck._metric._weights import RESERVED, Weights, weigh

MOST = 2**53  # a larger whole number of samples is taken as a float


class LossAccumulator(NamedSums):
    """Sum weighted, named losses of a training step, and average each over an epoch and all processes.

    `forward` gives the differentiable weighted total on the losses' own device: it starts from no tensor of its own,
    so it cannot start on the wrong one. The running sums are one detached float64 state on that device (two float32
    where a device has no float64). No value is read by the host, the number of operators does not grow with the number
    of terms, and processes talk once per `compute`. ``self.log_dict(self.losses)`` logs the total and every term.

    Args:
        weights: Name → weight; or a sequence of weights, whose terms are named ``0``, ``1``, …; or a number of terms
            of weight 1. Read and set them at any time: ``metric.weights["half"] = 0.1``.
        nan: What a NaN term does. ``"propagate"``: its mean and the total become NaN. ``"skip"``: it counts for
            neither (but what made it still gets a NaN gradient). ``"raise"``: like propagate, and `compute` raises.
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

    def __init__(
        self,
        weights: Mapping[str, float] | Sequence[float] | int,
        *,
        nan: NanPolicy = "propagate",
        prefix: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(Weights(weights), nan, kwargs)
        check_options(nan, self.dist_sync_on_step)
        self._stacker = Stacker(self._weights, skip_nan=nan == "skip")
        # what was added, where the terms are in it, who was there, and which were NaN and left out
        self._last: tuple[Tensor, int, tuple[str, ...] | None, Tensor | None] | None = None
        self._rows: tuple[Tensor, int, int, Tensor] | None = None
        self._usual: Usual | None = None
        self._views = torch.nn.ModuleList(TermView(self, name, prefix) for name in (RESERVED, *self._weights))

    @property
    def weights(self) -> Weights:
        """The weights by name, as Python floats; set one with ``weights[name] = value``. They are on the checkpoint."""
        return self._weights

    @torch.jit.unused  # a module that only holds one can be scripted
    def forward(self, losses: Losses, n: float = 1) -> Tensor:
        """Add the terms of one step and return their weighted total.

        Args:
            losses: 0-dim floating-point tensors: a mapping by name (absent names count for nothing), any iterable in
                the order of the weights or of pairs (name, loss), or one stacked ``[K]`` tensor. All on one device.
            n: The number of samples that the terms are means over; with 0 they count for nothing.

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
        total: Tensor | None = None if compiling else self._repeat(losses, n)
        if total is not None:
            return total
        terms = self._add(losses, n, compiling)
        if compiling:
            self._usual = None
            return weigh(terms, self._weights.tensor.to(terms.device))
        weights = self._weights.like(terms)
        dot = self._weights.weigher(terms, weights)
        self._usual = self._usual_step(terms, dot)
        return dot(terms, weights)

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
            ValueError: If another process has other names; under ``nan="raise"``, if a value is NaN; names the terms.
        """
        left_out, sums, nans = self.packed.sum(0).view(3, -1)
        counts = sums[0] - left_out
        means = sums / counts
        seen = counts > 0
        seen[0] = False  # the number of samples itself
        self._counted = (nans, seen)
        total = self._total(means)
        return dict(zip((RESERVED, *self._weights), (total, *means[1:].unbind()), strict=True))

    def _total(self, means: Tensor) -> Tensor:
        """Weigh ``[1 + K]`` means, the first of which is no term, and note which values are NaN."""
        self._weighed_by = self._weights.tensor
        weights = self._weighed_by.to(means.device)
        nans, seen = (counted.to(means.device) for counted in self._counted)
        weighted = torch.where(seen & (weights != 0), means * weights, 0.0)
        total = torch.where(seen.any(), weighted.sum(), torch.nan)
        if self._nan == "raise":
            undefined = means.isnan() & seen
            undefined[0] = total.isnan() & seen.any() & ~undefined.any()
            self._faults = torch.stack([nans, undefined])
        return total

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
        added, start, present, nans = self._last
        terms = added[start : start + self._size]
        if name == RESERVED:
            return weigh(terms, self._weights.like(terms))
        if present is not None and name not in present:
            return None
        terms = terms if nans is None else terms.masked_fill(nans, torch.nan)
        return terms[1 + self._weights.names.index(name)]

    def _add(self, losses: Losses, n: float, compiling: bool) -> Tensor:
        """Add to the state; give ``[1, *terms]`` with its graph, NaNs as zeros under ``nan="skip"``."""
        own = self.__dict__  # torch.nn.Module's own __setattr__ costs more than an operator
        if own["_is_synced"]:
            raise TorchMetricsUserError("LossAccumulator holds the sums of all processes; call unsync() first.")
        n = n if type(n) is int and 0 <= n < MOST else check_number(n)
        stacked, present = own["_stacker"].stack(losses, compiling)
        size, nan = own["_size"], own["_nan"]
        if own["_packed"].device != stacked.device:
            self._follow(stacked.device)
        flagged = present is not None and nan != "skip"  # the flags of absent terms come first
        terms: Tensor = stacked[size:] if flagged else stacked
        start, nans = size if flagged else 0, None
        if nan == "propagate":
            added = stacked.detach()
        elif nan == "skip":
            nans, start = terms.isnan(), size
            terms = terms.masked_fill(nans, 0.0)
            added = torch.cat([nans, terms.detach()])
        else:
            added = torch.cat([stacked.detach(), terms.isnan()])
        # the terms' sums are the second block
        add_sums(self._rows_at(size - start, len(added), compiling), added, n, compiling)
        last = (added, start, present, nans)
        if compiling:  # torch 2.6 traces no write to __dict__; a count that is read means compiling in every step
            self._computed, self._last, self._update_count = None, last, 1
        else:
            own["_computed"], own["_last"] = None, last
            own["_update_count"] += 1
        return terms

    def _repeat(self, losses: Any, n: Any) -> Tensor | None:
        """Make a step as `forward` does if it is like the one before in everything that matters, else do nothing."""
        # no function of ours is called: each of them costs as much as half an operator
        own, kind = self.__dict__, type(losses)
        if own["_usual"] is None or type(n) is not int or not 0 < n < MOST or own["_is_synced"]:
            return None
        one, row, weights, dot, packed, names = own["_usual"]
        if (kind is not list and kind is not dict) or len(losses) != len(names) or packed is not own["_packed"]:
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
        own["_computed"], own["_last"] = None, (added, 0, None, None)
        own["_update_count"] += 1
        total: Tensor = dot(stacked, weights)
        return total

    def _usual_step(self, terms: Tensor, dot: Callable[[Tensor, Tensor], Tensor]) -> Usual | None:
        """What `_repeat` needs after this step: every term there, no NaN policy, sums in float64."""
        one, rows, last, weights = self._stacker.one, self._rows, self._last, self._weights.latest
        if one is None or rows is None or last is None or weights is None:
            return None
        present = last[2]
        if self._nan != "propagate" or present is not None:
            return None
        packed, _, _, row = rows
        if one.dtype is not terms.dtype or len(packed) != 1:
            return None
        return one, row, weights, dot, packed, self._weights.names

    def _rows_at(self, start: int, length: int, compiling: bool) -> Tensor:
        """A part of the sums; the view is kept, since making it costs as much as the addition."""
        packed: Tensor = self.__dict__["_packed"]
        if compiling:
            return packed.narrow(1, start, length)
        rows = self._rows
        if rows is None or rows[0] is not packed or rows[1] != start or rows[2] != length:
            if self._handed_over:
                self.packed = packed
                packed = self.__dict__["_packed"]
            with torch.inference_mode(False):
                rows = self._rows = (packed, start, length, packed.narrow(1, start, length))
        return rows[3]

    def _follow(self, device: torch.device) -> None:
        """The sums go to the losses' device at the first update after a reset; later the two must agree."""
        if self._update_count:
            refuse_device(self.packed, device)
        self._move(device)

    def _move(self, device: torch.device) -> None:
        super()._move(device)
        self._last = None

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """Leave out torchmetrics' wrapper: `_add` counts, and detaches what it keeps."""
        return update

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Sync and cache as torchmetrics does; give copies, and refuse NaNs when the local sums are back in place."""
        wrapped = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def compute_synced() -> dict[str, Tensor]:
            values: dict[str, Tensor] = wrapped()
            if self._weighed_by is not self._weights.tensor:  # set since the means were cached; no process waits for it
                means = torch.stack(list(values.values()))
                values[RESERVED] = self._total(means)
            if self._nan == "raise":
                refuse_nans(values, *self._faults.tolist())
            return {name: value.clone() for name, value in values.items()}

        return compute_synced

    def reset(self) -> None:
        """Forget all steps; the weights stay as they were set."""
        super().reset()
        self._last = self._rows = self._usual = None
