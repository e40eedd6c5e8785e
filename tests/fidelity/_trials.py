"""Trials: one call of an operator each, its tensor arguments to be put on devices in many ways."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from tests.fidelity._samples import is_tensor, samples

Place = int | None  # the index of a CUDA device, None for the CPU
Placement = tuple[Place, ...]


@dataclass(frozen=True)
class Trial:
    """One call of an operator.

    Attributes:
        operator: Its name in torch's database.
        form: ``plain``, ``in place`` or ``out=``, and which argument was made 0-dim.
        function: What is called.
        leaves: The arguments, flat; tensors are on the CPU.
        spec: How they fit together: positional and keyword arguments.
    """

    operator: str
    form: str
    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    spec: TreeSpec

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensor arguments."""
        return [leaf for leaf in self.leaves if is_tensor(leaf)]

    @property
    def names_device(self) -> bool:
        """Whether the caller says which device the result is for."""
        return any(isinstance(leaf, torch.device) or leaf == "cpu" for leaf in self.leaves if not is_tensor(leaf))

    def call(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Call with these tensors; the tensors that come back, and a given ``out=``."""
        given = iter(tensors)
        leaves = [next(given) if is_tensor(leaf) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        torch.manual_seed(1)
        with torch.no_grad():
            result = self.function(*args, **kwargs)
        return [value for value in tree_leaves((result, kwargs.get("out"))) if is_tensor(value)]


TORCH_CRASHES = {"_chunk_cat"}  # with 0-dim tensors, on the plain CPU


def name_of(operator: Any) -> str:
    """The operator's name with its variant."""
    return f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else str(operator.name)


def trials(operator: Any, limit: int) -> Iterator[Trial]:
    """Calls of an operator that the CPU takes: its samples, in place, with ``out=``, and with 0-dim arguments."""
    with contextlib.suppress(ImportError):  # samples that need SciPy
        for sample in samples(operator, limit):
            leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
            base = Trial(name_of(operator), "plain", operator.op, tuple(leaves), spec)
            for trial in (base, *_forms(operator, base)):
                yield from (t for t in (trial, *_scalars(trial)) if _runs(t))


def _forms(operator: Any, base: Trial) -> Iterator[Trial]:
    if operator.inplace_variant is not None:
        yield replace(base, form="in place", function=operator.inplace_variant)
    results = _results(base) if operator.supports_out and not base.names_device else None
    if results and base.tensors:
        args, kwargs = tree_unflatten(list(base.leaves), base.spec)
        out = results[0] if len(results) == 1 else tuple(results)
        leaves, spec = tree_flatten((args, {**kwargs, "out": out}))
        yield replace(base, form="out=", leaves=tuple(leaves), spec=spec)


def _scalars(trial: Trial) -> Iterator[Trial]:
    """The same call with one argument, then with all of them, made 0-dim."""
    if trial.operator in TORCH_CRASHES:
        return
    positions = [i for i, leaf in enumerate(trial.leaves) if is_tensor(leaf) and leaf.dim() and leaf.numel()]
    groups = [(i,) for i in positions] + ([tuple(positions)] if len(positions) > 1 else [])
    for group in groups[:5]:
        leaves = tuple(_first_element(v) if i in group else v for i, v in enumerate(trial.leaves))
        yield replace(trial, form=f"{trial.form}, 0-dim", leaves=leaves)


def _first_element(tensor: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse layouts
        return tensor.detach().reshape(-1)[0].clone()
    return tensor


def _results(trial: Trial) -> list[torch.Tensor] | None:
    with warnings.catch_warnings(), contextlib.suppress(Exception):  # what the CPU refuses says nothing
        warnings.simplefilter("ignore")
        return trial.call([tensor.detach().clone() for tensor in trial.tensors])
    return None


def _runs(trial: Trial) -> bool:
    return _results(trial) is not None


def placements(count: int) -> Iterator[Placement]:
    """Where tensors may be: every subset on ``cuda:1`` of up to three, single ones of more; two CUDA devices."""
    if count <= 3:
        yield from itertools.product((1, None), repeat=count)
    else:
        yield (1,) * count
        for one, rest in ((1, None), (None, 1)):
            yield from (tuple(one if i == j else rest for j in range(count)) for i in range(min(count, 6)))
    if count > 1:
        yield (0, *(1,) * (count - 1))
        yield (*(1,) * (count - 1), 0)
