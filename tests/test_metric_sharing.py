"""No two accumulators, and no two processes, add into the same sums: launchers, copies, collections."""

from __future__ import annotations

import copy
import time

import pytest
import pytorch_lightning as pl
import torch
import torch.multiprocessing as mp
from torchmetrics import MeanMetric, MetricCollection

from lightning_devcheck import LossAccumulator


def term(value):
    return {"a": torch.tensor(float(value))}


class Model(pl.LightningModule):
    """Logs an accumulator beside a MeanMetric; the second process is a little slower."""

    def __init__(self):
        super().__init__()
        self.losses = LossAccumulator({"a": 1.0, "b": 1.0}, prefix="v/")
        self.mean = MeanMetric()
        self.layer = torch.nn.Linear(1, 1)

    def validation_step(self, batch, batch_idx):
        if self.trainer.global_rank == 1:
            time.sleep(0.05)
        value = batch.mean()
        self.losses({"a": value, "b": value * 2}, n=len(batch))
        self.mean.update(value, weight=len(batch))
        self.log_dict(self.losses, on_step=False, on_epoch=True)
        self.log("mean", self.mean)


@pytest.mark.filterwarnings("ignore:The 'val_dataloader' does not have many workers", "ignore:.*treespec")
def test_spawned_ranks_have_their_own_sums():
    """Under ddp_spawn every rank adds into its own sums, and logs what a MeanMetric logs."""
    loader = torch.utils.data.DataLoader(torch.arange(8.0)[:, None])
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp_spawn", **quiet)
    (values,) = trainer.validate(Model(), loader, verbose=False)
    assert values == {"v/loss": 10.5, "v/a": 3.5, "v/b": 7.0, "mean": 3.5}


def _steps(rank, metric, results):
    for _ in range(20):
        metric(term(1 + rank))
    results.put((rank, metric.compute()["a"].item(), metric.packed.sum().item()))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_an_accumulator_handed_to_processes_is_theirs(method):
    """Processes go on from the sums that they were handed; those of the parent stay."""
    metric = LossAccumulator({"a": 1.0})
    metric(term(5))
    before = metric.packed.clone()
    results = mp.get_context(method).SimpleQueue()
    context = mp.start_processes(_steps, args=(metric, results), nprocs=2, start_method=method, join=False)
    metric(term(7))  # while they start
    while not context.join():
        pass
    found = sorted(results.get() for _ in range(2))
    assert [mean for _, mean, _ in found] == [25 / 21, 45 / 21]
    assert metric.compute()["a"] == 6.0
    assert metric.packed.sum() == before.sum() + 8.0


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_logs_its_own_values_and_has_its_own_weights(duplicate):
    """What is logged of a copy is of the copy, and setting its weights leaves the original's."""
    metric = LossAccumulator({"a": 1.0})
    metric(term(1))
    other = duplicate(metric)
    other(term(3))
    other.weights["a"] = 5.0
    logged = {name: view.compute().item() for name, view in other.items()}
    assert logged == {"loss": 10.0, "a": 2.0}
    assert metric.compute() == {"loss": 1.0, "a": 1.0}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_adds_into_its_own_sums(duplicate):
    """A copy, also a shallow one, goes on by itself."""
    metric = LossAccumulator({"a": 1.0})
    metric(term(1))
    other = duplicate(metric)
    for _ in range(2):
        other(term(4))
        metric(term(1))
    assert metric.compute()["a"] == 1.0
    assert other.compute()["a"] == 3.0


def test_an_assigned_state_is_a_copy():
    """Whoever assigns the state of one accumulator to another does not couple them."""
    one, two = LossAccumulator({"a": 1.0}), LossAccumulator({"a": 1.0})
    one(term(1))
    two.packed = one.packed
    for _ in range(2):
        two(term(4))
    assert one.compute()["a"] == 1.0
    assert two.compute()["a"] == 3.0


@pytest.mark.parametrize("groups", [True, False, [["x", "y"]]], ids=["groups", "no-groups", "given-groups"])
@pytest.mark.parametrize("calls", ["uuf", "fuf", "ufu", "ff", "fu", "uffu", "urf", "ucf", "fcu"])
def test_a_collection_counts_each_step_once(calls, groups):
    """Any order of update, forward, compute and reset gives in a collection what MeanMetrics give."""
    ours = MetricCollection({"x": LossAccumulator({"a": 1.0}), "y": LossAccumulator({"a": 9.0})}, compute_groups=groups)
    means = MetricCollection({"x": MeanMetric(), "y": MeanMetric()}, compute_groups=groups)
    for number, call in enumerate(calls):
        if call == "r":
            ours.reset(), means.reset()
        elif call == "c":
            ours.compute(), means.compute()
        else:
            method = "update" if call == "u" else "forward"
            getattr(ours, method)(term(2**number))
            getattr(means, method)(torch.tensor(2.0**number))
    values, expected = ours.compute(), means.compute()
    for name in ("x", "y"):
        assert values[f"{name}_a"].float() == expected[name]
        assert ours[name].update_count == means[name].update_count


def test_members_of_a_collection_are_read_and_cloned_in_between():
    """Reading a member, or cloning the collection with a prefix, between steps changes no number."""
    ours = MetricCollection({"x": LossAccumulator({"a": 1.0}), "y": LossAccumulator({"a": 9.0})}, prefix="train/")
    ours.update(term(1))
    assert ours["train/y"].compute()["a"] == 1.0
    ours.update(term(3))
    other = ours.clone(prefix="val/")
    other.update(term(8))
    ours(term(5))
    assert ours.compute()["train/x_a"] == ours.compute()["train/y_a"] == 3.0
    assert other.compute()["val/x_a"] == other.compute()["val/y_a"] == 4.0
