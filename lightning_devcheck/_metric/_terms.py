"""What a caller hands in as losses: brought into the declared order, refused with the reason where it is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from lightning_devcheck._metric._weights import as_float, unknown_name
from lightning_devcheck._report.errors import DeviceMismatchError
from lightning_devcheck._report.records import Finding
from lightning_devcheck._report.report import Report
from lightning_devcheck._report.rules import make_finding

NanPolicy = Literal["propagate", "skip", "raise"]
POLICIES = ("propagate", "skip", "raise")
TOO_NARROW = "torch does not compute in it: cast the loss to float16 or wider"
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
    if isinstance(losses, (set, frozenset)):
        raise TypeError(
            f"LossAccumulator: the losses are a {type(losses).__name__}, which has no order; "
            "give a mapping name → loss, or a list in the order of the weights."
        )
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
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"LossAccumulator: {pair!r} among pairs; give pairs (name, loss) only.")
        name, term = pair
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
    if losses.element_size() < 2:
        raise TypeError(f"LossAccumulator: the losses are of {losses.dtype}; {TOO_NARROW}.")
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
    if term.element_size() < 2:
        raise TypeError(f"LossAccumulator: {name!r} is of {term.dtype}; {TOO_NARROW}.")
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


def check_number(n: Any) -> float:
    """The number of samples, as a float."""
    if isinstance(n, Real) and not isinstance(n, bool):
        number = as_float(n)
        if 0 <= number < float("inf"):
            return number
    raise ValueError(f"LossAccumulator: n={n!r}; give the number of samples as a finite Python number of at least 0.")


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


def refuse_nans(names: Iterable[str], counts: Iterable[float], undefined: Iterable[bool]) -> None:
    """Raise where values are NaN; name them, and how often a term was NaN.

    Args:
        names: The total's name and the terms'.
        counts: The samples whose term was NaN.
        undefined: Whether the value is NaN.
    """
    found = []
    for name, count, is_nan in zip(names, counts, undefined, strict=True):
        if count:
            found.append(f"{name!r} ({count:g} samples)")
        elif is_nan:
            found.append(f"{name!r} (inf and -inf)")
    if found:
        raise ValueError(
            f"LossAccumulator(nan='raise'): NaN in {', '.join(found)}. Look at what the term divides by or takes "
            "the logarithm of; nan='skip' leaves such terms out."
        )
