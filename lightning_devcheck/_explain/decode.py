"""A log as bytes in any encoding: read by its byte order mark, else by where its zero bytes are."""

from __future__ import annotations

import codecs
from typing import BinaryIO

from lightning_devcheck._explain.log import Log

PIECE = 1 << 20  # bytes that are read at once
SAMPLE = 1 << 12  # bytes that tell the encoding
# UTF-32's mark begins with UTF-16's
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MIN_ZEROS = 0.05  # of the bytes; some stray ones are no other encoding


class _Reading:
    """A log in one encoding; bytes that are no text in it are replaced."""

    def __init__(self, encoding: str) -> None:
        self.log = Log()
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, piece: bytes) -> None:
        text = self._decoder.decode(piece)
        self.log.read(text.replace("\0", ""))


def read_log(stream: BinaryIO) -> Log:
    """Read a log to its end; nothing is refused.

    Args:
        stream: The bytes.
    """
    piece = stream.read(PIECE)
    encoding = encoding_of(piece[:SAMPLE])
    readings = [_Reading(encoding)]
    if not encoding.startswith("utf-8"):
        # messages are ASCII: without zero bytes they are found where ``>>`` changed the encoding
        readings.append(_Reading("utf-8"))
    while piece:
        for reading in readings:
            reading.read(piece)
        is_full = len(piece) == PIECE
        piece = stream.read(PIECE) if is_full else b""  # a terminal would ask for more
    for reading in readings:
        if reading.log.match is not None:
            return reading.log
    return readings[0].log


def encoding_of(sample: bytes) -> str:
    """Tell the encoding of a text by its first bytes."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    # an ASCII letter is a byte beside one zero byte in UTF-16, beside three in UTF-32
    bytes_by_place = [sample[place::4] for place in range(4)]
    zeros = [some.count(0) for some in bytes_by_place]
    if sum(zeros) < MIN_ZEROS * len(sample) and _is_utf8(sample):
        return "utf-8"
    first, second, third, fourth = zeros
    if min(second, third, fourth) > 4 * first:
        return "utf-32-le"
    if min(first, second, third) > 4 * fourth:
        return "utf-32-be"
    even = first + third
    odd = second + fourth
    if odd > 4 * even:
        return "utf-16-le"
    if even > 4 * odd:
        return "utf-16-be"
    return "utf-8"


def _is_utf8(sample: bytes) -> bool:
    """Tell whether a sample is UTF-8; its last character may be cut off."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(sample)
    except UnicodeDecodeError:
        return False
    return True
