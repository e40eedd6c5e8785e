"""What became of a call: accepted, with the devices of its results, or refused for its devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANYWHERE = "?"  # the device is not known: code inside torch made the tensor
ABOUT_DEVICES = re.compile(
    r"same device|device type|on (the )?(cpu|cuda)|devices?[ ,]|CPU scalars|CPU tensor|is_cuda|DeviceType|cuda:\d", re.IGNORECASE
)


@dataclass(frozen=True)
class Outcome:
    """What became of a call.

    Attributes:
        verdict: ``accepted``, ``refused`` (for its devices), or ``failed``.
        devices: Where the results are; `ANYWHERE` agrees with every device.
        text: The error's message.
    """

    verdict: str
    devices: tuple[str, ...] = ()
    text: str = ""

    def agrees(self, other: Outcome) -> bool:
        """Whether two outcomes are the same as far as both know."""
        if self.verdict != other.verdict or len(self.devices) != len(other.devices):
            return False
        pairs = zip(self.devices, other.devices, strict=True)
        return all(a == b or ANYWHERE in (a, b) for a, b in pairs)

    def __str__(self) -> str:
        return f"{self.verdict} {', '.join(self.devices)}{self.text[:120]}".strip()


def failure(error: Exception) -> Outcome:
    """The outcome that an exception means."""
    text = f"{type(error).__name__}: {error}"
    return Outcome("refused" if ABOUT_DEVICES.search(text) else "failed", text=text)
