"""The last device error of a text: its kind, and the devices, the node or the argument it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lightning_devcheck._explain.catalogue import CATALOGUE, GRAD_SCALER, OTHER_RANK, Message

__all__ = ["CATALOGUE", "GRAD_SCALER", "OTHER_RANK", "Match", "Message", "recognize"]

# the wrapper that checks devices is named for its operator: wrapper_CUDA__index_select
_OPERATOR = re.compile(r"in method wrapper_(?:CUDA_)?_?(?P<name>\w{1,80})")
MAX_BEHIND = 100  # characters behind a message where its operator may stand
_DEVICES = ("expected", "found", "a", "own", "b", "input", "weight")  # groups that are devices or types


@dataclass(frozen=True, slots=True)
class Match:
    """A message that was recognised.

    Attributes:
        message: Which one.
        devices: The devices it names.
        expected: The device it says is right, or nothing.
        argument: The operator's argument that it names, or nothing.
        own: The device of that argument, or nothing.
        node: The graph node that it names, or nothing.
        index: Which operand of the node it names; -1 for none.
        hook: The hook that it names, or nothing.
        operator: torch's operator that it names, or nothing.
        span: Where it is in the text, whose words stand one space apart.
    """

    message: Message
    devices: tuple[str, ...] = ()
    expected: str = ""
    argument: str = ""
    own: str = ""
    node: str = ""
    index: int = -1
    hook: str | None = None
    operator: str = ""
    span: tuple[int, int] = (0, 0)

    @property
    def found(self) -> str:
        """The device that the message names and that is not the right one, or nothing."""
        return next((device for device in self.devices if device != self.expected), "")


def recognize(text: str) -> Match | None:
    """Find the last device error in a text; None for texts that are not about devices.

    A process that lost its peers counts where there is no other error: theirs are told before it.
    """
    flat = " ".join(text.split())  # consoles and boxes break long lines
    found = list(_matches(flat))
    errors = [match for match in found if match.message.rule]
    last = max(errors or found, key=lambda match: match.span[1], default=None)
    if last is None:
        return None
    # one message may have the words of two kinds: the kind that is first in the catalogue says more
    return next(match for match in errors or found if match.span[1] > last.span[0])


def _matches(flat: str) -> Iterator[Match]:
    """List every message in a text, kind by kind as in the catalogue."""
    for message in (*CATALOGUE, GRAD_SCALER):
        if not any(clue in flat for clue in message.clues):
            continue
        for found in message.pattern.finditer(flat):
            match = _match(message, found)
            if match is not None:
                yield match


def _match(message: Message, found: re.Match[str]) -> Match | None:
    """Read what a message names; None where it is about dtypes or layouts on one device."""
    groups = {key: value for key, value in found.groupdict().items() if value}
    devices = {key: _device_in(key, groups[key]) for key in _DEVICES if key in groups}
    for one, other in (("expected", "found"), ("input", "weight")):
        if one in devices and devices[one] == devices.get(other):
            return None
    operator = _OPERATOR.search(found.string, found.start(), found.end() + MAX_BEHIND)
    return Match(
        message,
        devices=tuple(dict.fromkeys(devices.values())),
        expected=devices.get("expected", ""),
        argument=groups.get("argument", ""),
        own=devices.get("own") or devices.get("weight", ""),
        node=_node_in(groups.get("node", "")),
        index=int(groups.get("index", -1)),
        hook=groups.get("hook"),
        operator=operator["name"] if operator else "",
        span=found.span(),
    )


def _device_in(key: str, text: str) -> str:
    """Tell the device of a type such as ``torch.cuda.FloatTensor``, or of a number."""
    if text.lstrip("-").isdigit():
        return "cpu" if text.startswith("-") else f"cuda:{text}"
    is_written_as_type = text.startswith("torch.") or text.endswith("Type")
    if key not in ("input", "weight") and not is_written_as_type:
        return text.lower().replace("gpu", "cuda")
    return "cuda" if "cuda" in text.lower() else "cpu"


def _node_in(text: str) -> str:
    """Spell a node without C++: ``CopySlices`` of ``struct torch::autograd::CopySlices``."""
    own = re.search(r"CppNode<(?:\w+::)*(\w+)", text)
    if own:
        return own[1]
    name = text.rpartition(" ")[2]
    return name.rpartition("::")[2]
