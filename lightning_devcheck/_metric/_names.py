"""Names of the terms, carried with their sums: sums are matched by name wherever they meet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# cells of a collective: processes with a few terms more or less still find each other's names
SMALLEST = 256


def encode_names(policy: str, names: Sequence[str], device: torch.device) -> Tensor:
    """Write a policy and names as bytes, for checkpoints and to tell unlike metrics apart."""
    fields = [policy, *names]
    text = json.dumps(fields)
    cells = list(text.encode())
    return torch.tensor(cells, dtype=torch.uint8, device=device)


def decode_names(terms: Tensor) -> tuple[str, ...]:
    """Read the names that `encode_names` wrote."""
    cells = terms.tolist()
    fields = json.loads(bytes(cells))
    del fields[0]  # the policy
    return tuple(fields)


def list_names(names: Iterable[str]) -> str:
    """Names as a message shows them."""
    shown = map(repr, names)
    return ", ".join(shown)


def same_names(states: Tensor) -> Tensor:
    """Reduce the encoded names of several accumulators, ``[W, N]``, to those of all of them.

    Raises:
        ValueError: If they differ.
    """
    first = states[0]
    for other in states[1:]:
        if torch.equal(other, first):
            continue
        ours = list_names(decode_names(first))
        theirs = list_names(decode_names(other))
        problem = f"LossAccumulator: sums of the terms {ours} and of {theirs} are not of one kind; "
        fix = "give both the same names in one order, and the same nan=."
        raise ValueError(problem + fix)
    return first


def rearrange(sums: Tensor, names: Sequence[str], wanted: Sequence[str]) -> Tensor:
    """Bring sums from one order of the names into another.

    Args:
        sums: ``[1, M]`` or ``[2, M]``, in three blocks of one cell and the terms.
        names: The order they have.
        wanted: The same names in the order they shall have.
    """
    if list(names) == list(wanted):
        return sums
    numbered = enumerate(names, start=1)
    position = {name: index for index, name in numbered}
    order = [position[name] for name in wanted]
    blocks: Tensor = sums.unflatten(1, (3, -1))
    arranged = blocks[:, :, [0, *order]]  # each block begins with a cell of its own
    return arranged.flatten(1)


class SumByName:
    """Sum a state over the processes with one collective; torchmetrics then reduces a list of one.

    The sums travel in alphabetical order, so that names from a set may have another order in each
    process. Beside them go a one and the bytes of a digest of the names: their sums over the
    processes are those of equal names only where each process adds the same bytes.

    Args:
        names: The terms in declared order.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._common = sorted(names)
        text = json.dumps(self._common)
        digest = hashlib.sha256(text.encode())
        self._signature = [1, *digest.digest()]

    def __call__(self, state: Tensor, group: Any = None) -> list[Tensor]:
        """Sum the sums; leave the names themselves, which the sums' own collective compares.

        Raises:
            ValueError: If a process has other names.
        """
        if state.dtype is torch.uint8:
            return [state]
        # bytes: their sums are exact in float32 as well
        signature = state.new_tensor(self._signature)
        rows, width = state.shape
        needed = width + len(signature)
        cells = max(SMALLEST, needed)
        padded = 1 << (cells - 1).bit_length()  # sums of other lengths would abort the process
        total = state.new_zeros(rows, padded)
        sums = total[:, :width]
        found = total[0, -len(signature) :]
        ours = rearrange(state, self._names, self._common)
        sums.copy_(ours)
        found.copy_(signature)
        dist.all_reduce(total, group=group)
        processes = found[0]
        expected = processes * signature
        if not torch.equal(found, expected):
            problem = "LossAccumulator: another process has other terms than this one, which has "
            fix = "give every process the same names (in any order)."
            raise ValueError(f"{problem}{list_names(self._names)}; {fix}")
        summed = rearrange(sums, self._common, self._names)
        return [summed]
