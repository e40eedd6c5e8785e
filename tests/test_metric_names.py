"""LossAccumulator matches terms by name: checkpoints, merged states, processes, members of a collection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchmetrics
from torchmetrics.utilities.distributed import gather_all_tensors

from lightning_devcheck import LossAccumulator
from tests.test_metric_ranks import counted, on_ranks

merges = pytest.mark.skipif(
    not hasattr(torchmetrics.Metric, "merge_state"), reason="torchmetrics has merge_state from 1.5 on"
)


def tensors(**values):
    return {name: torch.tensor(float(value)) for name, value in values.items()}


def floats(values):
    return {name: value.item() for name, value in values.items()}


def saved(weights, persistent=True, **options):
    """The state of an accumulator after a step with a = 1 and b = 100, and a weight that was set."""
    metric = LossAccumulator(weights, **options)
    metric.persistent(persistent)
    metric.weights["a"] = 7.0
    metric(tensors(a=1, b=100))
    return metric.state_dict()


@pytest.mark.parametrize("persistent", [False, True])
def test_a_checkpoint_in_another_order_is_loaded_by_name(persistent):
    """Weights and sums find their terms where the names come in another order, as those of a set do."""
    metric = LossAccumulator({"b": 2.0, "a": 1.0})
    metric.load_state_dict(saved({"a": 1.0, "b": 2.0}, persistent))
    assert dict(metric.weights) == {"b": 2.0, "a": 7.0}
    if persistent:
        metric(tensors(a=3, b=300))
        assert floats(metric.compute()) == {"loss": 2 * 200.0 + 7 * 2.0, "b": 200.0, "a": 2.0}


@pytest.mark.parametrize("persistent", [False, True])
def test_a_checkpoint_of_other_names_is_refused(persistent):
    """The message has both lists of names, and nothing was taken over."""
    metric = LossAccumulator({"x": 5.0, "y": 6.0})
    with pytest.raises(RuntimeError, match="the checkpoint has the terms 'a', 'b'; this has 'x', 'y'"):
        metric.load_state_dict(saved({"a": 1.0, "b": 2.0}, persistent))
    assert dict(metric.weights) == {"x": 5.0, "y": 6.0}
    assert not metric.packed.any()


def test_a_checkpoint_of_fewer_terms_names_both():
    """A term that was added since the checkpoint is named."""
    with pytest.raises(RuntimeError, match="the checkpoint has 2 terms, this has 3: 'a', 'b' and 'a', 'b', 'c'"):
        LossAccumulator({"a": 1.0, "b": 2.0, "c": 3.0}).load_state_dict(saved({"a": 1.0, "b": 2.0}))


@pytest.mark.parametrize("without", [["weights"], ["weights", "terms"]], ids=["weights", "weights-and-names"])
def test_sums_of_another_number_of_terms_are_refused(without):
    """Sums that do not fit are refused when they are loaded, also where the rest of the state is missing."""
    state = saved({"a": 1.0, "b": 2.0, "c": 3.0})
    for key in without:
        del state[key]
    metric = LossAccumulator({"a": 1.0, "b": 2.0})
    with pytest.raises(RuntimeError, match=r"the checkpoint has (3 terms, this has 2|sums of shape \[1, 12\])"):
        metric.load_state_dict(state)
    metric(tensors(a=1, b=2))
    assert metric.compute()["b"] == 2.0


@pytest.mark.parametrize("nan", ["propagate", "skip", "raise"])
def test_a_checkpoint_without_names_is_loaded_by_position(nan):
    """What version 0.1 saved, sums and weights in declared order, loads as it did there."""
    left_out, nans = ([0.0, 0.0, 1.0], [0.0, 0.0, 0.0]) if nan != "skip" else ([0.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    packed = torch.tensor([[*left_out, 3.0, 6.0, 200.0, *nans]], dtype=torch.float64)
    state = {"packed": packed, "weights": torch.tensor([7.0, 2.0], dtype=torch.float64)}
    metric = LossAccumulator({"a": 1.0, "b": 2.0}, nan=nan)
    metric.load_state_dict(state)
    assert floats(metric.compute()) == {"loss": 214.0, "a": 2.0, "b": 100.0}
    metric(tensors(a=2, b=40))
    assert floats(metric.compute()) == {"loss": 174.0, "a": 2.0, "b": 80.0}


@pytest.mark.parametrize("assign", [True, False])
def test_a_model_made_on_meta_takes_a_checkpoint(assign):
    """Sums, names and weights come to where the checkpoint's are, as a MeanMetric's do, and the next step goes on."""
    with torch.device("meta"):
        model = torch.nn.Sequential(LossAccumulator({"b": 2.0, "a": 1.0}))
    model[0].persistent(True)
    state = {"0." + key: value for key, value in saved({"a": 1.0, "b": 2.0}).items()}
    model.load_state_dict(state, assign=assign)
    assert floats(model[0].compute()) == {"loss": 207.0, "b": 100.0, "a": 1.0}
    model[0](tensors(a=3, b=100))
    assert floats(model[0].compute()) == {"loss": 214.0, "b": 100.0, "a": 2.0}
    assert model[0].device.type == "cpu"


@pytest.mark.parametrize("old", ["propagate", "skip", "raise"])
@pytest.mark.parametrize("new", ["propagate", "skip", "raise"])
def test_a_checkpoint_of_another_policy_keeps_its_means(old, new):
    """What counts for a mean is saved in one form for every policy."""
    metric = LossAccumulator({"a": 1.0, "b": 2.0}, nan=old)
    metric.persistent(True)
    metric(tensors(a=1), n=3)
    metric(tensors(a=1, b=5))
    other = LossAccumulator({"a": 1.0, "b": 2.0}, nan=new)
    other.load_state_dict(metric.state_dict())
    assert floats(other.compute()) == {"loss": 11.0, "a": 1.0, "b": 5.0}


@merges
@pytest.mark.parametrize("form", [lambda m: m, lambda m: m.metric_state], ids=["metric", "dictionary"])
def test_states_are_merged_by_name(form):
    """Sums of another order, or of another policy, find their terms; other names are refused by name."""
    one = LossAccumulator({"a": 1.0, "b": 1.0})
    two = LossAccumulator({"b": 1.0, "a": 1.0}, nan="skip")
    one(tensors(a=1, b=100))
    assert one.compute()["a"] == 1.0
    two(tensors(a=3))
    one.merge_state(form(two))
    assert floats(one.compute()) == {"loss": 102.0, "a": 2.0, "b": 100.0}, "not the value kept from before"
    assert floats(two.compute())["a"] == 3.0
    with pytest.raises(ValueError, match="the incoming state has the terms 'x', 'b'; this has 'a', 'b'"):
        one.merge_state(form(LossAccumulator({"x": 1.0, "b": 1.0})))
    with pytest.raises(ValueError, match="the incoming state has 1 terms, this has 2"):
        one.merge_state(form(LossAccumulator(1)))
    assert floats(one.compute())["a"] == 2.0


def other_orders(rank, world):
    names = [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]][rank]
    metric = LossAccumulator(dict.fromkeys(names, 1.0))
    for _ in range(2):
        metric(tensors(a=rank, b=10 * rank, c=100))
    counts = counted(metric.compute)
    return counts, floats(metric.compute()), list(metric.compute())[1:] == names


def test_processes_of_another_order_are_matched_by_name(tmp_path):
    """Three processes with three orders of the names agree, in one collective."""
    for counts, values, in_order in on_ranks(other_orders, 3, tmp_path):
        assert counts == {"all_reduce": 1}
        assert values == {"loss": 111.0, "a": 1.0, "b": 10.0, "c": 100.0}
        assert in_order


OTHER_NAMES = [{"a": 1.0, "b": 1.0}, {"a": 1.0, "x": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}, 70]


def other_terms(rank, world):
    texts = []
    for theirs in OTHER_NAMES[1:]:
        metric = LossAccumulator(theirs if rank else OTHER_NAMES[0])
        metric([torch.tensor(1.0 + rank)] * len(metric.weights))
        before = metric.packed.clone()
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is asserted where it arrives)
            metric.compute()
        texts.append(str(caught.value))
        assert torch.equal(metric.packed, before), "the sums of this process stay"
        metric([torch.tensor(1.0 + rank)] * len(metric.weights))
    return texts


def test_processes_of_other_names_are_refused(tmp_path):
    """Another name, or another number of them, is refused in every process, which names its own."""
    first, second = on_ranks(other_terms, 2, tmp_path)
    assert all("another process has other terms than this one, which has 'a', 'b'; give" in text for text in first)
    assert "which has 'a', 'x'; give every process the same names" in second[0]
    assert "which has 'a', 'b', 'c';" in second[1]


def gathered(rank, world):
    results = []
    for names in (["a", "b"], ["a", "b"] if rank == 0 else ["b", "a"]):
        metric = LossAccumulator(dict.fromkeys(names, 1.0), dist_sync_fn=gather_all_tensors)
        metric(tensors(a=rank, b=10))
        try:
            results.append(floats(metric.compute()))
        except ValueError as error:
            results.append(str(error))
    return results


def test_a_gather_of_ones_own_is_checked_too(tmp_path):
    """With torchmetrics' own gather equal names are summed, and another order is refused rather than mixed."""
    for summed, refused in on_ranks(gathered, 2, tmp_path):
        assert summed == {"loss": 10.5, "a": 0.5, "b": 10.0}
        assert "sums of the terms 'a', 'b' and of 'b', 'a' are not of one kind" in refused


SET_SCRIPT = """
import sys, torch
from lightning_devcheck import LossAccumulator
metric = LossAccumulator({name: 1.0 for name in {"full", "half", "quarter"}})
metric.persistent(True)
if sys.argv[1] == "save":
    metric.weights["half"] = 3.0
    metric({"full": torch.tensor(1.0), "half": torch.tensor(2.0), "quarter": torch.tensor(4.0)})
    torch.save(metric.state_dict(), sys.argv[2])
else:
    metric.load_state_dict(torch.load(sys.argv[2], weights_only=True))
    print(sorted((name, value.item()) for name, value in metric.compute().items()), metric.weights["half"])
"""


def test_names_from_a_set_survive_another_hash_seed(tmp_path):
    """A run that is resumed under another PYTHONHASHSEED, where a set has another order, goes on with its numbers."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    outputs = []
    for seed, action in [("0", "save"), ("0", "load"), ("1", "load"), ("3", "load")]:
        command = [sys.executable, "-W", "ignore", "-c", SET_SCRIPT, action, str(tmp_path / "state")]
        options = {"env": {**environment, "PYTHONHASHSEED": seed}, "capture_output": True, "text": True, "timeout": 60}
        done = subprocess.run(command, check=True, **options)
        outputs.append(done.stdout)
    assert set(outputs[1:]) == {"[('full', 1.0), ('half', 2.0), ('loss', 11.0), ('quarter', 4.0)] 3.0\n"}


def test_unlike_members_of_a_collection_keep_apart():
    """Other policies, names or orders are no compute group, also where the first step gave the same sums."""
    weights = {"a": 1.0, "b": 1.0}
    members = {
        "plain": LossAccumulator(weights),
        "reversed": LossAccumulator(dict(reversed(weights.items()))),
        "skip": LossAccumulator(weights, nan="skip"),
        "twin": LossAccumulator({"a": 9.0, "b": 1.0}),
    }
    collection = torchmetrics.MetricCollection(members)
    collection.update(tensors(a=1, b=1))
    collection.update(tensors(a=float("nan"), b=3))
    groups = sorted(map(sorted, collection.compute_groups.values()))
    assert groups == [["plain", "twin"], ["reversed"], ["skip"]]
    values = collection.compute()
    assert values["plain_a"].isnan()
    assert values["reversed_a"].isnan()
    assert values["skip_a"] == 1.0
    assert {values[f"{member}_b"].item() for member in members} == {2.0}


def test_a_running_window_takes_it():
    """The library's own Running keeps the terms of the last steps."""
    running = torchmetrics.wrappers.Running(LossAccumulator({"b": 2.0, "a": 1.0}), window=2)
    for value in (1, 2, 4):
        running(tensors(a=value, b=10 * value))
    assert floats(running.compute()) == {"loss": 63.0, "b": 30.0, "a": 3.0}
