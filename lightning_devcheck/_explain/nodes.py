"""A gradient error in words, by the name of its graph node and by the index of an operand.

NOTE [Names of graph nodes]
torch numbers the nodes of its own operators (``AddBackward0``). Their gradients are where the
result is: where one is refused, an operand was elsewhere. A node without a number is a Function of
the user's (``ClipBackward``), but that torch 1.9 and older left the number out where an operator
had one node only (``StackBackward``, ``ThAddBackward``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lightning_devcheck._compat import is_node_of_torch
from lightning_devcheck._explain.messages import Match
from lightning_devcheck._report.rules import RULES

INVALID_GRADIENT = "invalid-gradient"  # the id of the message

SUM_FIX = (
    "start from the first term, or loss = torch.zeros((), device=self.device),\n"
    "or let LossAccumulator add the terms up: total = self.losses(terms)"
)
_FROM_CPU = "Usually a running sum starts on the CPU: loss = torch.zeros(1), then loss += term."
_FROM_DEVICE = "Usually a running sum starts on a device that is written out in the code."
_LIKE_GRAD = "torch.ones_like(grad), grad.new_zeros(shape), .to(grad.device)"
BACKWARD_FIX = f"return the gradient where grad_output is: {_LIKE_GRAD}"
_REFUSAL = "torch moves a 0-dim one, and refuses any other."
GIVEN_WHY = f"Where a tensor is, its gradient has to be too: {_REFUSAL}"
GIVEN_FIX = "loss.backward(gradient.to(loss.device)); the same for grad_outputs of autograd.grad"
_GIVEN = "the gradient that was handed in"
_ROOT = "GraphRoot"  # stands for the gradients that were handed in

_NUMBERED = re.compile(r"Backward\w*?\d+(?:_copy)?$")
_ENDING = re.compile(r"Backward(?:Autograd(?:NestedTensor|CUDA))?\d*(?:_copy)?$")
# torch 0.4 to 1.1 named nodes for the library behind the operator
_TH = re.compile(r"^(?:Sth|Thnn|Th)(?=[A-Z])")
_LIBRARY = re.compile(r"^(?:Sth|Thnn|Th|Cudnn|Miopen|Mkldnn)[A-Z]")
# where words begin: Mse|Loss, Max|Pool2D|With|Indices
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z\d])(?=[A-Z][a-z])")
# Functions that torch writes in Python or C++, which have no number in any version
_UNNUMBERED = frozenset(("CopySlices", "CopyBackwards", "Broadcast", "Gather", "Scatter"))
_UNNUMBERED |= {"ReduceAddCoalesced", "SyncBatchNorm", "DifferentiableGraph", "CompiledFunction"}
_UNNUMBERED |= {"BackwardHookFunction", "CheckpointFunction"}

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}
_SIGNS |= {"mm": "@", "bmm": "@", "mv": "@", "dot": "@"}
_LISTS = ("cat", "stack")
_NORMS = "native_layer_norm native_batch_norm cudnn_batch_norm"
# operators by the operands that have a gradient, in the order of the indices
_OPERANDS = {
    ("input", "target"): "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy "
    "binary_cross_entropy_with_logits",
    ("input", "other"): "where maximum minimum atan2",
    ("input", "weight", "bias"): f"convolution cudnn_convolution {_NORMS}",
    ("input", "values"): "index_put index_put_impl masked_scatter copy_slices",
    ("input", "value"): "masked_fill index_fill",
    ("input", "source"): "index_add index_copy scatter scatter_add",
    ("input", "mat1", "mat2"): "addmm addbmm baddbmm",
    ("input", "tensor1", "tensor2"): "addcmul addcdiv",
    ("input", "end", "weight"): "lerp",
}


@dataclass(frozen=True, slots=True)
class Blame:
    """What a gradient error says by itself.

    Attributes:
        name: What to call the culprit.
        what: The headline.
        device: Where the culprit is.
        expected: Where it should be.
        why: The cause.
        fix: What to write.
    """

    name: str
    what: str
    device: str
    expected: str
    why: str
    fix: str


def is_torchs(node: str, lines: str = "") -> bool:
    """Tell whether a node is of torch's own operators.

    Args:
        node: Its name.
        lines: The user's lines: ``Add.apply(`` tells a Function of the user's with torch's name.
    """
    if _NUMBERED.search(node):
        return True
    name = node.removesuffix("Backward")
    is_known = name in _UNNUMBERED or bool(_LIBRARY.match(name)) or is_node_of_torch(node)
    return is_known and not re.search(rf"\b{re.escape(name)}\.apply\(", lines)


def operator_of(node: str) -> str:
    """Spell a node's operator: ``mse_loss`` of ``MseLossBackward0``, the user's ``Clip``."""
    if not is_torchs(node):
        return node.removesuffix("Backward")
    name = _TH.sub("", _ENDING.sub("", node))
    return _WORD.sub("_", name).lower()


def is_handed_in(match: Match) -> bool:
    """Tell whether the gradient is one that the caller of ``backward`` gave."""
    return match.hook is None and match.node in ("", _ROOT)


def blame_node(match: Match, lines: str = "") -> Blame:
    """Find who is to blame for an invalid gradient, where only its message is known.

    Args:
        match: The message.
        lines: The user's lines that led to it.
    """
    found, expected = match.found, match.expected
    if is_handed_in(match):
        what = f"{_GIVEN} is on {found}, what it is the gradient of is on {expected}"
        return Blame(_GIVEN, what, found, expected, GIVEN_WHY, GIVEN_FIX)
    if is_torchs(match.node, lines):
        return _blame_operand(match)
    name = f"{match.node.removesuffix('Backward')}.backward"
    what = f"{name} returned a gradient on {found}, the gradient belongs on {expected}"
    return Blame(name, what, found, expected, RULES["gradient-device"].why, BACKWARD_FIX)


def _blame_operand(match: Match) -> Blame:
    """Name the operand that is elsewhere: the gradient of each is where the result is."""
    operator = operator_of(match.node)
    spelled = _SIGNS.get(operator, operator)
    indexed, other = _operands(operator, spelled, match.index)
    culprit, partner = other, indexed
    device, expected = match.found, match.expected
    if expected == "cpu":  # the operand of the index is the one that stayed behind
        culprit, partner = partner, culprit
        device, expected = expected, device
    whose = f"{match.node} is torch's own backward of {spelled}, not one of yours"
    why = [
        f"{whose}: tensors of two devices met there.",
        f"Index {match.index} is {indexed}.",
        _FROM_CPU if device == "cpu" else _FROM_DEVICE,
    ]
    if not _NUMBERED.search(match.node):
        name = match.node.removesuffix("Backward")
        why.append(f"(Where a Function of your own is called {name}, look at its backward.)")
    what = f"{culprit} is on {device}, {partner} is on {expected}"
    return Blame(culprit, what, device, expected, "\n".join(why), SUM_FIX)


def _operands(operator: str, spelled: str, index: int) -> tuple[str, str]:
    """Name the operand that an index means, and what it met."""
    if operator in _LISTS:
        each = f"of the list for {spelled}"
        return f"tensor {index} {each}", f"another tensor {each}"
    if operator in _SIGNS and index < 2:
        sides = (f"what stands left of {spelled}", f"what stands right of {spelled}")
        return sides[index], sides[1 - index]
    rows = (names for names, operators in _OPERANDS.items() if operator in operators.split())
    names = next(rows, ())
    if index >= len(names):
        return f"operand {index} of {spelled}", f"what {spelled} or its result met"
    others = [name for name in names if name != names[index]]
    return f"the {names[index]} of {spelled}", f"the {' or '.join(others)} of {spelled}"
