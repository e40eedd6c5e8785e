"""A log of any size, read piece by piece: its last device error, and the lines that led to it."""

from __future__ import annotations

import re
from itertools import islice

from lightning_devcheck._explain.messages import Match, recognize
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import user_lines

BLOCK = 1 << 18  # characters that are searched at once
OVERLAP = 1 << 13  # longer than a message: none is missed that two blocks share

# colours, and links of consoles that have them
_COLOUR = r"\x1b\[[0-9;:?]{0,40}[ -/]{0,2}[@-~]"
_LINK = r"\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)"
_ESCAPES = re.compile(f"{_COLOUR}|{_LINK}")
_BOXES = "│┃║╎"  # frames that rich draws around tracebacks
# mail, markdown and pytest mark each line, those of a wrapped message too
_MARK = re.compile(r"^(?:(?:> ?)+|E {3})", re.MULTILINE)

_HEADER = "Traceback (most recent call last)"
_FRAME = '  File "'
_CHAINED = ("direct cause of the following exception:", "another exception occurred:")
_COMPILED = "from user code:"  # torch.compile tells the user's line behind its message

# what loggers, launchers and services put before a line: the rank, the service, the time
_EXCEPTION = re.compile(r"(?P<prefix>.{0,200}?)[\w.]{0,100}(?:Error|Exception): ")
_TIME = re.compile(r"\d+(?:[-:.,/T]\d+)+")
_ANY_TIME = r"[-\d:.,/T]+"  # the next line has another one


class Log:
    """A log that is read piece by piece; of it a few blocks are kept, whatever its size.

    Attributes:
        match: The last device error so far.
    """

    def __init__(self) -> None:
        self.match: Match | None = None
        self._before = ""
        self._block = ""
        self._led = ("", "")
        self._behind = ""

    def read(self, text: str) -> None:
        """Read on; a piece may be of any length."""
        for start in range(0, len(text), BLOCK):
            self._search(text[start : start + BLOCK])

    def _search(self, piece: str) -> None:
        """Search one more block, together with the end of the one before."""
        before = self._before + self._block[:-OVERLAP]
        self._before = before[-BLOCK:]
        self._block = self._block[-OVERLAP:] + piece
        block = _plain(self._block)
        match = recognize(block)
        if match is None or self._is_less(match):
            self._behind = (self._behind + piece)[:OVERLAP]
            return
        start = _offset(block, match.span[0])
        self.match = match
        self._led = (self._before, block[:start])
        self._behind = block[start : start + OVERLAP]

    def _is_less(self, match: Match) -> bool:
        """Tell whether a process only lost its peers, after another error that is known."""
        return self.match is not None and not match.message.rule

    def lines(self) -> tuple[Origin, ...]:
        """List the user's lines that led to the error, innermost first."""
        compiled = _plain(self._behind).partition(_COMPILED)[2]
        lines = _frames(compiled.partition(_HEADER)[0])
        if lines:
            return lines
        before, block = self._led
        told = _own_lines(_plain(before) + block)
        if self.match is not None and self.match.node:
            lines = _forward(told, self.match.node)
        return lines or _frames(_last_traceback(told))


def _frames(text: str) -> tuple[Origin, ...]:
    parts = text.split(_FRAME)[1:]
    return user_lines(_FRAME + part for part in parts)


def _forward(text: str, node: str) -> tuple[Origin, ...]:
    """List the lines that made a graph node, where anomaly mode told them before the traceback."""
    warning = f"Error detected in {node}."
    near = text[-2 * OVERLAP :]
    if warning not in near:
        return ()
    told = near.rpartition(warning)[2]
    told = told.partition(_HEADER)[0]
    return _frames(told.partition("(Triggered")[0])


def _last_traceback(text: str) -> str:
    """Cut out the last traceback, and those it was raised from; all of a text where none begins."""
    start = text.rfind(_HEADER)
    while start > 0:
        before = text[:start].rstrip()
        if not before.endswith(_CHAINED):
            break
        start = before.rfind(_HEADER)
    told = text[max(start, 0) :]
    distance = len(told) - told.rfind(_FRAME)
    if distance >= OVERLAP:
        return ""  # it is of another error
    return told


def _own_lines(text: str) -> str:
    """Keep the lines that begin as the last does, without that; all where nothing is before it."""
    message = text[text.rfind("\n") + 1 :]
    found = _EXCEPTION.match(message)
    if found is None:
        return text
    prefix = found["prefix"]
    if not prefix.strip():
        return text
    exact = re.escape(prefix)
    untimed = _TIME.split(prefix)
    timed = _ANY_TIME.join(map(re.escape, untimed))
    lines = text.split("\n")
    for pattern in (exact, timed):
        beginning = re.compile(pattern)
        own = filter(beginning.match, lines)
        told = "\n".join(beginning.sub("", line, count=1) for line in own)
        if _FRAME in told:
            return told
    return text


def _plain(text: str) -> str:
    """Take colours and boxes out of a text, and give it Python's line ends."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    for box in _BOXES:
        text = text.replace(box, " ")
    text = text.replace("\0", "")
    text = text.replace("\r\n", "\n")
    text = text.replace("\r", "\n")
    return _MARK.sub("", text)


def _offset(text: str, position: int) -> int:
    """Find where in a text a place is that was found with its words one space apart."""
    flat = " ".join(text.split())
    before = flat[:position]
    number = before.count(" ")
    words = re.finditer(r"\S+", text)
    word = next(islice(words, number, None))
    inside = len(before.rpartition(" ")[2])
    return word.start() + inside
