"""What LossAccumulator refuses: the message names the offender, and nothing has changed afterwards."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from lightning_devcheck import DeviceMismatchError, LossAccumulator, simulate_cuda

WEIGHTS = {"full": 0.5, "half": 0.25}
ONE = torch.ones(())
KNOWN = "the terms are 'full', 'half'"

BAD_LOSSES = {
    "unknown": ({"full": ONE, "hlaf": ONE}, KeyError, f"no term is named 'hlaf'; {KNOWN}"),
    "unknown-beside-all": ({"full": ONE, "half": ONE, "x": ONE}, KeyError, f"no term is named 'x'; {KNOWN}"),
    "not-a-name": ({"full": ONE, 1: ONE}, KeyError, f"no term is named 1; {KNOWN}"),
    "total": ({"loss": ONE}, KeyError, f"no term is named 'loss'; {KNOWN}"),
    "doubled": ([("full", ONE), ("full", ONE)], ValueError, "'full' is given twice"),
    "empty-mapping": ({}, ValueError, "there are no losses; give at least one of 'full', 'half'"),
    "empty-list": ([], ValueError, r"0 losses for 2 weights \('full', 'half'\)"),
    "too-many": ([ONE] * 3, ValueError, r"3 losses for 2 weights \('full', 'half'\); give one for each"),
    "too-many-stacked": (torch.ones(3), ValueError, "3 losses for 2 weights"),
    "one-loss": (ONE, ValueError, r"the losses have shape \[\]; give a stacked \[2\] tensor"),
    "matrix": (torch.ones(2, 2), ValueError, r"the losses have shape \[2, 2\]"),
    "integers": (torch.ones(2, dtype=torch.long), TypeError, "the losses are of torch.int64"),
    "float": ({"full": ONE, "half": 0.5}, TypeError, "'half' is 0.5, a float; give a 0-dim floating-point tensor"),
    "first-float": ([0.5, ONE], TypeError, "'full' is 0.5, a float"),
    "none": ([ONE, None], TypeError, "'half' is None, a NoneType"),
    "vector": ([ONE, torch.ones(3)], ValueError, r"'half' has shape \[3\]; give a 0-dim tensor, such as its .mean"),
    "all-vectors": ([torch.ones(1)] * 2, ValueError, r"'full' has shape \[1\]"),
    "complex": ([ONE, ONE.to(torch.complex64)], TypeError, "'half' is of torch.complex64; give a real"),
    "integer": ([ONE, torch.ones((), dtype=torch.long)], TypeError, "'half' is of torch.int64"),
    "bool": ([torch.ones((), dtype=torch.bool), ONE], TypeError, "'full' is of torch.bool"),
    "number": (3.0, TypeError, "the losses are 3.0, a float; give a mapping name → loss, an iterable"),
    "set": ({ONE, ONE + 1}, TypeError, "the losses are a set, which has no order; give a mapping name → loss"),
    "frozenset": (frozenset([ONE, ONE + 1]), TypeError, "the losses are a frozenset, which has no order"),
    "triple": ([("full", ONE, 1), ("half", ONE, 1)], TypeError, r"'full', tensor\(1\.\), 1\) among pairs; give pairs"),
    "pair-and-term": ([("full", ONE), ONE], TypeError, r"tensor\(1\.\) among pairs; give pairs \(name, loss\) only"),
    "float8": ([ONE.to(torch.float8_e5m2)] * 2, TypeError, "'full' is of torch.float8_e5m2; torch does not compute"),
    "float8-beside": ([ONE, ONE.to(torch.float8_e5m2)], TypeError, "'half' is of torch.float8_e5m2; torch does not"),
    "float8-stacked": (torch.ones(2).to(torch.float8_e5m2), TypeError, "are of torch.float8_e5m2; torch does not"),
    "vector-beside-absent": ({"half": torch.ones(2)}, ValueError, r"'half' has shape \[2\]"),
}


@pytest.mark.parametrize("method", ["forward", "update"])
@pytest.mark.parametrize("case", BAD_LOSSES)
def test_bad_losses(case, method):
    """The message has the offender, its value and what is accepted; sums and count are as before."""
    losses, error, message = BAD_LOSSES[case]
    metric = LossAccumulator(WEIGHTS)
    metric([ONE, ONE])
    before = metric.packed.clone()
    with pytest.raises(error, match=message):
        getattr(metric, method)(losses)
    assert torch.equal(metric.packed, before)
    assert metric.update_count == 1


@pytest.mark.parametrize("n", [-1, math.nan, math.inf, True, "3", None, torch.tensor(3), 10**400, -(10**400)])
def test_bad_number_of_samples(n):
    """The number of samples is a finite Python number that is not negative."""
    metric = LossAccumulator(WEIGHTS)
    with pytest.raises(ValueError, match="give the number of samples as a finite Python number"):
        metric([ONE, ONE], n=n)
    assert not metric.packed.any()


@pytest.mark.parametrize("n", [Fraction(1, 2), 2**70, 1e300, np.int64(3), np.float32(0.5)], ids=repr)
def test_any_real_number_of_samples(n):
    """Fractions, numbers beyond 64 bits and NumPy's are numbers of samples, also in a step like the one before."""
    metric = LossAccumulator(WEIGHTS)
    for _ in range(3):
        metric([ONE, ONE * 3], n=n)
    assert metric.compute()["half"] == 3.0
    assert metric.packed[0, 3] == 3 * float(n)


def test_a_set_of_pairs_has_names():
    """Pairs are matched by name, so that those of a set are as good as any."""
    metric = LossAccumulator(WEIGHTS)
    assert metric({("half", ONE * 2), ("full", ONE)}) == 1.0


BAD_WEIGHTS = {
    "empty": ({}, ValueError, "at least one term is needed"),
    "zero": (0, ValueError, "at least one term is needed"),
    "negative": (-1, ValueError, "at least one term is needed"),
    "true": (True, TypeError, "is a bool; use a mapping name → weight, a sequence of weights or a number of terms"),
    "text": ("abc", TypeError, "is a str"),
    "none": (None, TypeError, "is a NoneType"),
    "float": (0.5, TypeError, "is a float"),
    "infinite": ({"a": math.inf}, ValueError, "the weight of 'a' is inf; use a finite number"),
    "too-large": ({"a": 10**400}, ValueError, "the weight of 'a' is 10+; use a finite number"),
    "nan": ([1.0, math.nan], ValueError, "the weight of '1' is nan"),
    "weight-text": ({"a": "1"}, TypeError, "the weight of 'a' is '1', a str; use a Python number"),
    "weight-tensor": ({"a": ONE}, TypeError, "the weight of 'a' is tensor"),
    "name-number": ({1: 1.0}, TypeError, "the name 1 is a int; use a string"),
    "reserved": ({"loss": 1.0}, ValueError, "'loss' is the name of the total; use another"),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights(case):
    """Weights are checked when they are declared."""
    weights, error, message = BAD_WEIGHTS[case]
    with pytest.raises(error, match=message):
        LossAccumulator(weights)


def test_setting_a_bad_weight():
    """Weights are checked when they are set, and their names are fixed."""
    weights = LossAccumulator(WEIGHTS).weights
    with pytest.raises(KeyError, match=r"no term is named 'x'"):
        weights["x"] = 1.0
    with pytest.raises(ValueError, match="the weight of 'half' is nan"):
        weights["half"] = math.nan
    with pytest.raises(TypeError, match=r"the terms are fixed; weights\['half'\] = 0.0 switches one off"):
        del weights["half"]
    assert dict(weights) == WEIGHTS


@pytest.mark.parametrize(
    ("changes", "error"), [({"full": 9, "x": 1}, KeyError), ({"full": 9, "half": math.nan}, ValueError)]
)
def test_weights_are_set_together_or_not_at_all(changes, error):
    """An update of several weights that has one bad one sets none."""
    metric = LossAccumulator(WEIGHTS)
    with pytest.raises(error, match=r"no term is named 'x'|the weight of 'half' is nan"):
        metric.weights.update(changes)
    assert dict(metric.weights) == WEIGHTS
    metric.weights.update({"full": 3}, half=2)
    assert metric([ONE, ONE]) == 5.0


def test_unknown_policy():
    """An unknown policy is answered with the known ones."""
    with pytest.raises(ValueError, match=r"nan='ignore'.*use one of 'propagate', 'skip', 'raise'"):
        LossAccumulator(WEIGHTS, nan="ignore")


def test_unknown_and_refused_keywords():
    """Keywords that torchmetrics does not know are refused; a sync in every step is refused with the reason."""
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `sync`"):
        LossAccumulator(WEIGHTS, sync=True)
    with pytest.raises(ValueError, match="forward gives this process's own total"):
        LossAccumulator(WEIGHTS, dist_sync_on_step=True)


def test_a_term_elsewhere_is_named():
    """A term on another device is named, with both devices; a silent copy is never made."""
    with simulate_cuda(devices=2):
        metric = LossAccumulator(WEIGHTS)
        first, second = torch.ones((), device="cuda:1"), torch.ones((), device="cuda:0")
        for other in (second, ONE):
            with pytest.raises(DeviceMismatchError, match="half") as caught:
                metric({"full": first, "half": other})
            (finding,) = caught.value.report.findings
            assert (finding.rule, finding.name, finding.device, finding.expected) == (
                "mixed-devices",
                "half",
                str(other.device),
                "cuda:1",
            )
        assert not metric.update_called


def test_losses_that_change_the_device():
    """The sums do not follow in the middle of an epoch; after a reset they do."""
    with simulate_cuda(devices=2):
        metric = LossAccumulator(WEIGHTS)
        metric([torch.ones((), device="cuda:1")] * 2)
        with pytest.raises(DeviceMismatchError, match="the state of LossAccumulator is on cuda:1") as caught:
            metric([torch.ones((), device="cuda:0")] * 2)
        assert caught.value.report.findings[0].rule == "metric-device"
        metric.reset()
        assert metric([torch.ones((), device="cuda:0")] * 2).device == torch.device("cuda:0")


def test_a_step_on_synced_sums_is_refused():
    """Between ``sync`` and ``unsync`` no step is taken: it would be lost."""
    metric = LossAccumulator(WEIGHTS, distributed_available_fn=lambda: True, dist_sync_fn=lambda x, group: [x])
    metric([ONE, ONE])
    metric.sync(dist_sync_fn=metric.dist_sync_fn)
    with pytest.raises(Exception, match=r"call unsync\(\) first"):
        metric([ONE, ONE])
    metric.unsync()
    metric([ONE, ONE])
