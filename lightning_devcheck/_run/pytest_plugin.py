"""The pytest fixture `simulated_cuda`; idle until a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def simulated_cuda(request: pytest.FixtureRequest) -> Iterator[int]:
    """Pretend that this machine has CUDA devices for the time of a test; the value is how many, 2.

    Another number: ``@pytest.mark.parametrize("simulated_cuda", [4], indirect=True)``.
    """
    from lightning_devcheck._simulate import simulate_cuda  # a test run may never need it

    devices = getattr(request, "param", 2)
    with simulate_cuda(devices):
        yield devices
