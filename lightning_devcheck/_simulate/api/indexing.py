"""Indices that hold sequences: torch makes a tensor of each on the indexed tensor's device, ``meta``, without data."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType, NoneType
from typing import Any

import torch

from lightning_devcheck._simulate.api.making import plain_data
from lightning_devcheck._simulate.arguments import Args, Kwargs
from lightning_devcheck._simulate.compat import Operator, TorchDispatchMode, scalar_read
from lightning_devcheck._simulate.ops.plan import PLANS
from lightning_devcheck._simulate.tensor.simulated import SimulatedTensor

NUMBERS = frozenset((int, bool))
# what torch makes no tensor of
PARSED = NUMBERS | {slice, EllipsisType, NoneType, torch.Tensor, torch.nn.Parameter, SimulatedTensor}
INDEXED = torch.empty((1,) * 64, device="cpu")  # as many dimensions as torch has
POSITIONS = torch.zeros(2, dtype=torch.long, device="cpu")
SELECT = torch.ops.aten.index.Tensor


def is_parsed(index: object) -> bool:
    """Whether an index holds no sequence, so that torch needs no help with it."""
    if type(index) is not tuple:
        return type(index) in PARSED
    return PARSED.issuperset(map(type, index))


def parsed(index: Any) -> Any:
    """The same index with CPU tensors for its sequences, as torch's own parser makes them for a CPU tensor."""
    if _is_tuple(index):
        return tuple(map(_parsed_part, index))
    return _parsed_part(index)


def _is_tuple(index: Any) -> bool:
    """Whether torch takes an index for a tuple: by its version also lists of slices, of tensors or of lists."""
    if isinstance(index, (tuple, torch.Tensor)) or _is_number(index):
        return isinstance(index, tuple)
    if isinstance(index, Sequence) and not isinstance(index, str):
        if NUMBERS.issuperset(map(type, index)):
            return False
        index = list(map(_alike, index))
    by_itself = _Parser().read(index)
    try:
        as_part = _Parser().read((index,))
    except (TypeError, ValueError, RuntimeError):  # torch makes no tensor of it
        return True
    return [tensor.shape for tensor in by_itself] != [tensor.shape for tensor in as_part]


def _parsed_part(part: object) -> Any:
    """A tensor for a sequence, anything else as it is."""
    if type(part) in PARSED or isinstance(part, torch.Tensor) or _is_number(part):
        return part
    made = _Parser().read((plain_data(part),))
    return made[0] if made else part


def _alike(part: object) -> Any:
    """What torch parses alike, without a look at positions and device tensors."""
    if isinstance(part, torch.Tensor):
        return POSITIONS
    return 0 if _is_number(part) else plain_data(part)


def _is_number(part: object) -> bool:
    """Whether a part stands for one position: also what has ``__index__``, as NumPy's numbers do."""
    return hasattr(part, "__index__") and (not hasattr(part, "__len__") or getattr(part, "ndim", 1) == 0)


class _Parser(TorchDispatchMode):
    """Runs torch's parser on an index, without what the parser calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._found: list[Any] = []

    def read(self, index: Any) -> list[torch.Tensor]:
        """The tensors that torch indexes with.

        Raises:
            IndexError, RuntimeError, TypeError, ValueError: What torch says of an index that it does not take.
        """
        with self:
            torch.Tensor.__getitem__(INDEXED, index)
        return [tensor for tensor in self._found if tensor is not None]

    def __torch_dispatch__(self, func: Operator, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        """Note the index tensors; the shape of the indexed tensor and the values of scalars do not matter."""
        if func is scalar_read:
            return 0
        if func is SELECT:
            self._found = args[1]
            return args[0]
        if PLANS[func].returns == "view":
            return args[0].detach()
        return func(*args, **(kwargs or {}))
