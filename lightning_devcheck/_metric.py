"""`LossAccumulator`: weighted multi-scale losses, on the device, one collective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric

from lightning_devcheck._errors import DeviceMismatchError
from lightning_devcheck._records import Finding
from lightning_devcheck._report import Report
from lightning_devcheck._rules import make_finding
from lightning_devcheck._weights import RESERVED, Weights, unknown

NanPolicy = Literal["propagate", "skip", "raise"]
POLICIES = ("propagate", "skip", "raise")
SUMS, COUNTS, NANS = range(3)  # the rows of the state


class LossAccumulator(Metric):
    """Sum weighted, named losses of a training step, and average each over an epoch and all processes.

    `forward` gives the differentiable weighted total on the losses' own device: it starts from no tensor of its own, so
    it cannot start on the wrong one. The running sums are one detached float64 state on that device: no value is read
    by the host, the number of operators does not grow with the number of terms, and processes talk once per `compute`.

    Args:
        weights: Name → weight; or a sequence of weights, whose terms are named ``0``, ``1``, …; or a number of terms
            of weight 1. Read and set them at any time: ``metric.weights["half"] = 0.1``.
        nan: What a NaN term does. ``"propagate"``: its mean and the total become NaN. ``"skip"``: it counts for
            neither. ``"raise"``: like propagate, and `compute` raises.
        kwargs: What every `torchmetrics.Metric` takes.

    Raises:
        TypeError: If ``weights`` or one of its names or weights is of the wrong type.
        ValueError: If there is no term, a weight is not finite, a term is called ``loss`` (the total's name), or
            ``nan`` is none of the three.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dist_sync_fn": sum_over_processes, **kwargs})
        if nan not in POLICIES:
            choices = ", ".join(map(repr, POLICIES))
            raise ValueError(f"LossAccumulator(nan={nan!r}) is not a known policy; use one of {choices}.")
        self._weights = Weights(weights)
        self._nan = nan
        self._cached: dict[Any, Tensor] = {}
        self.add_state("packed", torch.zeros(3, len(self._weights), dtype=torch.float64), dist_reduce_fx="sum")
        names = [RESERVED, *self._weights]
        self._views = torch.nn.ModuleList(TermView(self, name) for name in names)

    @property
    def weights(self) -> Weights:
        """The weights by name, as Python floats; set one with ``weights[name] = value``."""
        return self._weights

    def forward(self, losses: Mapping[str, Tensor] | Iterable[Tensor] | Tensor, n: float = 1) -> Tensor:
        """Add the terms of one step and return their weighted total.

        Args:
            losses: 0-dim floating-point tensors: a mapping by name (absent names count for nothing), any iterable in
                the order of the weights, or one stacked ``[K]`` tensor. All on one device.
            n: The number of samples that the terms are means over.

        Returns:
            The total, 0-dim, with its graph, on the losses' device, in the losses' dtype. Processes do not talk.

        Raises:
            DeviceMismatchError: If a term is on another device than the first; the state is as it was.
            TypeError: If a term is not a floating-point tensor.
            ValueError: If a term is not 0-dim, or their number or ``n`` is wrong.
            KeyError: If a name is not one of the terms.
        """
        stacked, present = self._stack(losses)
        self._add(stacked.detach(), present, _number(n))
        if self._nan == "skip":
            stacked = torch.where(stacked.isnan(), 0.0, stacked)
        return torch.dot(stacked, self._weight_tensor(stacked))

    def update(self, losses: Mapping[str, Tensor] | Iterable[Tensor] | Tensor, n: float = 1) -> None:
        """Add the terms of one step; takes what `forward` takes."""
        stacked, present = self._stack(losses)
        self._add(stacked.detach(), present, _number(n))

    def compute(self) -> dict[str, Tensor]:
        """Average over all steps and processes: one collective.

        Returns:
            ``{"loss": total, name: mean, …}``: 0-dim, float64, on the state's device; means weighted by ``n``, the
            total by the weights. A term that nobody saw is NaN, and left out of the total.

        Raises:
            ValueError: Under ``nan="raise"``, if a term was NaN; names the terms and how often.
        """
        if self._nan == "raise":
            self._refuse_nans()
        means = self.packed[SUMS] / self.packed[COUNTS]
        seen = self.packed[COUNTS] > 0
        weights = torch.tensor(list(self._weights.values()), dtype=means.dtype, device=means.device)
        total = torch.where(seen, means * weights, 0.0).sum()
        total = torch.where(seen.any(), total, torch.nan)
        return {RESERVED: total, **dict(zip(self._weights, means.unbind(), strict=True))}

    def items(self) -> Iterator[tuple[str, Metric]]:
        """One metric per value of `compute`, for ``self.log_dict(self.losses)``; together they sync once."""
        return iter([(view.name, view) for view in self._views])

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the terms' means and the total, or values of `compute` or a list of them (needs matplotlib)."""
        return self._plot(val, ax)

    def _stack(self, losses: Any) -> tuple[Tensor, tuple[str, ...] | None]:
        """The terms in declared order, ``[K]``, and the names that are present (None for all)."""
        if isinstance(losses, Tensor):
            _check_terms({"losses": losses}, dims=1)
            self._check_length(len(losses), losses.shape)
            return losses, None
        if isinstance(losses, Mapping):
            named = self._named(losses)
        else:
            terms = list(losses)
            self._check_length(len(terms), f"{len(terms)} terms")
            named = dict(zip(self._weights, terms, strict=True))
        _check_terms(named)
        first = next(iter(named.values()))
        if len(named) == len(self._weights):
            return torch.stack([named[name] for name in self._weights]), None
        zero = self._constant(("zero", first.device, first.dtype), lambda: torch.zeros((), **_like(first)))
        return torch.stack([named.get(name, zero) for name in self._weights]), tuple(named)

    def _named(self, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for name in losses:
            if name not in self._weights:
                raise KeyError(f"LossAccumulator: {unknown(name, self._weights)}")
        if not losses:
            raise ValueError("LossAccumulator: the mapping of losses is empty; give at least one term.")
        return dict(losses)

    def _check_length(self, length: int, what: object) -> None:
        if length != len(self._weights):
            raise ValueError(
                f"LossAccumulator: got {what}, but there are {len(self._weights)} weights: {', '.join(self._weights)}."
            )

    def _add(self, terms: Tensor, present: tuple[str, ...] | None, n: float) -> None:
        """Add detached terms ``[K]`` to the state; reads nothing."""
        self._follow(terms)
        vars(self)["_computed"], vars(self)["_update_count"] = (
            None,
            1,
        )  # written, never read: compiled code keeps no guard
        if self._nan == "propagate" and present is None:
            self.packed[SUMS].add_(terms, alpha=n)
            self.packed[COUNTS].add_(n)
            return
        missing = terms.isnan()
        here = torch.ones_like(terms) if present is None else self._mask(present, terms)
        if self._nan == "skip":
            here, terms = here * ~missing, torch.where(missing, 0.0, terms)
        self.packed[NANS].add_(missing)
        self.packed[SUMS].add_(terms * here, alpha=n)
        self.packed[COUNTS].add_(here, alpha=n)

    def _follow(self, terms: Tensor) -> None:
        """The state goes to the losses' device at the first update after a reset; later the two must agree."""
        if self.packed.device == terms.device:
            return
        if self._update_count:
            raise DeviceMismatchError(Report((_elsewhere("metric-device", "LossAccumulator", self.packed, terms),)))
        self.packed = self.packed.to(terms.device)
        self._device = terms.device

    def _mask(self, present: tuple[str, ...], like: Tensor) -> Tensor:
        def make() -> Tensor:
            return torch.tensor([float(name in present) for name in self._weights], **_like(like))

        return self._constant((present, like.device, like.dtype), make)

    def _weight_tensor(self, like: Tensor) -> Tensor:
        key = ("weights", self._weights.version, like.device, like.dtype)
        return self._constant(key, lambda: torch.tensor(list(self._weights.values()), **_like(like)))

    def _constant(self, key: Any, make: Any) -> Tensor:
        """A small constant on the device, made once."""
        if key not in self._cached:
            if len(self._cached) > 64:
                self._cached.clear()
            self._cached[key] = make()
        return self._cached[key]

    def _refuse_nans(self) -> None:
        counts = dict(zip(self._weights, self.packed[NANS].tolist(), strict=True))
        found = [f"{name!r} {int(count)} times" for name, count in counts.items() if count]
        if found:
            raise ValueError(f"LossAccumulator(nan='raise'): NaN in {', '.join(found)}.")

    def reset(self) -> None:
        """Forget all steps; weights stay."""
        super().reset()
        self.packed = self.packed.to(torch.float64)

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> Any:
        """Move the state with the module; never cast it: bfloat16 sums are useless after 256 steps."""
        packed, default = self.packed, self._defaults["packed"]
        this = super()._apply(fn, exclude_state=[*exclude_state, "packed"])
        device = fn(torch.zeros(1, device=packed.device)).device
        this.packed, this._defaults["packed"] = packed.to(device), default.to(device)
        self._cached.clear()
        return this

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """As torchmetrics has it: empty unless `persistent`; weights are there once one was changed."""
        state = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        if self._persistent["packed"] or self._weights.changed:
            state[prefix + "weights"] = torch.tensor(list(self._weights.values()), dtype=torch.float64)
        return state

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Load without taking over the checkpoint's device; a loaded state counts as updated."""
        weights = state_dict.pop(prefix + "weights", None)
        if weights is not None:
            self._weights.update(zip(self._weights, weights.tolist(), strict=True))
        device = self.packed.device
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.packed = self.packed.to(device)
        self._update_count = int(bool(self.packed[COUNTS].any()))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cached": {}}


class TermView(Metric):
    """One value of an accumulator, as a metric that Lightning can log."""

    full_state_update = False

    def __init__(self, owner: LossAccumulator, name: str) -> None:
        super().__init__(sync_on_compute=False, compute_with_cache=False)
        self.name = name
        self._owner = (owner,)  # in a tuple: the owner is not a part of its part
        self._update_count = 1

    def update(self) -> None:
        """The owner is updated."""

    def compute(self) -> Tensor:
        """The owner's value; the first of its views to ask makes it sync."""
        value: Tensor = self._owner[0].compute()[self.name]
        return value

    def reset(self) -> None:
        """Reset the owner."""
        self._owner[0].reset()


def sum_over_processes(tensor: Tensor, group: Any = None) -> list[Tensor]:
    """Sum a state over the processes with one collective; torchmetrics then reduces a list of one."""
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return [total]


def _check_terms(terms: Mapping[str, Any], dims: int = 0) -> None:
    first: Tensor | None = None
    for name, term in terms.items():
        if not isinstance(term, Tensor):
            raise TypeError(f"LossAccumulator: {name!r} is {term!r}, a {type(term).__name__}; give a 0-dim tensor.")
        if not term.is_floating_point():
            raise TypeError(f"LossAccumulator: {name!r} is of {term.dtype}; give a real floating-point tensor.")
        if term.dim() != dims:
            wanted = "a 0-dim tensor, such as its .mean()" if dims == 0 else "a stacked [K] tensor"
            raise ValueError(f"LossAccumulator: {name!r} has shape {list(term.shape)}; give {wanted}.")
        first = term if first is None else first
        if term.device != first.device:
            raise DeviceMismatchError(Report((_elsewhere("mixed-devices", name, term, first),)))


def _elsewhere(rule: str, name: str, tensor: Tensor, other: Tensor) -> Finding:
    return make_finding(
        rule,
        name=name,
        device=tensor.device,
        expected=other.device,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )


def _number(n: Any) -> float:
    if isinstance(n, bool) or not isinstance(n, (int, float)) or not 0 <= n < float("inf"):
        raise ValueError(f"LossAccumulator(n={n!r}): use the number of samples, a finite number of at least 0.")
    return n


def _like(tensor: Tensor) -> dict[str, Any]:
    return {"dtype": tensor.dtype, "device": tensor.device}
