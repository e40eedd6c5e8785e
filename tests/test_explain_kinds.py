"""Every kind of device error, raised for real on simulated devices: culprit, rule, line (``# here``) and cure."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from lightning_devcheck import explain
from tests.helpers.failing import explained_afterwards as explained
from tests.helpers.source import is_marked

CASES: list[tuple[Any, str, str, str]] = []


def culprit(name, rule="mixed-devices", fix="device="):
    """Mark a step that fails because of what is called ``name``, with its rule and a part of the cure."""
    return lambda step: CASES.append((step, name, rule, fix)) or step


@culprit("shift", fix="shift = torch.ones(4, device=x.device)")
def binary(x):
    shift = torch.ones(4)  # here
    return x + shift


@culprit("weight")
def matmul(x):
    weight = torch.rand(4, 3)  # here
    return x @ weight


@culprit("bias")
def linear(x):
    weight = torch.rand(3, 4, device=x.device)
    bias = torch.rand(3)  # here
    return F.linear(x, weight, bias)


@culprit("padding")
def cat(x):
    padding = torch.zeros(2, 1)  # here
    return torch.cat([x, padding], 1)


@culprit("first")
def stack(x):
    first = torch.tensor(0.0)  # here
    return torch.stack([first, x.mean()])


@culprit("fill")
def where(x):
    fill = torch.zeros(4)  # here
    return torch.where(x > 0, x, fill)


@culprit("mask")
def masked_fill(x):
    mask = torch.zeros(2, 4, dtype=torch.bool)  # here
    return x.masked_fill(mask, 0.0)


@culprit("table")
def device_index_into_a_host_table(x):
    table = torch.rand(4, 3)  # here
    return table[x.argmax(1)]


@culprit("index")
def gather(x):
    index = torch.zeros(2, 1, dtype=torch.long)  # here
    return x.gather(1, index)


@culprit("source")
def scatter(x):
    source = torch.ones(2, 4)  # here
    return x.scatter_add(1, torch.zeros_like(x, dtype=torch.long), source)


@culprit("tokens")
def embedding_of_host_tokens(x):
    embedding = nn.Embedding(5, 2).to(x.device)
    tokens = torch.tensor([1, 2])  # here
    return embedding(tokens)


@culprit("embedding.weight", fix=".to(x.device)")
def embedding_that_was_not_moved(x):
    embedding = nn.Embedding(5, 2)  # here
    return embedding(x.long())


@culprit("convolution.weight", fix="")
def convolution_that_was_not_moved(x):
    convolution = nn.Conv1d(2, 2, 1)  # here
    return convolution(x[None])


@culprit("noise")
def convolution_of_host_input(x):
    convolution = nn.Conv1d(2, 2, 1).to(x.device)
    noise = torch.randn(1, 2, 4)  # here
    return convolution(noise)


@culprit("norm.weight", fix="norm = nn.BatchNorm1d(4).to(x.device)")
def batch_norm(x):
    norm = nn.BatchNorm1d(4)  # here
    return norm(x)


@culprit("weight")
def cross_entropy_weight(x):
    weight = torch.ones(4)  # here
    return F.cross_entropy(x, x.argmax(1), weight=weight)


@culprit("criterion.pos_weight")
def criterion_weight(x):
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.ones(4))  # here
    return criterion(x, x)


@culprit("target")
def host_target(x):
    target = torch.zeros(2, 4)  # here
    return F.binary_cross_entropy(torch.sigmoid(x), target)


@culprit("mask")
def attention_mask(x):
    query = torch.ones(1, 1, 2, 4, device=x.device)
    mask = torch.zeros(2, 2)  # here
    return F.scaled_dot_product_attention(query, query, query, attn_mask=mask)


@culprit("state")
def state_of_a_recurrent_layer(x):
    layer = nn.GRU(4, 3, batch_first=True).to(x.device)
    state = torch.zeros(1, 1, 3)  # here
    return layer(x[None], state)


@culprit("out")
def out_argument(x):
    out = torch.empty(2, 4)  # here
    torch.add(x, x, out=out)


@culprit("counts")
def written_by_device_indices(x):
    counts = torch.zeros(4, dtype=torch.long)  # here
    counts[x.argmax(1)] = 1


@culprit("source")
def generator(x):
    source = torch.Generator()  # here
    return torch.empty(3, device=x.device).normal_(generator=source)


@culprit("hidden", "host-read", "hidden.detach().cpu().numpy()")
def numpy_of_a_device_tensor(x):
    hidden = x * 2  # here
    return hidden.numpy()


@culprit("hidden", "host-read", "hidden.detach().cpu().numpy()")
def numpy_reads_a_device_tensor(x):
    hidden = x * 2  # here
    return np.asarray(hidden)


@culprit("gradient", "gradient-device")
def assigned_gradient(x):
    parameter = nn.Parameter(x)
    gradient = torch.zeros(2, 4)  # here
    parameter.grad = gradient


@culprit("torch.zeros(2, 4)", "gradient-device")
def gradient_made_where_it_is_assigned(x):
    parameter = nn.Parameter(x)
    parameter.grad = torch.zeros(2, 4)  # here


@culprit("start", "gradient-device")
def gradient_handed_to_backward(x):
    start = torch.ones(2, 4)  # here
    (x.requires_grad_() * 2).backward(start)


@culprit("start", "gradient-device")
def gradient_handed_to_grad(x):
    start = torch.ones(2, 4)  # here
    torch.autograd.grad(x.requires_grad_() * 2, x, grad_outputs=start)


class Returns(torch.autograd.Function):
    """Its backward returns one of two gradients on the host."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).cpu()  # here


@culprit("Returns.backward", "gradient-device", "torch.ones_like(grad)")
def backward_of_a_function(x):
    weight = torch.ones(2, 4, device=x.device, requires_grad=True)
    Returns.apply(x, weight).relu().sum().backward()


class Mixes(torch.autograd.Function):
    """Its backward fails itself."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        scale = torch.ones(4)  # here
        return grad * scale


@culprit("scale")
def backward_that_fails(x):
    Mixes.apply(x.requires_grad_()).sum().backward()


@culprit("hook on hidden", "gradient-device", ".cpu()")
def hook(x):
    hidden = x.requires_grad_() * 2

    def clip(grad):
        return grad.cpu().clamp(-1, 1)

    hidden.register_hook(clip)  # here
    hidden.sum().backward()


@culprit("scale")
def hook_that_fails(x):
    hidden = x.requires_grad_() * 2
    scale = torch.ones(4)  # here
    hidden.register_hook(lambda grad: grad * scale)
    hidden.sum().backward()


@culprit('x.to("cuda:7")', "wrong-rank-device", "x.to(self.device)")
def device_that_is_not_there(x):
    return x.to("cuda:7")  # here


@culprit("accuracy", "metric-device", "nn.ModuleDict")
def metric(x):
    accuracy = MulticlassAccuracy(4)  # here
    accuracy.update(x, x.argmax(1))


@culprit('metrics["mean"]', "metric-device", "nn.ModuleDict")
def metric_of_a_collection(x):
    metrics = MetricCollection({"mean": MeanMetric()})  # here
    metrics.update(x)


@culprit("target")
def target_of_a_metric(x):
    accuracy = MulticlassAccuracy(4).to(x.device)
    target = torch.tensor([0, 1])  # here
    accuracy.update(x, target)


def step_after_the_move(x, make, load=False):
    """An optimizer whose state was made on the host steps on the device."""
    net = nn.Linear(4, 1)
    optimizer = make(net.parameters())
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if load:
        state, net = optimizer.state_dict(), nn.Linear(4, 1)
        optimizer = make(net.parameters())
        optimizer.load_state_dict(state)
    net.zero_grad()
    net.to(x.device)
    net(x).sum().backward()
    optimizer.step()


OPTIMIZERS = {
    "adam": (lambda parameters: torch.optim.Adam(parameters, foreach=False), False),
    "foreach": (lambda parameters: torch.optim.AdamW(parameters, foreach=True), False),
    "momentum": (lambda parameters: torch.optim.SGD(parameters, momentum=0.9), False),
    "loaded": (torch.optim.AdamW, True),
}


def with_nccl(step):
    """Run a step in a group of one process that speaks NCCL."""
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        step()
    finally:
        dist.destroy_process_group()


@culprit("total", "collective-device")
def all_reduce(x):
    total = torch.zeros(1)  # here
    with_nccl(lambda: dist.all_reduce(total))


@culprit("parts[0]", "collective-device")
def all_gather(x):
    parts = [torch.zeros(2, 4)]  # here
    with_nccl(lambda: dist.all_gather(parts, x))


@culprit("model[1].weight", "parameter-device", "configure_model")
def distributed_module_on_two_devices(x):
    model = nn.Sequential(nn.Linear(4, 4).to(x.device), nn.Linear(4, 1))  # here
    with_nccl(lambda: DistributedDataParallel(model))


@culprit("model", "parameter-device", "configure_model")
def distributed_module_on_the_host(x):
    model = nn.Linear(4, 1)  # here
    with_nccl(lambda: DistributedDataParallel(model, device_ids=[1]))


@culprit("model[1].weight", "meta-parameter", "configure_model")
def sharded_module_without_data(x):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1, device="meta"))  # here
    dist.init_process_group("cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(model)(torch.ones(2, 4))
    finally:
        dist.destroy_process_group()


@culprit("model[0].weight", "meta-parameter", "to_empty")
def moving_a_module_without_data(x):
    model = nn.Sequential(nn.Linear(4, 4, device="meta"), nn.Linear(4, 1))  # here
    model.to("cpu")


@pytest.mark.parametrize(("step", "name", "rule", "fix"), CASES, ids=[case[0].__name__ for case in CASES])
def test_kind(step, name, rule, fix):
    """The culprit has the user's name, its rule, the line that made it and a cure."""
    finding = explained(step)
    assert (finding.name, finding.rule) == (name, rule)
    assert is_marked(finding.origin, "# here")
    assert fix in finding.fix


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_state_of_an_optimizer(kind):
    """State left behind is named by its parameter, with the line that made the optimizer."""
    make, load = OPTIMIZERS[kind]
    finding = explained(lambda x: step_after_the_move(x, make, load))
    assert (finding.rule, finding.name, finding.device) == ("optimizer-device", "net.weight", "cpu")
    assert finding.origin.line == "optimizer = make(net.parameters())"
    assert "the optimizer state of net.weight is on cpu, net.weight is on cuda:1" in finding.what


def saved_from_a_gpu():
    """A checkpoint as a machine with a GPU writes it: its storages are tagged ``cuda:0``."""
    here, there = io.BytesIO(), io.BytesIO()
    torch.save({"weight": torch.ones(3)}, here)
    with zipfile.ZipFile(here) as source, zipfile.ZipFile(there, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0"))
    there.seek(0)
    return there


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_checkpoint_of_a_device_that_is_not_there():
    """Loading what was saved from a GPU names the call and gives it a ``map_location``."""
    file = saved_from_a_gpu()
    with pytest.raises(RuntimeError, match="Attempting to deserialize") as caught:
        torch.load(file)
    finding = explain(caught.value).findings[0]
    assert (finding.rule, finding.name) == ("wrong-rank-device", "torch.load(file)")
    assert "map_location=self.device" in finding.fix


@pytest.mark.skipif(torch.cuda.is_available() or torch.version.cuda is not None, reason="a build without CUDA")
def test_build_without_cuda():
    """A CPU build of torch is told from the user's call."""
    # which of the two torch says depends on whether a "device" was started before in this process
    words = "Torch not compiled with CUDA enabled|PyTorch is not linked with support for cuda devices"
    with pytest.raises((AssertionError, RuntimeError), match=words) as caught:
        torch.ones(2).cuda()
    finding = explain(caught.value).findings[0]
    assert (finding.rule, finding.name) == ("wrong-rank-device", "torch.ones(2).cuda()")


@pytest.mark.ddp
def test_process_that_was_left_alone(tmp_path):
    """A process whose peer is gone says nothing of its own tensors, and where to look."""
    command = [sys.executable, str(Path(__file__).parent / "helpers" / "left_alone.py")]
    other = subprocess.Popen([*command, "1", str(tmp_path / "store")])
    run = subprocess.run([*command, "0", str(tmp_path / "store")], capture_output=True, text=True, timeout=120)
    other.wait()  # gloo may abort it on the way out
    assert "look at the report of the process that failed first" in run.stdout, run.stderr
    assert "no findings" in run.stdout
