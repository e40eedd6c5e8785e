"""LossAccumulator over real processes: one collective, the numbers of one process, alone or in a Trainer."""

from __future__ import annotations

import collections
import contextlib
import importlib
import inspect
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo  # replaces functions of torch when first imported
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from lightning_devcheck import LossAccumulator

NAMESPACES = ["pytorch_lightning", "lightning.pytorch"]
for _namespace in NAMESPACES:  # importing either replaces torch.compile: before the first test, not in it
    with contextlib.suppress(ImportError):
        importlib.import_module(_namespace)
KINDS = ("all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "gather", "reduce", "scatter")
COLLECTIVES = [name for name in dir(dist) if name.startswith(KINDS) and inspect.isfunction(getattr(dist, name))]


def _entry(rank, world, store, function):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}/init", rank=rank, world_size=world)
    # the group ends with the process: before torch 2.8 destroying it right after a collective can wait for ever
    (store / f"{rank}").write_bytes(pickle.dumps(function(rank, world)))


def on_ranks(function, world, store):
    """Run a function in ``world`` gloo processes; its results by rank."""
    mp.start_processes(_entry, args=(world, store, function), nprocs=world, start_method="fork")
    return [pickle.loads((store / f"{rank}").read_bytes()) for rank in range(world)]


def counted(call):
    """How often each collective runs in a call."""
    counts, kept = collections.Counter(), {name: getattr(dist, name) for name in COLLECTIVES}

    def counting(name):
        def collective(*args, **kwargs):
            counts[name] += 1
            return kept[name](*args, **kwargs)

        return collective

    for name in COLLECTIVES:
        setattr(dist, name, counting(name))
    try:
        call()
    finally:
        for name, original in kept.items():
            setattr(dist, name, original)
    return dict(counts)


def collectives_of_a_sync(rank, world):
    counts = {}
    for size in (1, 3, 20):
        metric = LossAccumulator(size)
        metric([torch.tensor(float(rank))] * size)
        counts["compute", size] = counted(metric.compute)
        metric([torch.tensor(float(rank))] * size)
        counts["views", size] = counted(lambda m=metric: [view.compute() for _, view in m.items()])
    return counts


@pytest.mark.parametrize("world", [2, 4])
def test_a_sync_is_one_collective(world, tmp_path):
    """One all_reduce for any number of terms, also through the views that Lightning logs; nothing else."""
    for counts in on_ranks(collectives_of_a_sync, world, tmp_path):
        assert all(count == {"all_reduce": 1} for count in counts.values()), counts


STEPS = [  # rank, losses by name, samples
    (0, {"full": 1.0, "half": 10.0}, 3),
    (0, {"full": 3.0}, 1),
    (0, {"full": 2.0, "half": 5.0}, 2),
    (1, {"full": 8.0}, 5),
]


def synced_by_hand(rank, world):
    names = ["b", "a"] if rank else ["a", "b"]
    metric = LossAccumulator(dict.fromkeys(names, 1.0), dist_sync_fn=None)
    metric({"a": torch.tensor(float(rank)), "b": torch.tensor(5.0)})
    counts = counted(metric.sync)
    sums = metric.packed.view(3, -1)[1].tolist()
    metric.unsync()
    with metric.sync_context():
        inside = metric.packed.view(3, -1)[1].tolist()
    return counts, sums, inside


def test_a_sync_by_hand_is_by_name_too(tmp_path):
    """`sync` and `sync_context` match names in any order with one collective, as `compute` does."""
    first, second = on_ranks(synced_by_hand, 2, tmp_path)
    assert first == ({"all_reduce": 1}, [2.0, 1.0, 10.0], [2.0, 1.0, 10.0])
    assert second == ({"all_reduce": 1}, [2.0, 10.0, 1.0], [2.0, 10.0, 1.0])


def uneven(rank, world):
    metric = LossAccumulator({"full": 0.5, "half": 0.25, "never": 1.0})
    for owner, losses, n in STEPS:
        if owner == rank:
            metric({name: torch.tensor(value) for name, value in losses.items()}, n=n)
    first = metric.compute()
    again = metric.compute()
    local = metric.packed.clone()
    return {name: value.item() for name, value in first.items()}, again == first, local


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
@pytest.mark.parametrize("world", [2, 3])
def test_the_numbers_are_those_of_one_process(world, tmp_path):
    """Uneven ranks, absent terms, a term nobody saw and a rank that saw nothing give the mean over all samples."""
    expected = {"full": (3 * 1 + 1 * 3 + 2 * 2 + 5 * 8) / 11, "half": (3 * 10 + 2 * 5) / 5}
    results = on_ranks(uneven, world, tmp_path)
    for values, _, _ in results:
        assert values["full"] == pytest.approx(expected["full"], rel=1e-15)
        assert values["half"] == pytest.approx(expected["half"], rel=1e-15)
        assert math.isnan(values["never"])
        assert values["loss"] == pytest.approx(0.5 * expected["full"] + 0.25 * expected["half"], rel=1e-15)
    assert not torch.equal(results[0][2], results[1][2]), "each process keeps its own sums"


def nan_on_one_rank(rank, world):
    metric = LossAccumulator(2, nan="raise")
    metric([torch.tensor(1.0), torch.tensor(math.nan if rank == 1 else 1.0)])
    try:
        metric.compute()
    except ValueError as error:
        message = str(error)
    metric.update(torch.ones(2))  # the local sums are back in place
    return message, metric.packed.view(3, -1)[1, 0].item()


def test_a_nan_on_one_rank_is_reported_on_all(tmp_path):
    """Under ``raise`` every process raises, names the term, and goes on with its own sums."""
    for message, samples in on_ranks(nan_on_one_rank, 2, tmp_path):
        assert "NaN in '1' (1 samples)" in message
        assert samples == 2.0


def make_model(namespace, pl):
    class Model(pl.LightningModule):
        """Terms that depend on the sample only, so that the expected means are known."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.train_losses = LossAccumulator({"full": 0.5, "half": 0.25})
            self.val_losses = LossAccumulator({"full": 0.5, "half": 0.25}, prefix="val/")
            self.results = []

        def terms(self, batch):
            return {"full": (batch * self.scale).mean(), "half": (2 * batch * self.scale).mean()}

        def training_step(self, batch, batch_idx):
            total = self.train_losses(self.terms(batch), n=len(batch))
            self.log_dict(self.train_losses, on_step=True, on_epoch=True)
            return total

        def validation_step(self, batch, batch_idx):
            self.val_losses.update(self.terms(batch), n=len(batch))
            self.log_dict(self.val_losses, on_step=False, on_epoch=True)

        def on_train_epoch_end(self):
            self.results.append({name: value.item() for name, value in self.train_losses.compute().items()})

        def on_validation_epoch_end(self):
            self.val_results = {name: value.item() for name, value in self.val_losses.compute().items()}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    return Model()


def fit(namespace, **kwargs):
    pl = importlib.import_module(namespace)
    options = {"accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(**{**options, **quiet, **kwargs})
    model = make_model(namespace, pl)
    data = [float(i) for i in range(10)]
    loader = torch.utils.data.DataLoader(data, batch_size=3, collate_fn=torch.tensor)
    trainer.fit(model, loader, loader)
    return trainer, model


@pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers", "ignore:.*treespec")
@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:You are trying to `self.log()")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_logged_in_a_trainer(namespace):
    """``self.log_dict(self.losses)`` gives in ``callback_metrics`` what ``compute`` gives, anew in each epoch."""
    pytest.importorskip(namespace)
    trainer, model = fit(namespace)
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert [logged[f"{name}_epoch"] for name in ("loss", "full", "half")] == list(model.results[1].values())
    assert [logged[f"val/{name}"] for name in ("loss", "full", "half")] == list(model.val_results.values())
    assert model.results[0] == model.results[1] == {"loss": 0.5 * 4.5 + 0.25 * 9, "full": 4.5, "half": 9.0}
    assert logged["full_step"] == 9.0, "the value of the last step"
    assert not model.train_losses.update_called, "Lightning resets what it logged"


@pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers", "ignore:.*treespec")
@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:.*sync_dist=True", "ignore:.*fork")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_logged_in_ddp(namespace):
    """Two processes log the means over all samples that they saw together."""
    pytest.importorskip(namespace)
    trainer, _ = fit(namespace, devices=2, strategy="ddp_fork")
    # each rank sees five samples, in batches of 3 and 2
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert logged["full_epoch"] == pytest.approx(4.5, rel=1e-6)
    assert logged["val/full"] == pytest.approx(4.5, rel=1e-6)
    assert logged["loss_epoch"] == pytest.approx(0.5 * 4.5 + 0.25 * 9, rel=1e-6)


@pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers", "ignore:.*treespec")
@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:You're resuming from a checkpoint")
def test_resumed_in_the_middle_of_an_epoch(tmp_path):
    """A checkpoint inside an epoch brings the sums back: the resumed epoch ends with the mean over all its samples."""
    import pytorch_lightning as pl

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.losses = LossAccumulator({"full": 1.0})
            self.losses.persistent(True)
            self.results = []

        def training_step(self, batch, batch_idx):
            total = self.losses([batch_idx * self.scale], n=len(batch))
            self.log_dict(self.losses, on_step=False, on_epoch=True)
            return total

        def on_train_epoch_end(self):
            self.results.append(self.losses.compute()["full"].item())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    def run(checkpoint=None, **kwargs):
        model = Model()
        loader = torch.utils.data.DataLoader([float(i) for i in range(10)], batch_size=2, collate_fn=torch.tensor)
        trainer = pl.Trainer(
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **kwargs,
        )
        trainer.fit(model, loader, ckpt_path=checkpoint)
        return trainer, model

    class Save(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 2:
                trainer.save_checkpoint(tmp_path / "middle.ckpt")

    run(max_epochs=1, callbacks=Save())
    _, model = run(tmp_path / "middle.ckpt", max_epochs=1)
    assert model.results == [(0 + 1 + 2 + 3 + 4) / 5]


@pytest.mark.parametrize("options", [[], ["--simulate"]], ids=["cpu", "simulated"])
def test_the_example_agrees_with_one_process(options):
    """Two DDP processes log the means over all samples, on the CPU and on two simulated devices with DeviceCheck on."""
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    environment.pop("PL_GLOBAL_SEED", None)  # an earlier test's seed would order the samples in another way
    command = [sys.executable, "-W", "ignore", "examples/ddp_losses.py", *options]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "'loss': 36.375, 'full': 9.5, 'half': 123.5, 'rare': 6.0" in done.stdout
    assert "two processes and one agree to 0e+00" in done.stdout
    assert "DeviceCheck failed" not in done.stderr
