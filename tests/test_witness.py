"""In a simulation each tensor knows the line that decided its device, however it came into being."""

from __future__ import annotations

import copy
import functools
import io
import linecache
import pickle
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lightning_devcheck import simulate_cuda
from lightning_devcheck._report.report import merge_reports
from lightning_devcheck._run.recorder import recording
from lightning_devcheck._run.spool import saved
from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.generators import made_at
from lightning_devcheck._simulate.tensor.places import decided, decided_line
from lightning_devcheck._witness.places import NOWHERE

DEVICES = ("cpu", "cuda:1")
SOURCE = "torch.full((3,), 2.0, device=device)"


def code_of(line):
    """The code of the call that a place names, by its columns in this file."""
    assert line is not None
    assert line.filename == __file__
    return linecache.getline(line.filename, line.lineno)[line.column : line.end_column]


def deciding(tensor):
    """The code that decided a tensor's device."""
    return code_of(decided_line(tensor))


def source(device):
    """A tensor whose device is decided in this function."""
    return torch.full((3,), 2.0, device=device)


class Marked(torch.Tensor):
    """A subclass of the user's."""


class Doubled(torch.autograd.Function):
    """A Function whose result comes from its input."""

    @staticmethod
    def forward(ctx, tensor):
        return tensor * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Fresh(torch.autograd.Function):
    """A Function whose result is made inside."""

    @staticmethod
    def forward(ctx, tensor):
        return torch.zeros(3)

    @staticmethod
    def backward(ctx, grad):
        return grad


# ---------------------------------------------------------------------------------------------- made of nothing

NUMBERS = np.zeros(3, dtype=np.float32)
MADE = {
    "torch.ones(3)": lambda: torch.ones(3),
    'torch.ones(3, device="cuda")': lambda: torch.ones(3, device="cuda"),
    "torch.tensor([1.0])": lambda: torch.tensor([1.0]),
    'torch.tensor([1.0], device="cuda:1")': lambda: torch.tensor([1.0], device="cuda:1"),
    "torch.as_tensor(NUMBERS)": lambda: torch.as_tensor(NUMBERS),
    'torch.as_tensor(NUMBERS, device="cuda")': lambda: torch.as_tensor(NUMBERS, device="cuda"),
    "torch.asarray([1, 2])": lambda: torch.asarray([1, 2]),
    "torch.from_numpy(NUMBERS)": lambda: torch.from_numpy(NUMBERS),
    "torch.from_dlpack(NUMBERS)": lambda: torch.from_dlpack(NUMBERS),
    "torch.frombuffer(bytearray(8), dtype=torch.int8)": lambda: torch.frombuffer(bytearray(8), dtype=torch.int8),
    "torch.Tensor([1.0])": lambda: torch.Tensor([1.0]),
    "torch.Tensor(3)": lambda: torch.Tensor(3),
    "torch.FloatTensor([1.0])": lambda: torch.FloatTensor([1.0]),
    "torch.LongTensor(3)": lambda: torch.LongTensor(3),
    "torch.cuda.FloatTensor([1.0])": lambda: torch.cuda.FloatTensor([1.0]),
    "torch.cuda.FloatTensor(3)": lambda: torch.cuda.FloatTensor(3),
    "torch.randn(3, generator=torch.Generator())": lambda: torch.randn(3, generator=torch.Generator()),
    "torch.range(0, 3)": lambda: torch.range(0, 3),
    "torch.scalar_tensor(1.0)": lambda: torch.scalar_tensor(1.0),
    "torch.triu_indices(3, 3)": lambda: torch.triu_indices(3, 3),
    "torch.empty(0, 3)": lambda: torch.empty(0, 3),
    "torch.zeros(2, dtype=torch.cfloat)": lambda: torch.zeros(2, dtype=torch.cfloat),
    "torch.sparse_coo_tensor([[0]], [1.0])": lambda: torch.sparse_coo_tensor([[0]], [1.0]),
    "nn.Parameter()": lambda: nn.Parameter(),
    "nn.Linear(2, 2)": lambda: nn.Linear(2, 2).weight,
    'nn.Linear(2, 2, device="cuda")': lambda: nn.Linear(2, 2, device="cuda").bias,
    "nn.BatchNorm1d(2)": lambda: nn.BatchNorm1d(2).running_mean,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", MADE)
def test_what_is_made_is_decided_by_the_call_that_makes_it(code):
    """File, line and columns are those of the factory's call."""
    with simulate_cuda(devices=2):
        line = decided_line(MADE[code]())
    assert (code_of(line), line.function) == (code, "")
    assert f"lambda: {code}" in line.line


def test_without_values_the_line_is_known_as_well():
    """A tensor that holds no values, on a device or too large for the CPU, knows its line."""
    with simulate_cuda(devices=2, values=False):
        assert deciding(source("cuda:1") * 2) == SOURCE
        large = torch.zeros(1000, 1000)
        assert deciding(large + 1) == "torch.zeros(1000, 1000)"
        assert deciding(copy.deepcopy(large)) == "torch.zeros(1000, 1000)"


def test_the_default_device_decides_at_the_factory():
    """`with torch.device("cuda")` leaves the decision to the call that makes the tensor."""
    with simulate_cuda(devices=2), torch.device("cuda"):
        assert deciding(torch.zeros(3)) == "torch.zeros(3)"


def test_the_innermost_line_of_the_user_s_is_named():
    """Of a helper that makes a tensor, the line inside is named; callers are behind it."""

    def helper():
        return torch.zeros(3)

    with simulate_cuda(devices=2):
        line = decided_line(helper())
    assert line.function == "helper"
    assert line.line == "return torch.zeros(3)"


def test_code_without_source_is_named_by_the_line_that_runs_it():
    """A function made by `exec` has no line to show: that of its caller is taken."""
    space = {"torch": torch}
    exec("def made():\n    return torch.zeros(3)", space)
    with simulate_cuda(devices=2):
        assert deciding(space["made"]()) == 'space["made"]()'


# ------------------------------------------------------------------------------------------------ taken over

TAKEN_OVER = {
    "an operator": lambda t: t * 2 + 1,
    "a reduction": lambda t: t.sum(),
    "a view": lambda t: t.view(3, 1),
    "an index": lambda t: t[0],
    "a selection": lambda t: t[t > 0],
    "a chunk": lambda t: t.chunk(3)[1],
    "an unbound part": lambda t: list(t)[2],
    "one of two results": lambda t: t.max(0).indices,
    "a stack": lambda t: torch.stack([t, t]),
    "a row of a list": lambda t: torch._foreach_mul([t, t], 2.0)[1],
    "data": lambda t: t.data,
    "detached": lambda t: t.detach(),
    "cloned": lambda t: t.clone(),
    "another type": lambda t: t.to(torch.float64),
    "half": lambda t: t.half(),
    "zeros_like": lambda t: torch.zeros_like(t),
    "new_zeros": lambda t: t.new_zeros(3),
    "new_tensor": lambda t: t.new_tensor([1.0]),
    "new": lambda t: t.new(3),
    "a parameter": lambda t: nn.Parameter(t),
    "a parameter of a parameter": lambda t: nn.Parameter(nn.Parameter(t)),
    "a buffer": lambda t: nn.Buffer(t),
    "a deep copy": lambda t: copy.deepcopy(t),
    "a deep copy of a parameter": lambda t: copy.deepcopy(nn.Parameter(t)),
    "torch.Tensor": lambda t: torch.Tensor(t),
    "torch.as_tensor": lambda t: torch.as_tensor(t),
    "complex": lambda t: torch.complex(t, t),
    "real": lambda t: torch.complex(t, t).real,
    "sparse": lambda t: t.to_sparse(),
    "sparse values": lambda t: t.to_sparse().coalesce().values(),
    "the same class": lambda t: t.as_subclass(torch.Tensor),
    "a custom Function": lambda t: Doubled.apply(t.requires_grad_()),
    "vmap": lambda t: torch.vmap(lambda x: x * 2)(t),
    "a factory under vmap": lambda t: torch.vmap(lambda x: x + torch.zeros(1, device=x.device))(t),
    "func.grad": lambda t: torch.func.grad(lambda x: (x * 2).sum())(t),
    "functional_call": lambda t: torch.func.functional_call(nn.Identity(), {}, (t * 2,)),
    "torch.compile": lambda t: torch.compile(lambda x: x * 2)(t),
    "a gradient": lambda t: (t.requires_grad_() * 2).sum().backward() or t.grad,
    "autograd.grad": lambda t: torch.autograd.grad((t.requires_grad_() * 2).sum(), t)[0],
    "saved for backward": lambda t: (t.requires_grad_() * 2).square().grad_fn._saved_self,
    "to where it is": lambda t: t.to(t.device),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", TAKEN_OVER)
def test_what_comes_from_a_tensor_takes_its_line_over(way, device):
    """A result is where it is because its operand is."""
    with simulate_cuda(devices=2):
        assert deciding(TAKEN_OVER[way](source(device))) == SOURCE


@pytest.mark.parametrize("device", DEVICES)
def test_inference_mode_changes_nothing(device):
    """Results, views and factories in inference mode know their lines."""
    with simulate_cuda(devices=2):
        before = source(device)
        with torch.inference_mode():
            assert deciding(before * 2) == SOURCE
            assert deciding(before.view(3, 1)) == SOURCE
            assert deciding(torch.ones(3, device=device) * 2) == "torch.ones(3, device=device)"


def test_a_subclass_takes_over():
    """A tensor of the user's own class is where the tensor that it was made of is, and so are its results."""
    with simulate_cuda(devices=2):
        marked = source("cpu").as_subclass(Marked)
        assert type(marked * 2) is Marked
        assert deciding(marked) == deciding(marked * 2) == deciding(marked[0]) == SOURCE
        assert deciding(nn.Parameter(marked)) == SOURCE


def test_an_operand_with_dimensions_goes_before_a_number():
    """A 0-dim tensor may join from anywhere, so the other one decided."""
    with simulate_cuda(devices=2):
        number = torch.tensor(2.0, device="cuda:1")
        assert deciding(number * source("cuda:1")) == SOURCE
        assert deciding(number * 2) == 'torch.tensor(2.0, device="cuda:1")'


def test_an_operand_on_another_device_decides_nothing():
    """The result of a device tensor and a CPU number is on the device because of the first."""
    with simulate_cuda(devices=2):
        assert deciding(torch.tensor(2.0) * source("cuda:1")) == SOURCE


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_written_into_keeps_its_line(device):
    """`out=`, in-place operators, `resize_` and `set_` write values; they decide no device."""
    with simulate_cuda(devices=2):
        kept, other = source(device), torch.ones(3, device=device)
        torch.add(other, 1, out=kept)
        kept.mul_(other).copy_(other)
        kept[0] = other[0]
        assert deciding(kept) == SOURCE
        kept.resize_(2).set_(other)
        assert deciding(kept) == SOURCE


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("before", DEVICES)
@pytest.mark.parametrize("wrap", [lambda t: t, nn.Parameter])
def test_assigned_data_brings_its_line(wrap, before, device):
    """`tensor.data = …` takes over from its right side."""
    with simulate_cuda(devices=2):
        tensor = wrap(torch.ones(3, device=before))
        tensor.data = source(device)
        assert deciding(tensor) == SOURCE


def test_a_result_of_a_custom_function_names_the_line_inside():
    """What `forward` makes itself is decided there, on the CPU as in the caller's place."""
    with simulate_cuda(devices=2):
        line = decided_line(Fresh.apply(source("cuda:1").requires_grad_()))
    assert (line.function, code_of(line)) == ("forward", "torch.zeros(3)")


def test_a_tensor_made_before_the_simulation_was_not_seen():
    """It has no line, nor has what comes from it; what it is moved to has."""
    before = torch.ones(3)
    with simulate_cuda(devices=2):
        assert decided(before) is None
        assert decided_line(before * 2) is decided_line(nn.Parameter(before)) is None
        assert decided(before * 2) == decided(nn.Parameter(before)) == NOWHERE
        assert deciding(before.cuda()) == "before.cuda()"


# ------------------------------------------------------------------------------------------------ decided anew

ANEW = {
    't.to("cuda:0")': lambda t: t.to("cuda:0"),
    't.to(torch.ones(1, device="cuda:0"))': lambda t: t.to(torch.ones(1, device="cuda:0")),
    "t.cuda(0)": lambda t: t.cuda(0),
    't.cpu().type("torch.cuda.DoubleTensor")': lambda t: t.cpu().type("torch.cuda.DoubleTensor"),
    'torch.zeros_like(t, device="cuda:0")': lambda t: torch.zeros_like(t, device="cuda:0"),
    'torch.zeros_like(t, device="cpu")': lambda t: torch.zeros_like(t, device="cpu"),
    "torch.zeros_like(t, device=t.device)": lambda t: torch.zeros_like(t, device=t.device),
    't.new_zeros(3, device="cpu")': lambda t: t.new_zeros(3, device="cpu"),
    't.new_tensor([1.0], device="cuda:0")': lambda t: t.new_tensor([1.0], device="cuda:0"),
    'torch.as_tensor(t, device="cuda:0")': lambda t: torch.as_tensor(t, device="cuda:0"),
    "torch.tensor([t[0], t[1]])": lambda t: torch.tensor([t[0], t[1]]),
    "pickle.loads(pickle.dumps(t))": lambda t: pickle.loads(pickle.dumps(t)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("code", ANEW)
def test_a_call_that_names_a_device_decides_anew(code, device):
    """A move, a factory with `device=` and what unpickles decide at their own line, the CPU included."""
    with simulate_cuda(devices=2):
        assert deciding(ANEW[code](source(device))) == code


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"map_location": "cpu"},
        {"map_location": torch.device("cuda", 0)},
        {"map_location": {"cuda:1": "cuda:0", "cpu": "cuda:0"}},
        {"map_location": lambda storage, _: storage},
        {"weights_only": True},
        {"weights_only": False},
    ],
)
def test_a_load_decides_at_its_line(options, device):
    """Tensors, parameters and what a checkpoint holds them in are decided where `torch.load` is called."""
    file = io.BytesIO()
    with simulate_cuda(devices=2):
        torch.save({"a": [source(device)], "b": nn.Parameter(source(device))}, file)
        file.seek(0)
        loaded = torch.load(file, **options)
        assert deciding(loaded["a"][0]) == deciding(loaded["b"]) == "torch.load(file, **options)"


# -------------------------------------------------------------------------------------------------- modules


def test_a_module_that_is_moved_is_decided_by_the_move():
    """`to`, `cuda`, `cpu` and `to_empty` decide parameters and buffers; `half` and `double` do not."""
    with simulate_cuda(devices=2):
        model = nn.BatchNorm1d(2)
        model.to("cuda")
        assert deciding(model.weight) == deciding(model.running_mean) == 'model.to("cuda")'
        model.half()
        assert deciding(model.weight) == deciding(model.running_mean) == 'model.to("cuda")'
        model.cpu()
        assert deciding(model.weight) == "model.cpu()"
        model.double().cuda(1)
        assert deciding(model.running_var) == "model.double().cuda(1)"
        model.to_empty(device="cuda:0")
        assert deciding(model.weight) == 'model.to_empty(device="cuda:0")'


@pytest.mark.parametrize("device", DEVICES)
def test_copies_of_a_module_take_over(device):
    """`deepcopy` makes new tensors, `copy` shares them: their devices were decided before."""
    with simulate_cuda(devices=2):
        model = nn.BatchNorm1d(2, device=device)
        for made in (copy.deepcopy(model), copy.copy(model)):
            assert deciding(made.weight) == deciding(made.running_mean) == "nn.BatchNorm1d(2, device=device)"


def test_a_state_dict_that_is_copied_decides_nothing():
    """`load_state_dict` writes values; with `assign=True` the given tensors become the parameters."""
    with simulate_cuda(devices=2):
        model = nn.Linear(2, 2, device="cuda")
        state = {name: value.cpu() for name, value in model.state_dict().items()}
        model.load_state_dict(state)
        assert deciding(model.weight) == 'nn.Linear(2, 2, device="cuda")'
        model.load_state_dict(state, assign=True)
        assert deciding(model.weight) == "value.cpu()"


def test_a_lazy_layer_is_decided_where_it_is_made_or_moved():
    """Its first batch gives it a shape, and no device."""
    with simulate_cuda(devices=2):
        made, placed, moved = nn.LazyLinear(2), nn.LazyLinear(3, device="cuda"), nn.LazyLinear(4)
        moved.to("cuda")
        made(torch.ones(1, 3))
        for layer in (placed, moved):
            layer(torch.ones(1, 3, device="cuda"))
        assert deciding(made.weight) == "nn.LazyLinear(2)"
        assert deciding(placed.weight) == 'nn.LazyLinear(3, device="cuda")'
        assert deciding(moved.bias) == 'moved.to("cuda")'


@pytest.mark.parametrize("swapping", [False, True])
def test_an_optimizer_made_before_a_move_holds_the_model_s_parameters(swapping):
    """Weak references to watched tensors do not keep `Module.to` from keeping its parameters' identity."""
    conversion = torch.__future__.get_swap_module_params_on_conversion()
    with simulate_cuda(devices=2):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        torch.__future__.set_swap_module_params_on_conversion(swapping)
        try:
            model.to("cuda").double().to("cpu").to("cuda:1")
        finally:
            torch.__future__.set_swap_module_params_on_conversion(conversion)
        held = optimizer.param_groups[0]["params"]
        assert all(mine is theirs for mine, theirs in zip(held, model.parameters(), strict=True))
        assert deciding(held[0]) == 'model.to("cuda").double().to("cpu").to("cuda:1")'


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("cpu", "cuda:1"), ("cuda:0", "cuda:1")])
def test_swapped_tensors_swap_their_lines(devices):
    """`torch.utils.swap_tensors` swaps what two tensors are, and with it why they are where they are."""
    with simulate_cuda(devices=2):
        first, second = torch.zeros(2, device=devices[0]), torch.ones(2, device=devices[1])
        torch.utils.swap_tensors(first, second)
        assert deciding(first) == "torch.ones(2, device=devices[1])"
        assert deciding(second) == "torch.zeros(2, device=devices[0])"


def test_tensors_that_cannot_be_swapped_keep_their_lines():
    """Torch refuses to swap what a graph holds; the lines stay with their tensors."""
    with simulate_cuda(devices=2):
        first, second = torch.zeros(2, requires_grad=True), torch.ones(2)
        graph = first * 2
        view = graph[:1]
        with pytest.raises(RuntimeError, match="use_count"):
            torch.utils.swap_tensors(graph, second)
        assert deciding(view) == deciding(graph) == "torch.zeros(2, requires_grad=True)"
        assert deciding(second) == "torch.ones(2)"


# ------------------------------------------------------------------------------------- threads, loaders, generators


class Numbers(Dataset):
    """Two examples, made on the CPU."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.full((3,), float(index))


def test_a_thread_knows_its_own_lines():
    """A tensor that another thread makes is decided in the function that runs there."""
    made = []

    def work():
        made.append(torch.zeros(3))

    with simulate_cuda(devices=2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert deciding(made[0]) == "torch.zeros(3)"


def test_a_thread_without_a_line_of_the_user_s_decides_nowhere():
    """Where only Python's and torch's own code runs, there is no line to name."""
    made = []
    work = functools.partial(made.extend, map(torch.ones, [3]))  # no frame of this file
    with simulate_cuda(devices=2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert decided(made[0]) == NOWHERE
        assert decided_line(made[0]) is None


def test_an_example_is_decided_in_getitem_and_so_is_its_batch():
    """Without workers the line in the data set is known, and collating takes over."""
    with simulate_cuda(devices=2):
        batch = next(iter(DataLoader(Numbers(), batch_size=2)))
        assert deciding(batch) == "torch.full((3,), float(index))"


def test_a_batch_of_a_worker_is_decided_where_it_is_taken():
    """What a worker made comes from another process: the loop that takes it is the only line here."""
    with simulate_cuda(devices=2):
        for batch in DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="fork"):
            line = decided_line(batch)
    assert line.line.startswith("for batch in DataLoader(")


def test_a_generator_knows_where_it_was_made():
    """A generator on a device, one of the CPU and a clone know their lines; the default one has none."""
    with simulate_cuda(devices=2):
        on_device, on_cpu = torch.Generator("cuda:1"), torch.Generator()
        lines = [running().places.line(made_at(made)[1]) for made in (on_device, on_cpu, on_device.clone_state())]
        assert [code_of(line) for line in lines] == [
            'torch.Generator("cuda:1")',
            "torch.Generator()",
            "on_device.clone_state()",
        ]
        assert made_at(torch.default_generator) == (None, NOWHERE)
        assert len(running().generators) == 2  # the clone is dead


def test_a_generator_on_another_device_is_reported_with_its_line(tmp_path):
    """What goes on from it says where the generator was made, and counts."""

    def seeded():
        return torch.Generator("cuda:1")

    def draw(generator):
        return torch.randn(3, generator=generator)

    with simulate_cuda(devices=2), recording(tmp_path):
        made = {"noise": seeded()}
        for _ in range(3):
            assert draw(made["noise"]).device.type == "cpu"
    (finding,) = merge_reports(saved(tmp_path)).findings
    assert (finding.rule, finding.count) == ("mixed-devices", 3)
    assert code_of(finding.decided) == code_of(finding.origin) == 'torch.Generator("cuda:1")'
