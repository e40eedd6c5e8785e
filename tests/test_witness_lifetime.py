"""What is written down of tensors goes with them: nothing is kept alive, nothing is left on them, nothing lies."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.places import decided, decided_line
from lightning_devcheck._witness.places import NOWHERE
from tests.helpers.training import Clean, make_trainer

DEVICES = ("cpu", "cuda:1")


def step(model, optimizer, inputs):
    """A training step with a CPU tensor in it."""
    optimizer.zero_grad()
    weight = torch.rand(4).to("cuda:1")
    loss = F.mse_loss(model(inputs) * weight, inputs)
    loss.backward()
    optimizer.step()


def trained():
    """A small model on a device, its optimizer and a batch."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda:1")
    return model, torch.optim.Adam(model.parameters()), torch.ones(2, 4, device="cuda:1")


def _unseen(count):
    """Tensors that the simulation has not seen being made: the generator's state comes from no operator."""
    return [torch.default_generator.get_state() for _ in range(count)]


def test_a_new_tensor_has_no_place_of_a_dead_one():
    """Ids are used again at once: ten thousand tensors that are dropped leave no entry, and none lies."""
    seen = set()
    with simulate_cuda(devices=2):
        table = running().places_of_plain
        before = len(table)
        for _ in range(10_000):
            tensor = torch.zeros(1)
            seen.add(id(tensor))
        assert len(seen) < 10_000
        del tensor
        assert len(table) == before
        assert {decided(tensor) for tensor in _unseen(100)} == {None}


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_dies_when_the_user_drops_it(device):
    """Nothing that the simulation writes down keeps a tensor, a module or a generator alive."""
    with simulate_cuda(devices=2):
        model, generator = nn.Linear(4, 4, device=device), torch.Generator(device)
        result = model(torch.ones(1, 4, device=device))
        dying = [weakref.ref(value) for value in (model, model.weight, generator, result)]
        del model, generator, result
        assert [reference() for reference in dying] == [None] * 4
        assert running().generators == {}


def test_a_thousand_steps_write_down_what_ten_do():
    """Entries, places and code objects are those of the lines that run, however often they do."""
    with simulate_cuda(devices=2):
        model, optimizer, inputs = trained()
        sizes = set()
        for count in (10, 500):
            for _ in range(count):
                step(model, optimizer, inputs)
            gc.collect()
            simulation = running()
            places = simulation.places
            counts = map(len, (simulation.places_of_plain, places._places, places._codes, places._kinds))
            sizes.add(tuple(counts))
        assert len(sizes) == 1


@pytest.mark.parametrize("failing", [False, True])
def test_no_weak_reference_outlives_the_simulation(failing):
    """After the block torch swaps the user's tensors again, also where it was left by an exception."""
    tensor, other = torch.ones(2), torch.zeros(2)
    kept = []
    try:
        with simulate_cuda(devices=2):
            kept += [nn.Parameter(tensor), torch.ones(2)]
            tensor.data = other
            assert weakref.getweakrefcount(tensor) == 1
            if failing:
                raise KeyError("the user's")
    except KeyError:
        pass
    assert [weakref.getweakrefcount(each) for each in (tensor, other, *kept)] == [0] * 4
    torch.utils.swap_tensors(tensor, kept[1])
    assert (tensor.tolist(), kept[1].tolist()) == ([1.0, 1.0], [0.0, 0.0])


@pytest.mark.parametrize("device", DEVICES)
def test_weak_references_of_the_user_s_work(device):
    """Their callbacks run once, when the tensor dies, and swapping such tensors is refused as torch does."""
    told = []
    with simulate_cuda(devices=2):
        tensor, other = torch.ones(2, device=device), torch.ones(2, device=device)
        references = weakref.ref(tensor), weakref.ref(tensor, told.append)
        with pytest.raises(RuntimeError, match="weakref associated"):
            torch.utils.swap_tensors(tensor, other)
        # by identity: equal references ask whether their tensors are equal
        assert {*map(id, references)} <= {*map(id, weakref.getweakrefs(tensor))}
        assert decided(tensor) == decided(tensor * 2)
        del tensor
        assert [each is references[1] for each in told] == [True]


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_user_sees_of_a_tensor_is_unchanged(device):
    """Attributes, copies, pickles and files have what the user gave them and nothing more."""
    with simulate_cuda(devices=2):
        tensor = torch.ones(3, device=device)
        tensor.mine = "kept"
        files = []
        for made in (tensor, nn.Parameter(tensor), nn.Linear(2, 2).to(device).state_dict()):
            files.append(io.BytesIO())
            torch.save(made, files[-1])
        pickled = pickle.dumps(tensor)
        copies = copy.copy(tensor), copy.deepcopy(tensor)
        assert [made.mine for made in copies] == ["kept", "kept"]
    for file in files:
        assert b"_place" not in file.getvalue()
    loaded = pickle.loads(pickled)
    assert type(loaded) is torch.Tensor
    assert vars(loaded) == {"mine": "kept"}
    files[0].seek(0)
    assert vars(torch.load(files[0], weights_only=False)) == {"mine": "kept"}
    files[2].seek(0)
    assert all(vars(value) == {} for value in torch.load(files[2], weights_only=False).values())


def test_plain_tensors_get_no_attribute():
    """What is known of a CPU tensor stands beside it."""
    with simulate_cuda(devices=2):
        for tensor in (torch.ones(3), nn.Parameter(torch.ones(3)), torch.ones(3) * 2):
            assert decided(tensor)
            assert vars(tensor) == {}


def test_a_forked_process_resolves_its_parent_s_lines():
    """A rank that is forked knows the lines of the tensors it has inherited, and of its own."""
    with simulate_cuda(devices=2):
        inherited = torch.zeros(3), torch.zeros(3, device="cuda:1")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            own = torch.ones(3) * 2
            lines = [decided_line(tensor) for tensor in (*inherited, own)]
            os.write(writing, "\n".join(line.line for line in lines).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = pipe.read().splitlines()
        os.waitpid(child, 0)
    assert told == ['inherited = torch.zeros(3), torch.zeros(3, device="cuda:1")'] * 2 + ["own = torch.ones(3) * 2"]


# ------------------------------------------------------------------------------------------------ under Lightning


class Rows(Dataset):
    """Examples that are made where they are asked for."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((4,), float(index))


class Noting(Clean):
    """Notes what decided the batch, the parameters and a tensor of its own."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def on_before_batch_transfer(self, batch, dataloader_idx):
        self.seen["batch"] = decided_line(batch)
        return batch

    def training_step(self, batch, batch_idx):
        made = torch.ones(4)
        self.seen |= {"made": decided_line(made), "scaled": decided_line(made * 2)}
        self.seen |= {"moved batch": decided(batch), "weight": decided(self.net[0].weight)}
        loss = F.mse_loss(self.net(batch), batch)
        self.seen["loss"] = decided(loss)
        return loss

    def on_after_backward(self):
        self.seen["gradient"] = decided(self.net[0].weight.grad)


@pytest.mark.parametrize("workers", [0, 1])
def test_under_lightning_only_lines_below_its_frames_count(workers):
    """What Lightning moves has no line; what the user's hooks and data set make has theirs, and workers' has none."""
    with simulate_cuda(devices=2):
        loader = DataLoader(
            Rows(), batch_size=2, num_workers=workers, multiprocessing_context="fork" if workers else None
        )
        model = Noting()
        make_trainer(accelerator="gpu", devices=[1], max_steps=2).fit(model, loader)
    seen = model.seen
    assert seen["made"] == seen["scaled"]
    assert seen["made"].line == "made = torch.ones(4)"
    assert {seen["moved batch"], seen["weight"], seen["loss"], seen["gradient"]} == {NOWHERE}
    if workers:
        assert seen["batch"] is None
    else:
        assert seen["batch"].line == "return torch.full((4,), float(index))"
