"""Simulated ranks: real processes, real gloo collectives, pretended devices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from lightning_devcheck import LossAccumulator, simulate_cuda
from tests.helpers.training import Clean, make_loader, make_trainer

pytestmark = pytest.mark.ddp


class Watched(Clean):
    """Saves each rank's device and weights at the end."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self.net(batch), batch)
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def on_train_end(self):
        weights = [value for tensor in self.state_dict().values() for value in tensor.flatten().tolist()]
        data = {"device": str(self.device), "weights": weights}
        (self.folder / f"{self.global_rank}.json").write_text(json.dumps(data))


class Unused(Watched):
    """A layer that only every second batch uses."""

    def __init__(self, folder):
        super().__init__(folder)
        self.extra = torch.nn.Linear(4, 4)

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss + self.extra(batch).square().mean() if batch_idx % 2 else loss


class Summed(Watched):
    """Several losses, summed and logged by the accumulator."""

    def __init__(self, folder):
        super().__init__(folder)
        self.losses = LossAccumulator({"near": 1.0, "far": 0.5})

    def training_step(self, batch, batch_idx):
        out = self.net(batch)
        loss = self.losses({"near": F.mse_loss(out, batch), "far": F.l1_loss(out, batch)}, n=len(batch))
        self.log_dict(self.losses, on_step=False, on_epoch=True)
        return loss


def train(folder, model=Watched, strategy="ddp_fork", **kwargs):
    """Two ranks train; what each saved comes back."""
    folder.mkdir()
    torch.manual_seed(5)
    make_trainer(devices=2, strategy=strategy, **kwargs).fit(model(folder), make_loader(6))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate_grad_batches": 2},
        {"model": Unused, "strategy": "ddp_fork_find_unused_parameters_true"},
        {"model": Summed},
    ],
    ids=str,
)
def test_two_simulated_ranks_train_as_two_cpu_ranks(tmp_path, options):
    """Two ranks on cuda:0 and cuda:1 end with the weights of two plain CPU ranks, bit for bit."""
    plain = train(tmp_path / "plain", accelerator="cpu", **options)
    with simulate_cuda(devices=2):
        simulated = train(tmp_path / "simulated", accelerator="gpu", **options)
    assert [rank["device"] for rank in simulated] == ["cuda:0", "cuda:1"]
    assert [rank["weights"] for rank in simulated] == [rank["weights"] for rank in plain]


def test_nccl_is_spoken_over_gloo_and_refuses_the_cpu():
    """A group asked for as NCCL starts, reduces device tensors, and refuses CPU tensors in NCCL's words."""
    with simulate_cuda(devices=1):
        store = dist.HashStore()
        dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
        try:
            total = torch.full((2,), 3.0, device="cuda")
            dist.all_reduce(total)
            assert total.tolist() == [3.0, 3.0]
            gathered = [torch.zeros(2, device="cuda")]
            dist.all_gather(gathered, total)
            assert gathered[0].tolist() == [3.0, 3.0]
            assert dist.get_backend() == dist.get_backend(dist.new_group([0])) == "nccl"
            assert dist.get_backend(dist.new_group([0], backend="gloo")) == "gloo"
            with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
                dist.all_reduce(torch.ones(2))
            objects = [None]
            dist.all_gather_object(objects, {"rank": 0})
            assert objects == [{"rank": 0}]
        finally:
            dist.destroy_process_group()


def test_a_gloo_group_takes_cpu_tensors():
    """A group asked for as gloo refuses nothing."""
    with simulate_cuda(devices=1):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            total = torch.ones(2)  # kept: before torch 2.8 a group that frees its tensors at its end waits for ever
            dist.all_reduce(total)
        finally:
            dist.destroy_process_group()


class Synchronised(Watched):
    """Batch norm over both ranks, plain SGD, and no dropout."""

    def __init__(self, folder):
        super().__init__(folder)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append(batch.tolist())
        return super().training_step(batch, batch_idx)

    def on_train_end(self):
        super().on_train_end()
        (self.folder / f"seen-{self.global_rank}.json").write_text(json.dumps(self.seen))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_synchronised_batch_norm_equals_the_whole_batch(tmp_path):
    """Two ranks with SyncBatchNorm, which torch has for devices only, train as one process over both ranks' batches."""
    with simulate_cuda(devices=2):
        ranks = train(tmp_path / "ranks", Synchronised, accelerator="gpu", sync_batchnorm=True)
    first, second = (json.loads((tmp_path / "ranks" / f"seen-{rank}.json").read_text()) for rank in range(2))
    batches = [torch.tensor(one + other) for one, other in zip(first, second, strict=True)]
    torch.manual_seed(5)
    whole = Synchronised(tmp_path)
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    make_trainer(devices=1, accelerator="cpu").fit(whole, loader)
    saved = json.loads((tmp_path / "0.json").read_text())["weights"]
    assert ranks[0]["weights"] == ranks[1]["weights"]
    torch.testing.assert_close(torch.tensor(ranks[0]["weights"]), torch.tensor(saved), rtol=1e-4, atol=1e-6)


FORK = """
import os, sys, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from lightning_devcheck import simulate_cuda

with simulate_cuda():
    pass
with FakeTensorMode():
    torch.ones(2)
torch.ones(1, requires_grad=True).sum().backward()
if not os.fork():
    torch.ones(1, requires_grad=True).sum().backward()
    print("the child has made a backward", flush=True)
    os._exit(0)
os.wait()
"""


def test_ranks_fork_after_fake_tensors():
    """What has met a simulation can fork ranks that train, also on a CUDA build where torch.compile has run since."""
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert run.stdout == "the child has made a backward\n", run.stderr


THREADS = """
import os, sys, warnings
os.sched_getaffinity = lambda pid: set(range(8))
os.cpu_count = lambda: 8
warnings.simplefilter("ignore")
import torch
from torch import set_num_threads
from pytorch_lightning import Trainer
from pytorch_lightning.demos.boring_classes import BoringModel
from lightning_devcheck import preflight, simulate_cuda

class Wide(BoringModel):
    def training_step(self, batch, batch_idx):
        if ASKS:
            set_num_threads(4)
        (torch.randn(10**6, device=self.device) + 1).sum()
        return super().training_step(batch, batch_idx)

def rank(index):
    set_num_threads(4)
    torch.set_num_interop_threads(2)
    torch.cuda.set_device(index)
    (torch.randn(10**6, device="cuda") + 1).sum()

ASKS = sys.argv[2] == "asks"
torch.set_num_threads(4)
torch.set_num_interop_threads(3)
(torch.randn(10**6) + 1).sum()  # OpenMP has its threads
if sys.argv[1] == "preflight":
    print(preflight(Wide, Wide().train_dataloader(), devices=2, strategy="ddp", timeout_s=50).ok)
elif sys.argv[1] == "spawn":
    with simulate_cuda(2):
        torch.multiprocessing.spawn(rank, nprocs=2)
        torch.multiprocessing.start_processes(rank, nprocs=2, start_method="spawn")
else:
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with simulate_cuda(2):
        Trainer(strategy="ddp_spawn", accelerator="gpu", devices=2, fast_dev_run=1, **options).fit(Wide())
(torch.randn(10**6) + 1).sum()
print("threads of the parent:", torch.get_num_threads())
"""


# each way to start ranks once: by preflight, by a Trainer that sets their threads, and by the script
@pytest.mark.parametrize(
    ("launcher", "asks", "omp"),
    [("preflight", "asks", None), ("trainer", "asks not", None), ("spawn", "asks", "4")],
    ids=str,
)
def test_ranks_with_threads_fork_after_openmp(launcher, asks, omp):
    """Where torch has computed in parallel before and there are more cores than ranks, ranks do not wait for ever."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if omp is not None:
        environment["OMP_NUM_THREADS"] = omp
    command = [sys.executable, "-c", THREADS, launcher, asks]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # ranks that hang go with their parent
    assert process.returncode == 0
    assert out.endswith("threads of the parent: 4\n")
    if launcher == "preflight":
        assert "True\n" in out
