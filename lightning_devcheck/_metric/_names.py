"""Names of the terms, carried with their sums: sums are matched by name wherever two sets of them meet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

SMALLEST = 256  # cells of a collective: processes with a few terms more or less still find each other's names


def encode_names(policy: str, names: Sequence[str], device: torch.device) -> Tensor:
    """Write a policy and names as bytes: what goes on checkpoints, and tells unlike metrics of a collection apart."""
    text = json.dumps([policy, *names])
    return torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)


def decode_names(terms: Tensor) -> tuple[str, ...]:
    """Read the names that `encode_names` wrote."""
    text = bytes(terms.tolist()).decode()
    return tuple(json.loads(text)[1:])


def list_names(names: Iterable[str]) -> str:
    """Names as a message shows them."""
    return ", ".join(map(repr, names))


def same_names(states: Tensor) -> Tensor:
    """Reduce the encoded names of several accumulators, ``[W, N]``, to those of all of them.

    Raises:
        ValueError: If they differ.
    """
    for other in states[1:]:
        if not torch.equal(other, states[0]):
            ours, theirs = (list_names(decode_names(state)) for state in (states[0], other))
            raise ValueError(
                f"LossAccumulator: sums of the terms {ours} and of {theirs} are not of one kind; "
                "give both the same names in one order, and the same nan=."
            )
    return states[0]


def rearrange(sums: Tensor, names: Sequence[str], wanted: Sequence[str]) -> Tensor:
    """Bring sums from one order of the names into another.

    Args:
        sums: ``[1, M]`` or ``[2, M]``, in three blocks of one cell and the terms.
        names: The order they have.
        wanted: The same names in the order they shall have.
    """
    if tuple(names) == tuple(wanted):
        return sums
    position = {name: 1 + index for index, name in enumerate(names)}
    order = [0, *(position[name] for name in wanted)]
    blocks: Tensor = sums.unflatten(1, (3, -1))
    return blocks[:, :, order].flatten(1)


class SumByName:
    """Sum a state over the processes with one collective; torchmetrics then reduces a list of one.

    The sums travel in alphabetical order, so that names from a set may have another order in each process. Beside them
    go a one and the bytes of a digest of the names: their sums over the processes are those of equal names only where
    each process adds the same bytes.

    Args:
        names: The terms in declared order.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._common = sorted(names)
        digest = hashlib.sha256(json.dumps(self._common).encode()).digest()
        self._signature = [1, *digest]

    def __call__(self, state: Tensor, group: Any = None) -> list[Tensor]:
        """Sum the sums; leave the names themselves, which the sums' own collective compares.

        Raises:
            ValueError: If a process has other names.
        """
        if state.dtype is torch.uint8:
            return [state]
        width = state.shape[1]
        cells = max(SMALLEST, width + len(self._signature))
        padded = 1 << (cells - 1).bit_length()  # sums of other lengths would abort the process
        total = state.new_zeros(len(state), padded)
        signature = state.new_tensor(self._signature)  # bytes: their sums are exact in float32 as well
        total[:, :width] = rearrange(state, self._names, self._common)
        total[0, -len(signature) :] = signature
        dist.all_reduce(total, group=group)
        found = total[0, -len(signature) :]
        if not torch.equal(found, found[0] * signature):
            raise ValueError(
                "LossAccumulator: another process has other terms than this one, which has "
                f"{list_names(self._names)}; give every process the same names (in any order)."
            )
        return [rearrange(total[:, :width], self._common, self._names)]
