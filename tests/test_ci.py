"""What CI runs is what the README says."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST_COMMAND = "pip install -c constraints.txt '.[test]' && pytest"


@pytest.mark.parametrize("name", ["README.md", ".ci/run"])
def test_the_test_command_is_the_same(name):
    """README and CI hold the same test command, word for word."""
    assert TEST_COMMAND in (ROOT / name).read_text(encoding="utf-8").splitlines()
