"""Which devices operators accept: the simulation against torch's operator table, FakeTensorMode and a real GPU."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from lightning_devcheck import simulate_cuda
from tests.fidelity._compare import Tally, compare, probes
from tests.fidelity._reasons import REASONS
from tests.fidelity._record import key_of
from tests.fidelity._samples import operators
from tests.fidelity._simulation import simulated
from tests.fidelity._trials import name_of

RECORDED = Path(__file__).with_name("gpu.json")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def tally() -> Tally:
    """A seeded part of the probes, and an example of each reason."""
    chosen = random.Random(0).sample(operators(), 30)
    examples = {reason.example for reason in REASONS}
    chosen += [operator for operator in operators() if name_of(operator) in examples and operator not in chosen]
    return compare(chosen, limit=1)


def test_the_simulation_agrees_with_the_operator_table(tally):
    """Accepted or refused, and where the results are, as the installed torch's own table says."""
    assert tally.counts["table answers"] > 300
    assert tally.unexplained == []
    assert tally.share("table") > 0.9  # the sample holds all that differs; the whole run is `python -m tests.fidelity`


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the sample meets all reasons with torch 2.13")
def test_no_reason_is_out_of_date(tally):
    """Each reason explains a difference that exists."""
    idle = [reason.text for place, reason in enumerate(REASONS) if not tally.explained[place]]
    assert idle == []


def test_the_simulation_does_what_a_gpu_does():
    """Each probe that a real GPU was given comes out as it did there."""
    if not RECORDED.exists():
        pytest.skip("no table from a GPU: write it with `python -m tests.fidelity --record tests/fidelity/gpu.json`")
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["outcomes"]
    wrong = {}
    for operator in random.Random(1).sample(operators(), 60):
        made = [probe for probe in probes(operator, 1) if key_of(*probe) in recorded]
        with simulate_cuda(devices=2):
            ours = [simulated(*probe) for probe in made]
        for probe, found in zip(made, ours, strict=True):
            if [found.verdict, list(found.devices)] != recorded[key_of(*probe)]:
                wrong[key_of(*probe)] = str(found)
    assert wrong == {}
