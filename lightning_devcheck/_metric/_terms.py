"""What a caller hands in as losses: brought into the declared order, refused with the reason where it is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from lightning_devcheck._errors import DeviceMismatchError
from lightning_devcheck._metric._weights import unknown_name
from lightning_devcheck._records import Finding
from lightning_devcheck._report import Report
from lightning_devcheck._rules import make_finding

NanPolicy = Literal["propagate", "skip", "raise"]
POLICIES = ("propagate", "skip", "raise")
Losses = Mapping[str, Tensor] | Iterable[Tensor] | Tensor


def order_terms(losses: Any, names: tuple[str, ...]) -> tuple[list[Any], tuple[str, ...] | None]:
    """The terms in declared order, and the names that are there where some are absent (None where all are).

    Raises:
        TypeError: If ``losses`` cannot be iterated.
        KeyError: If a name is not one of the terms.
        ValueError: If a name comes twice, the mapping is empty or the length is wrong.
    """
    if isinstance(losses, Mapping):
        return _from_mapping(losses, names)
    if not isinstance(losses, Iterable):
        raise TypeError(
            f"LossAccumulator: the losses are {losses!r}, a {type(losses).__name__}; "
            "give a mapping name → loss, an iterable of losses or a stacked [K] tensor."
        )
    terms = list(losses)
    if terms and isinstance(terms[0], tuple):
        return _from_mapping(_from_pairs(terms), names)
    check_length(len(terms), names)
    return terms, None


def _from_mapping(losses: Mapping[str, Any], names: tuple[str, ...]) -> tuple[list[Any], tuple[str, ...] | None]:
    if len(losses) == len(names):
        try:
            return [losses[name] for name in names], None
        except KeyError:
            pass  # named below
    for name in losses:
        if name not in names:
            raise KeyError(f"LossAccumulator: {unknown_name(name, names)}")
    if not losses:
        raise ValueError(f"LossAccumulator: there are no losses; give at least one of {', '.join(map(repr, names))}.")
    present = tuple(name for name in names if name in losses)
    return [losses[name] for name in present], None if len(present) == len(names) else present


def _from_pairs(pairs: list[Any]) -> dict[str, Any]:
    losses: dict[str, Any] = {}
    for name, term in pairs:
        if name in losses:
            raise ValueError(f"LossAccumulator: {name!r} is given twice; add the two, or declare two terms.")
        losses[name] = term
    return losses


def check_length(length: int, names: Sequence[str]) -> None:
    """Refuse a number of losses that is not the number of weights."""
    if length != len(names):
        known = ", ".join(map(repr, names))
        raise ValueError(f"LossAccumulator: {length} losses for {len(names)} weights ({known}); give one for each.")


def check_stacked(losses: Tensor, names: Sequence[str]) -> None:
    """Refuse a tensor that is not the stacked losses ``[K]``."""
    if not losses.is_floating_point():
        raise TypeError(f"LossAccumulator: the losses are of {losses.dtype}; give a real floating-point tensor.")
    if losses.dim() != 1:
        raise ValueError(
            f"LossAccumulator: the losses have shape {list(losses.shape)}; give a stacked [{len(names)}] tensor."
        )
    check_length(len(losses), names)


def refuse_terms(terms: Iterable[Any], names: Iterable[str]) -> None:
    """Raise for the first term that is not a 0-dim floating-point tensor on the device of the first; else return."""
    first: Tensor | None = None
    for name, term in zip(names, terms, strict=True):
        _refuse_kind(name, term)
        first = term if first is None else first
        if term.device != first.device:
            raise DeviceMismatchError(Report((_mixed(name, term, first),)))


def _refuse_kind(name: str, term: Any) -> None:
    if not isinstance(term, Tensor):
        raise TypeError(
            f"LossAccumulator: {name!r} is {term!r}, a {type(term).__name__}; give a 0-dim floating-point tensor."
        )
    if not term.is_floating_point():
        raise TypeError(f"LossAccumulator: {name!r} is of {term.dtype}; give a real floating-point tensor.")
    if term.dim():
        raise ValueError(
            f"LossAccumulator: {name!r} has shape {list(term.shape)}; give a 0-dim tensor, such as its .mean()."
        )


def _mixed(name: str, tensor: Tensor, other: Tensor) -> Finding:
    return make_finding("mixed-devices", name=name, device=tensor.device, expected=other.device, **_shape_of(tensor))


def refuse_device(state: Tensor, device: torch.device) -> NoReturn:
    """Raise because the running sums are elsewhere than the losses."""
    finding = make_finding(
        "metric-device",
        name="LossAccumulator",
        device=state.device,
        expected=device,
        fix="assign the accumulator to the module itself; after a deliberate move of the losses, call its reset()",
        **_shape_of(state),
    )
    raise DeviceMismatchError(Report((finding,)))


def _shape_of(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tuple(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def check_number(n: Any) -> Any:
    """The number of samples, as it was given."""
    if isinstance(n, bool) or not isinstance(n, Real) or not 0 <= float(n) < float("inf"):
        raise ValueError(
            f"LossAccumulator: n={n!r}; give the number of samples as a finite Python number of at least 0."
        )
    return n


def check_options(nan: str, sync_on_step: bool) -> None:
    """Refuse an unknown policy for NaNs, and a sync in every step."""
    if nan not in POLICIES:
        choices = ", ".join(map(repr, POLICIES))
        raise ValueError(f"LossAccumulator(nan={nan!r}) is not a known policy; use one of {choices}.")
    if sync_on_step:
        raise ValueError(
            "LossAccumulator(dist_sync_on_step=True): forward gives this process's own total, which backward needs; "
            "leave it out and log with on_epoch=True."
        )


def refuse_nans(names: Iterable[str], counts: Iterable[float]) -> None:
    """Raise where terms were NaN; name them and how often."""
    found = [f"{name!r} ({count:g} samples)" for name, count in zip(names, counts, strict=True) if count]
    if found:
        raise ValueError(
            f"LossAccumulator(nan='raise'): NaN in {', '.join(found)}. Look at what the term divides by or takes "
            "the logarithm of; nan='skip' leaves such terms out."
        )
