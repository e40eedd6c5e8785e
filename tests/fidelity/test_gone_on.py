"""A run that goes on after device mistakes gives the CPU's losses and weights, byte for byte."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.fidelity.gone_on import (
    PROGRAMS,
    SEVERAL,
    Trace,
    bytes_of,
    cases,
    compared,
    on_the_cpu,
    program_rows,
    ranks_rows,
    rows,
)

# of older versions one case cannot run on the CPU either
needs_corpus = pytest.mark.skipif(not cases() or torch.__version__ < "2.7", reason="the corpus is not at hand")
# cases that a run does not go on from, each with the reason
NOT_GONE_ON: dict[str, str] = {}


@functools.cache
def with_mistakes():
    """The corpus' cases as they stand."""
    return rows()


def names_of(found, outcome):
    """The rows with an outcome."""
    return {row.name for row in found if row.outcome == outcome}


@needs_corpus
def test_corrected_cases_have_the_cpus_figures():
    """Without a mistake every case trains as on the CPU, so a difference comes from going on."""
    found = rows("Fixed")
    assert [row for row in found if row.outcome != "equal"] == []


@needs_corpus
def test_no_case_has_other_figures():
    """Whatever a run goes on from, its losses and weights are the CPU's."""
    assert [row for row in with_mistakes() if row.outcome in ("different", "not on the CPU")] == []


@needs_corpus
def test_cases_are_gone_on_from():
    """All cases but the listed ones run to their end."""
    assert names_of(with_mistakes(), "not gone on from") == set(NOT_GONE_ON)
    assert len(names_of(with_mistakes(), "equal")) >= 40


@needs_corpus
@pytest.mark.ddp
@pytest.mark.parametrize("model", ["Model", "Fixed"])
def test_cases_of_two_ranks_have_the_cpus_figures(model):
    """Each of two simulated ranks has the losses of that rank with gloo on the CPU, with the mistake and without."""
    found = ranks_rows(model)
    assert {row.name for row in found if row.outcome == "equal"} == SEVERAL, found
    assert all(bool(row.findings) == (model == "Model") for row in found)


def test_programs_are_gone_on_from():
    """Adam over lists with state on the CPU, and dropout before a weight on the CPU, give the CPU's figures."""
    found = program_rows()
    assert len(found) >= len(PROGRAMS) == 3
    assert [row for row in found if row.outcome != "equal" or not row.findings] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (1.0, 1.0000001), (float("nan"), 0.0)],
    ids=["sign of zero", "last bit", "nan"],
)
def test_bytes_tell_values_apart(one, other):
    """Losses that `==` or `allclose` would take for one are different, and equal ones are equal."""
    first, second = (f"loss {bytes_of(torch.tensor(value))}" for value in (one, other))
    assert compared("case", Trace([first]), Trace([second])).outcome == "different"
    assert compared("case", Trace([first]), Trace([first])).outcome == "equal"


def test_an_early_end_is_no_equality():
    """Fewer figures are a difference, an exception is told, and a CPU's run without figures compares nothing."""
    two = Trace(["loss 00", "loss 01"])
    assert compared("case", Trace(["loss 00"]), two).outcome == "different"
    assert compared("case", Trace(["loss 00"], "RuntimeError: no"), two).why == "RuntimeError: no"
    assert compared("case", Trace(), Trace()).outcome == "not on the CPU"


def test_devices_that_are_written_out_become_the_cpu():
    """Names of devices and methods that move to one are replaced; other words stay."""
    text = 'x.cuda(0).cuda(), torch.device("cuda"), "cuda:1", accelerator=\'gpu\', cuda_graph, "cudagraph"'
    wanted = 'x.cpu().cpu(), torch.device("cpu"), "cpu", accelerator=\'cpu\', cuda_graph, "cudagraph"'
    assert on_the_cpu(text) == wanted
