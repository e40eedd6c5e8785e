"""What a simulation goes on from besides operators: ranks, modes, loaders, and what a refusal says."""

from __future__ import annotations

import json
import threading
from unittest.mock import ANY

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.going_on import going_on

CUDA = torch.device("cuda", 0)


def noted(call, **simulation):
    """What a call gives in a simulation that goes on: its result, and the error, strays and home of each refusal."""
    refusals = []

    def note(refusal):
        refusals.append((str(refusal.error), list(refusal.strays), refusal.expected))

    with simulate_cuda(devices=2, **simulation), going_on(note):
        return call(), refusals


# --- what a refusal says


def hidden_state():
    """A hidden state on the CPU."""
    layer, hidden = nn.GRU(3, 4).cuda(), torch.zeros(1, 1, 4)
    layer(torch.ones(2, 1, 3, device=CUDA), hidden)
    return [hidden]


def attention():
    """A key on the CPU."""
    query, key = torch.ones(1, 2, 3, device=CUDA), torch.ones(1, 2, 3)
    F.scaled_dot_product_attention(query, key, query)
    return [key]


def attention_far():
    """A key on another device."""
    query, key = torch.ones(1, 2, 3, device=CUDA), torch.ones(1, 2, 3, device="cuda:1")
    F.scaled_dot_product_attention(query, key, query)
    return [key]


def recurrent_input():
    """An input on the CPU, of which the layer makes a hidden state there."""
    layer, given = nn.LSTM(3, 4).cuda(), torch.ones(2, 1, 3)
    layer(given)
    return [given]


def lengths():
    """Lengths on the device."""
    given = torch.tensor([3, 2], device=CUDA)
    nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4, device=CUDA), given)
    return [given]


def assigned_far():
    """A gradient on another device."""
    parameter, gradient = nn.Parameter(torch.ones(3, device=CUDA)), torch.ones(3, device="cuda:1")
    parameter.grad = gradient
    return [gradient]


def pinned():
    """A device tensor that is pinned."""
    given = torch.ones(3, device=CUDA)
    given.pin_memory()
    return [given]


def read():
    """A device tensor that NumPy reads."""
    given = torch.ones(3, device=CUDA)
    given.numpy()
    return [given]


SAID = {
    hidden_state: (
        "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu",
        "cuda:0",
    ),
    attention: (
        "Expected query, key, and value to have the same device type, but got query.device: cuda:0 key.device: cpu "
        "and value.device: cuda:0 instead.",
        "cuda:0",
    ),
    attention_far: (
        "Expected query, key, and value to have the same device type, but got query.device: cuda:0 key.device: "
        "cuda:1 and value.device: cuda:0 instead.",
        "cuda:0",
    ),
    recurrent_input: (
        "Input and parameter tensors are not at the same device, found input tensor at cpu and parameter tensor at "
        "cuda:0",
        "cuda:0",
    ),
    lengths: ("'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor", "cpu"),
    assigned_far: (
        "attempting to assign a gradient located on device with index '1' to a tensor located on device with index "
        "'0'. Please ensure that the gradient and the tensor are on the same device",
        "cuda:0",
    ),
    pinned: ("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned", "cpu"),
    read: (
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
        "cpu",
    ),
}


@pytest.mark.parametrize("mistake", SAID, ids=lambda mistake: mistake.__name__)
def test_a_refusal_names_the_stray_and_its_home(mistake):
    """One refusal, in CUDA's words, of the very tensor that is elsewhere; without going on it is raised."""
    text, home = SAID[mistake]
    strays, refusals = noted(mistake)
    assert refusals == [(text, ANY, torch.device(home))]
    assert [id(stray) for stray in refusals[0][1]] == [id(stray) for stray in strays]
    with simulate_cuda(devices=2), pytest.raises((RuntimeError, TypeError)) as raised:
        mistake()
    assert str(raised.value) == text


def test_numpy_still_refuses_a_tensor_that_requires_a_gradient():
    """What the CPU refuses is refused after the device is gone on from."""
    refusals = []
    with simulate_cuda(), going_on(refusals.append):
        with pytest.raises(RuntimeError, match="Can't call numpy"):
            torch.ones(3, device=CUDA, requires_grad=True).numpy()
        assert len(refusals) == 1


def test_an_array_is_a_copy():
    """Writing into the array leaves the tensor as it is, as after ``.cpu()``."""
    with simulate_cuda(), going_on(lambda refusal: None):
        tensor = torch.ones(3, device=CUDA)
        tensor.numpy()[0] = 5
        assert tensor.tolist() == [1, 1, 1]


def test_a_hook_is_named_as_torch_names_it():
    """The refusal of a hook's gradient has torch's words, and hooks that were gone on from keep their handle."""

    def away(gradient):
        return gradient.cpu()

    def train():
        weight = torch.ones(3, device=CUDA, requires_grad=True)
        handle = weight.register_hook(away)
        (weight * 2).sum().backward()
        handle.remove()
        (weight * 2).sum().backward()
        return weight.grad

    gradient, refusals = noted(train)
    assert gradient.device == CUDA
    assert gradient._inner.tolist() == [4, 4, 4]
    assert [text for text, _, _ in refusals] == [
        "hook 'away' has changed the type of value (was torch.cuda.FloatTensor got torch.FloatTensor)"
    ]


# --- modes


def test_without_values_shapes_go_on():
    """Where the simulation keeps no values, what is gone on from has its shape, its device and its gradient."""

    def train():
        layer, weight = nn.GRU(3, 4).cuda(), torch.ones(4, 2, requires_grad=True)
        out, _ = layer(torch.ones(2, 1, 3, device=CUDA), torch.zeros(1, 1, 4))
        mixed = F.scaled_dot_product_attention(out @ weight, torch.ones(2, 1, 2), torch.ones(2, 1, 2))
        mixed.sum().backward()
        return mixed.device, mixed.shape, weight.grad.device, weight.grad.shape

    result, refusals = noted(train, values=False)
    assert result == (CUDA, (2, 1, 2), torch.device("cpu"), (4, 2))
    assert {expected for _, _, expected in refusals} == {CUDA}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_what_is_gone_on_from(dtype):
    """Under autocast the values are those of the corrected twin, and the mistake is noted."""

    def train(device):
        torch.manual_seed(3)
        layer, norm = nn.Linear(4, 4).to(device), nn.LayerNorm(4).cuda()
        with torch.autocast("cuda", dtype):
            out = norm(layer(torch.ones(2, 4, device=CUDA)).relu())
            loss = F.binary_cross_entropy_with_logits(out, torch.ones(2, 4, device=device))
        loss.backward()
        return [loss.tolist(), out.dtype, layer.weight.grad.dtype, layer.weight.grad.tolist()]

    mistaken, refusals = noted(lambda: train("cpu"))
    right, none = noted(lambda: train("cuda"))
    assert mistaken == right
    assert refusals
    assert none == []


def test_what_is_made_of_parts_draws_once():
    """A layer that refuses after its dropout has drawn runs again with the same numbers, and leaves the next alone."""

    def infer(device):
        torch.manual_seed(3)
        layer = nn.LSTM(3, 4, 2, dropout=0.5).cuda()
        layer.weight_ih_l1.data = layer.weight_ih_l1.data.to(device)
        batch = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 3, device=CUDA), torch.tensor([3, 2]))
        with torch.inference_mode():
            return [layer(batch)[0].data.tolist(), torch.rand(2).tolist()]

    mistaken, refusals = noted(lambda: infer("cuda:1"))
    right, _ = noted(lambda: infer("cuda:0"))
    assert mistaken == right
    assert len(refusals) == 1


def test_threads_go_on_too():
    """A mistake in another thread is noted as well, and its result is there."""

    def work():
        results = []

        def multiply():
            results.append((torch.ones(3, device=CUDA) * torch.arange(3.0)).tolist())

        thread = threading.Thread(target=multiply)
        thread.start()
        thread.join()
        return results

    results, refusals = noted(work)
    assert results == [[0, 1, 2]]
    assert len(refusals) == 1


def test_a_loader_pins_what_is_on_a_device_already():
    """A dataset of device tensors with ``pin_memory=True`` is refused, and its batches are as without pinning."""

    def load():
        loader = DataLoader(torch.arange(4.0, device=CUDA), batch_size=2, pin_memory=True)
        return [batch.tolist() for batch in loader]

    batches, refusals = noted(load)
    assert batches == [[0, 1], [2, 3]]
    assert {text for text, _, _ in refusals} == {
        "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
    }
    _, none = noted(lambda: list(DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True)))
    assert none == []


# --- ranks


def trained(model, rank, device, wrap=True, ids=None):
    """A model's parameters after two steps in DistributedDataParallel; they stay the objects that an optimizer has."""
    before = list(model.parameters())
    optimizer = torch.optim.SGD(before, 0.1)
    wrapped = DistributedDataParallel(model, device_ids=ids)
    for _ in range(2):
        wrapped(torch.full((2, 3), rank + 1.0).to(device)).sin().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(one is other for one, other in zip(before, model.parameters(), strict=True))
    return [parameter.tolist() for parameter in model.parameters()]


def part_on_the_cpu(rank, device, ids):
    """One layer was never moved."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].to(device)
    return trained(model, rank, device, ids=ids)


def all_on_the_cpu(rank, device, ids):
    """No layer was moved, and no device given."""
    return trained(nn.Linear(3, 2), rank, device)


def all_on_the_cpu_for_a_device(rank, device, ids):
    """No layer was moved."""
    return trained(nn.Linear(3, 2), rank, device, ids=ids)


def part_elsewhere(rank, device, ids):
    """One layer is on the other rank's device."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).to(device)
    if ids:
        model[1].to(f"cuda:{1 - rank}")
    return trained(model, rank, device, ids=ids)


class Sums(nn.Linear):
    """Sums up on the CPU, so that gradients come from there."""

    def forward(self, given):
        total = torch.zeros(len(given), 2)
        return total.add_(super().forward(given))


def sum_on_the_cpu(rank, device, ids):
    """Gradients that come from the CPU are in their buckets on the device."""
    return trained(Sums(3, 2).to(device), rank, device, ids=ids)


def collectives(rank, device, ids):
    """CPU tensors in collectives, one by one and in lists."""
    here, there = torch.ones(2) * rank, torch.ones(2, device=device) * rank
    total, copy = here.clone(), here.clone()
    dist.all_reduce(total)
    gathered, away = [torch.zeros(2) for _ in range(2)], [torch.zeros(2, device=device) for _ in range(2)]
    dist.all_gather(gathered, there)
    dist.all_gather(away, here)
    dist.broadcast(copy if rank else there, 1)
    part, whole = torch.zeros(2), torch.zeros(4)
    if torch.__version__ >= (2, 8):  # gloo of torch 2.6 has none
        dist.reduce_scatter(part, [there, there + 1])
    dist.all_gather_into_tensor(whole, there)
    dist.all_reduce(here, async_op=True).wait()
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    return [value.tolist() for value in (total, *gathered, *away, copy, there, part, whole, here)] + objects


NO_BACKEND = "No backend type associated with device type cpu"
ON_RANKS = {
    part_on_the_cpu: ["DistributedDataParallel's input module must be on the same type of devices"],
    all_on_the_cpu: [NO_BACKEND],
    all_on_the_cpu_for_a_device: ["DistributedDataParallel device_ids and output_device arguments only work with"],
    part_elsewhere: ["DistributedDataParallel device_ids and output_device arguments only work with"],
    sum_on_the_cpu: ["Expected all tensors to be on the same device"],
    collectives: [NO_BACKEND],
}


def rank_of_two(rank, program, simulated, folder, messages):
    """Run a program on one of two ranks, and save what it gives and what was noted."""
    device, ids = torch.device("cpu"), None
    if simulated:
        torch.cuda.set_device(rank)
        device, ids = torch.device("cuda", rank), [rank]
    store = dist.FileStore(str(folder / f"store {simulated}"), 2)
    dist.init_process_group("nccl" if simulated else "gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    result = program(rank, device, ids)
    (folder / f"{simulated} {rank}.json").write_text(json.dumps([result, messages]))
    dist.destroy_process_group()


@pytest.mark.ddp
@pytest.mark.parametrize("program", ON_RANKS, ids=lambda program: program.__name__)
def test_ranks_go_on(tmp_path, program):
    """Two ranks with a mistake end as two CPU ranks, and as many collectives come to their end on both."""
    messages = []

    def note(refusal):
        messages.append(str(refusal.error))

    start = {"nprocs": 2, "start_method": "fork"}
    mp.start_processes(rank_of_two, (program, False, tmp_path, messages), **start)
    with simulate_cuda(devices=2), going_on(note):
        mp.start_processes(rank_of_two, (program, True, tmp_path, messages), **start)
    for rank in range(2):
        plain, none = json.loads((tmp_path / f"False {rank}.json").read_text())
        gone_on, told = json.loads((tmp_path / f"True {rank}.json").read_text())
        assert gone_on == plain
        assert none == []
        begins = tuple(ON_RANKS[program])
        assert told
        assert all(text.startswith(begins) for text in told)
