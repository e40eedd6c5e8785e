"""What became of a call: accepted, with the devices of its results, or refused for its devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

ABOUT_DEVICES = re.compile(
    r"same device|device ?type|on (the )?(cpu|cuda)|devices?[ ,]|CPU scalars|CPU tensor|is_cuda|cuda:\d"
    r"|type \(torch\.cuda\.\w+\)",  # a convolution's words before torch 2.7
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Outcome:
    """What became of a call.

    Attributes:
        verdict: ``accepted``, ``refused`` (for its devices), or ``failed``.
        devices: Where the results are.
        text: The error's message.
    """

    verdict: str
    devices: tuple[str, ...] = ()
    text: str = ""

    def agrees(self, other: Outcome) -> bool:
        """Whether two outcomes are the same."""
        return (self.verdict, self.devices) == (other.verdict, other.devices)

    def __str__(self) -> str:
        return f"{self.verdict} {', '.join(self.devices)}{self.text[:120]}".strip()


def failure(error: Exception) -> Outcome:
    """The outcome that an exception means."""
    text = f"{type(error).__name__}: {error}"
    return Outcome("refused" if ABOUT_DEVICES.search(text) else "failed", text=text)
