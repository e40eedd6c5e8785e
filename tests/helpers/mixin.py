"""A mixin in a file of its own."""

from __future__ import annotations

import torch


class Centred:
    """Keeps a centre in a plain attribute."""

    def build_centre(self, dim):
        """Make the centre."""
        self.centre = torch.zeros(dim)

    def centred(self, x):
        """Take the centre away."""
        return x - self.centre
