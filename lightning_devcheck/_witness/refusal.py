"""What a simulation refuses, as CUDA would, and may go on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from lightning_devcheck._witness.places import Place


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """A refusal, for the moment in which it is looked at: it holds tensors, and is not kept.

    Attributes:
        error: What CUDA would raise.
        strays: The tensors that are not where they should be; none where it is no tensor.
        decided: Where the device of each was decided, None for one that was not seen; of what is no
            tensor, where it was made.
        expected: Where they should be; None where the message alone tells.
        here: Where the user's code is.
        others: The tensors that they met and that are where they should be.
        in_backward: Whether autograd was on its way back.
    """

    error: Exception
    strays: Sequence[torch.Tensor]
    decided: Sequence[Place | None]
    expected: torch.device | None
    here: Place
    others: Sequence[torch.Tensor] = ()
    in_backward: bool = False


# on an error that was raised: the line that decided the device of its culprit
DECIDED = "_decided_line"
Note = Callable[[Refusal], None]
