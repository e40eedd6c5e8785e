"""Places of running code: written down in a microsecond, read where a report needs them."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import CodeType, FrameType

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import UNKNOWN, is_framework, is_host, is_installed, line_of

# A place is a number for a code object and an instruction in it, for at most three running frames
# of the user's, innermost first; empty where none of them is the user's.
Place = tuple[int, ...]
NOWHERE: Place = ()
FRAMES = 3
FRAMEWORK, USER, HOST = range(3)
OWN = str(Path(__file__).parents[1])
# of our own: what runs inside of a backward is not what the line that calls it computes
ENGINE = "run_engine"


class Places:
    """The places that were seen, each once.

    Numbers stand for code objects: hashing one takes ten times as long as the walk over the frames.
    """

    def __init__(self) -> None:
        self._kinds: dict[int, int] = {}
        # kept, so that the number of each stays its own
        self._codes: dict[int, CodeType] = {}
        self._places: dict[Place, Place] = {}
        self._lines: dict[Place, Origin | None] = {}

    def here(self, frame: FrameType | None = None) -> Place:
        """Find the place of the user's that runs, below Lightning's own frames and autograd's.

        Args:
            frame: The innermost frame; None takes the caller's.
        """
        if frame is None:
            frame = sys._getframe(1)
        place: Place = NOWHERE
        kinds = self._kinds
        while frame is not None and len(place) < 2 * FRAMES:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = self._kind_of(code)
            if kind == HOST:
                break
            if kind == USER:
                place += (id(code), frame.f_lasti)
            frame = frame.f_back
        return self._places.setdefault(place, place)

    def line(self, place: Place) -> Origin | None:
        """Find the line of a place: the innermost one that is the user's own, else a library's."""
        if place not in self._lines:
            pairs = zip(place[::2], place[1::2], strict=True)
            lines = [self._line(number, instruction) for number, instruction in pairs]
            # what `exec` runs has no text to show
            lines.sort(key=lambda line: not line.line or is_installed(line.filename))
            self._lines[place] = next(iter(lines), None)
        return self._lines[place]

    def _kind_of(self, code: CodeType) -> int:
        filename = code.co_filename
        kind = USER
        is_own = filename.startswith(OWN)
        if is_host(filename) or (is_own and code.co_name == ENGINE):
            kind = HOST
        elif is_framework(filename):
            kind = FRAMEWORK
        self._codes[id(code)] = code
        self._kinds[id(code)] = kind
        return kind

    def _line(self, number: int, instruction: int) -> Origin:
        code = self._codes[number]
        positions = itertools.islice(code.co_positions(), instruction // 2, None)
        position = next(positions, UNKNOWN)
        lineno = position[0] or code.co_firstlineno
        return line_of(code.co_filename, lineno, _function_of(code), position)


def _function_of(code: CodeType) -> str:
    """Name the function that code is in; that of a comprehension is the one around it."""
    if code.co_name == "<lambda>":
        return ""
    names = [part for part in code.co_qualname.split(".") if not part.startswith("<")]
    return "".join(names[-1:])
