"""Simulated CUDA devices: where tensors are, what mixes, what CUDA says, and that everything is put back."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.ops.plan import PLANS
from lightning_devcheck._simulate.state import active
from tests.helpers.training import Clean, make_loader, make_trainer

aten = torch.ops.aten


@pytest.fixture
def cuda():
    """Two simulated devices, the second current."""
    with simulate_cuda(devices=2):
        torch.cuda.set_device(1)
        yield


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_unmodified_trainer_fits(precision):
    """A Trainer on one simulated device trains in every precision and leaves the model there."""
    with simulate_cuda(devices=2):
        model = Clean()
        trainer = make_trainer(accelerator="gpu", devices=[1], precision=precision)
        trainer.fit(model, make_loader())
        assert trainer.strategy.root_device == torch.device("cuda", 1)
        assert trainer.global_step == 3


def test_trains_to_the_same_weights_as_the_cpu():
    """Values are the CPU's, bit for bit, dropout and batch norm included."""

    def train(**kwargs):
        torch.manual_seed(3)
        model = Clean()
        make_trainer(**kwargs).fit(model, make_loader(8))
        return {name: tensor.cpu() for name, tensor in model.state_dict().items()}

    plain = train()
    with simulate_cuda(devices=2):
        simulated = train(accelerator="gpu", devices=[1])
        assert all(torch.equal(simulated[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, device="cuda"),
        lambda: torch.zeros(2, device=torch.device("cuda", 1)),
        lambda: torch.tensor([1.0], device="cuda:1"),
        lambda: torch.tensor([1.0], device=1),
        lambda: torch.arange(3, device="cuda"),
        lambda: torch.ones(2).cuda(),
        lambda: torch.ones(2).cuda(1),
        lambda: torch.ones(2).to("cuda"),
        lambda: torch.ones(2).to(1),
        lambda: torch.ones(2).to(device="cuda", dtype=torch.float16),
        lambda: torch.ones(2).to(torch.ones(1, device="cuda")),
        lambda: torch.ones(2, device="cuda").new_zeros(3),
        lambda: torch.randn_like(torch.ones(2, device="cuda")),
        lambda: torch.ones(2, 2, device="cuda").half().T.contiguous().data,
        lambda: nn.Linear(2, 2, device="cuda").weight,
        lambda: nn.Linear(2, 2).to("cuda").weight,
        lambda: nn.MultiheadAttention(4, 2).cuda()(*[torch.ones(1, 1, 4).cuda()] * 3)[0],
        lambda: nn.LSTM(4, 3).cuda()(torch.ones(2, 1, 4).cuda())[1][0],
        lambda: copy.deepcopy(torch.ones(2, device="cuda")),
        lambda: pickle.loads(pickle.dumps(torch.ones(2, device="cuda"))),
    ],
)
def test_everything_lands_on_the_device(cuda, make):
    """Factories, moves, conversions, layers and copies give tensors on the device that was meant."""
    tensor = make()
    assert tensor.device == torch.device("cuda", 1)
    assert tensor.is_cuda
    assert not tensor.is_cpu
    assert tensor.get_device() == 1


@pytest.mark.parametrize(
    "mix",
    [
        lambda a: a + torch.ones(4),
        lambda a: torch.zeros(1).add_(a[0, 0]),
        lambda a: torch.zeros(()).add_(a[0, 0]),
        lambda a: torch.stack([a[0, 0], torch.tensor(0.0)]),
        lambda a: torch.cat([a, torch.zeros(1, 4)]),
        lambda a: torch.where(a > 0, a, torch.zeros(4, 4)),
        lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2, 3])),
        lambda a: F.cross_entropy(a, torch.zeros(4, dtype=torch.long, device="cuda"), weight=torch.ones(4)),
        lambda a: F.embedding(torch.tensor([1]), a),
        lambda a: torch.einsum("ij,kj->ik", a, torch.ones(4, 4)),
        lambda a: torch.ones(4)[a.long()[0] * 0],
        lambda a: nn.Linear(4, 4)(a),
        lambda a: a + torch.ones(4, 4, device="cuda:0"),
        lambda a: a + torch.ones((), device="cuda:0"),
    ],
)
def test_mixing_devices_is_refused(cuda, mix):
    """What CUDA refuses is refused in CUDA's words, with operator, devices and argument on the error."""
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least") as info:
        mix(torch.randn(4, 4, device="cuda"))
    assert isinstance(info.value.func, torch._ops.OpOverload)
    assert len(set(info.value.devices)) == 2


@pytest.mark.parametrize(
    "mix",
    [
        lambda a: a + torch.tensor(2.0),
        lambda a: torch.tensor(2.0) * a,
        lambda a: torch.where(a > 0, a, torch.tensor(0.0)),
        lambda a: a[torch.tensor([0, 1])],
        lambda a: a.masked_fill(a > 0, 0.0),
        lambda a: torch.zeros(4, 4).copy_(a),
        lambda a: F.ctc_loss(
            torch.randn(5, 2, 4, device="cuda").log_softmax(-1),
            torch.ones(2, 2, dtype=torch.long, device="cuda"),
            torch.tensor([5, 5]),
            torch.tensor([2, 2]),
        ),
        lambda a: nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 4, device="cuda"), torch.tensor([3, 2])),
    ],
)
def test_legal_mixtures_pass(cuda, mix):
    """0-dim CPU scalars, CPU indices, copies and lengths on the CPU are legal, as on CUDA."""
    mix(torch.randn(4, 4, device="cuda"))


def test_host_needs_an_explicit_copy(cuda):
    """NumPy is refused in CUDA's words; cpu(), item() and tolist() work."""
    tensor = torch.tensor([1.5], device="cuda")
    with pytest.raises(TypeError, match=r"can't convert cuda:1 device type tensor to numpy\. Use Tensor\.cpu\(\)"):
        tensor.numpy()
    assert (tensor.item(), tensor.tolist(), tensor.cpu().numpy().tolist()) == (1.5, [1.5], [1.5])
    assert repr(tensor) == "tensor([1.5000], device='cuda:1')"
    assert repr(tensor.half()) == "tensor([1.5000], device='cuda:1', dtype=torch.float16)"
    assert repr(torch.nn.Parameter(tensor)).startswith("Parameter containing:\ntensor([1.5000], device='cuda:1', ")
    assert tensor.type() == "torch.cuda.FloatTensor"


def test_gradients_find_their_way_back(cuda):
    """Backward over a move between devices, and over one to the CPU, ends on each leaf's own device."""
    first = torch.ones(2, device="cuda:0", requires_grad=True)
    second = torch.ones(2, device="cuda:1", requires_grad=True)
    ((first.to("cuda:1") * second).cpu() * 2).sum().backward()
    assert (first.grad.device.index, second.grad.device.index) == (0, 1)
    assert first.grad.tolist() == [2.0, 2.0]


@pytest.mark.skipif(torch.__version__ < "2.7", reason="a limit on torch 2.6, see docs/compatibility.md")
def test_zero_dim_cpu_leaf_trains_in_silence(cuda):
    """Torch moves a 0-dim gradient to its leaf's device without a word; so does the simulation."""
    scale = torch.ones((), requires_grad=True)
    (torch.ones(3, device="cuda") * scale).sum().backward()
    assert (scale.grad.device.type, scale.grad.item()) == ("cpu", 3.0)


def test_custom_backward_makes_device_tensors(cuda):
    """Inside a Function's backward, factories and moves to cuda work."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.ones(2).to("cuda") * torch.full((2,), 2.0, device="cuda")

    leaf = torch.ones(2, device="cuda", requires_grad=True)
    Double.apply(leaf).sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0]


def test_double_backward_and_checkpointing(cuda):
    """Gradient penalties and recomputation work on simulated devices."""
    leaf = torch.full((3,), 2.0, device="cuda", requires_grad=True)
    (grad,) = torch.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
    torch.utils.checkpoint.checkpoint(lambda x: x.pow(2).sum(), grad, use_reentrant=False).backward()
    assert leaf.grad.tolist() == [288.0] * 3


def test_sparse_gradients(cuda):
    """A sparse embedding gets its sparse gradient on the device."""
    table = nn.Embedding(5, 3, sparse=True).cuda()
    table(torch.tensor([1, 2]).cuda()).sum().backward()
    assert table.weight.grad.is_sparse
    assert table.weight.grad.device == torch.device("cuda", 1)


def test_parameters_stay_parameters(cuda):
    """A moved module keeps real parameters, names and requires_grad; it moves back and between devices."""
    layer = nn.Linear(2, 2).cuda()
    layer.bias.requires_grad_(False)
    moved = copy.deepcopy(layer).to("cuda:0")
    assert isinstance(moved.weight, nn.Parameter)
    assert [name for name, _ in moved.named_parameters()] == ["weight", "bias"]
    assert (moved.weight.requires_grad, moved.bias.requires_grad) == (True, False)
    moved.load_state_dict(layer.state_dict())
    assert moved.cpu().weight.device.type == "cpu"


def test_saved_tensors_load_on_their_device(cuda):
    """A checkpoint with device tensors loads, with weights_only, where it was saved."""
    buffer = io.BytesIO()
    torch.save({"weight": torch.ones(2, device="cuda")}, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True)["weight"].device == torch.device("cuda", 1)


def test_generators_belong_to_a_device(cuda):
    """A CUDA generator draws for the device; a CPU generator is refused in CUDA's words."""
    generator = torch.Generator("cuda").manual_seed(7)
    drawn = torch.randn(3, device="cuda", generator=generator)
    assert torch.equal(drawn.cpu(), torch.randn(3, generator=torch.Generator().manual_seed(7)))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.randn(3, device="cuda", generator=torch.Generator())


def test_wrong_gradient_assignment_is_refused(cuda):
    """Assigning a CPU gradient names both device types, and never meta."""
    leaf = torch.ones(2, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="gradient with device type 'cpu' to a tensor with device type 'cuda'"):
        leaf.grad = torch.ones(2)


def test_real_meta_tensors_stay_meta(cuda):
    """The meta device asked for by name is torch's own."""
    assert torch.empty(2, device="meta").device.type == "meta"
    with torch.device("meta"):
        layer = nn.Linear(2, 2)
    assert layer.weight.is_meta
    assert layer.to_empty(device="cuda").weight.device == torch.device("cuda", 1)


def test_device_queries(cuda):
    """torch.cuda and torch.accelerator describe the pretended machine."""
    assert torch.cuda.is_available()
    assert (torch.cuda.device_count(), torch.cuda.current_device()) == (2, 1)
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    with torch.cuda.device(0):
        assert torch.ones(1, device="cuda").device.index == 0
    assert torch.cuda.current_device() == 1
    assert torch.cuda.memory_allocated() == 0
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.synchronize()


@pytest.mark.parametrize("call", [lambda: torch.ones(1, device="cuda:5"), lambda: torch.cuda.set_device(2)])
def test_a_device_that_does_not_exist(cuda, call):
    """Asking for a device beyond the last is refused as CUDA refuses it, with those there are."""
    with pytest.raises(RuntimeError, match=r"invalid device ordinal \(asked for cuda:\d, .* cuda:0 to cuda:1"):
        call()


@pytest.mark.parametrize("devices", [0, -1, 1.5, "2", True])
def test_number_of_devices_is_validated(devices):
    """A wrong number of devices is a ValueError with the value."""
    with pytest.raises(
        ValueError, match=r"simulate_cuda\(devices=.*\): the number of devices is an integer of at least 1"
    ):
        simulate_cuda(devices=devices).__enter__()


def test_simulations_do_not_nest(cuda):
    """A second simulation inside the first is refused."""
    with pytest.raises(RuntimeError, match="simulate_cuda is running already"), simulate_cuda():
        pass


def test_everything_is_put_back_after_an_exception():
    """An exception inside leaves torch as it was; the autouse fixture compares every function."""
    with pytest.raises(KeyError, match="mine"), simulate_cuda():
        raise KeyError("mine")
    assert not torch.cuda.is_available() or torch.cuda.device_count() > 0
    assert torch.ones(1).device.type == "cpu"


def test_a_tensor_that_outlives_the_simulation_says_so():
    """Using a leftover device tensor outside explains what to do."""
    with simulate_cuda():
        tensor = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="used outside `with simulate_cuda"):
        tensor.to("cuda")


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (aten.add.Tensor, "iterator"),
        (aten.mse_loss.default, "iterator"),
        (aten.stack.default, "one"),
        (aten.mm.default, "one"),
        (aten.nll_loss_forward.default, "one"),
        (aten.index.Tensor, "index"),
        (aten._foreach_add_.List, "lists"),
        (aten.copy_.default, "any"),
    ],
    ids=str,
)
def test_rules_come_from_the_operator_table(operator, kind):
    """The device rule of an operator is what the installed torch's own table says."""
    assert PLANS[operator].devices == kind


def _returning(where):
    """A Function whose backward returns its gradient where it should not be."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return grad.to(where)

    return Wrong


@pytest.mark.parametrize("where", ["cpu", "cuda:0"])
def test_gradient_on_the_wrong_device_is_refused(cuda, where):
    """A custom backward that leaves the device is refused in the engine's words, deep in a graph too."""
    leaf = torch.ones(3, device="cuda:1", requires_grad=True)
    match = f"Function WrongBackward returned an invalid gradient at index 0 - expected device cuda:1 but got {where}"
    with pytest.raises(RuntimeError, match=match):
        _returning(where).apply(3 * leaf).sum().backward()


def test_zero_dim_gradient_is_moved_in_silence(cuda):
    """A 0-dim gradient elsewhere is moved without a word, as the engine does."""
    leaf = torch.ones((), device="cuda:1", requires_grad=True)
    _returning("cpu").apply(leaf).backward()
    assert leaf.grad.device == torch.device("cuda", 1)


def test_gradient_argument_and_hooks_are_compared(cuda):
    """A CPU gradient handed to backward, or made by a tensor hook, is refused in CUDA's words."""
    leaf = torch.ones(3, device="cuda:1", requires_grad=True)
    with pytest.raises(RuntimeError, match="invalid gradient at index 0 - expected device cuda:1 but got cpu"):
        (2 * leaf).backward(torch.ones(3))
    hooked = 2 * leaf
    hooked.register_hook(lambda grad: grad.cpu())
    with pytest.raises(RuntimeError, match=r"\(was torch.cuda.FloatTensor got torch.FloatTensor\)"):
        hooked.sum().backward()


def test_data_assignment_takes_values_and_device(cuda):
    """``tensor.data = …`` takes the values and the device, also to and from the CPU."""
    layer = nn.Linear(2, 2).cuda()
    layer.weight.data = torch.zeros(2, 2, device="cuda:0")
    layer.bias.data = layer.bias.data.cpu()
    assert (layer.weight.device.index, layer.weight.tolist()) == (0, [[0.0, 0.0]] * 2)
    assert layer.bias.device.type == "cpu"
    assert isinstance(layer.bias, nn.Parameter)


def test_other_threads_have_the_devices_too(cuda):
    """A thread makes and moves device tensors; its current device starts at cuda:0, as on CUDA."""
    made = []
    thread = threading.Thread(target=lambda: made.append(torch.ones(2, device="cuda") + torch.ones(2).cuda()))
    thread.start()
    thread.join()
    assert made[0].device == torch.device("cuda", 0)
    assert torch.cuda.current_device() == 1


def test_index_lists_and_default_device(cuda):
    """Index lists select what they select on the CPU; the default device may be a simulated one."""
    grid = torch.arange(12.0, device="cuda").view(3, 4)
    assert grid[[0, 2], [1, 3]].tolist() == [1.0, 11.0]
    assert grid[:, [True, False, False, True]].shape == (3, 2)
    torch.set_default_device("cuda:0")
    try:
        assert torch.tensor([1.0]).device == torch.ones(1).device == torch.device("cuda", 0)
    finally:
        torch.set_default_device(None)
    assert torch.tensor([1.0]).device == torch.ones(1).device == torch.device("cpu")


def test_lazy_conjugates_keep_their_values(cuda):
    """A conjugated view gives its real and imaginary parts and its gradient as on the CPU."""
    leaf = torch.tensor([1 + 2j], device="cuda", requires_grad=True)
    leaf.conj().imag.sum().backward()
    assert (leaf.detach().conj().imag.tolist(), leaf.grad.tolist()) == ([-2.0], [-1j])


def test_host_reads_are_counted_by_line(cuda):
    """Each line of the user that makes the host wait is counted, when asked for."""
    active().record_host_reads = True
    loss = torch.ones(3, device="cuda")
    for _ in range(2):
        loss.sum().item()
    loss[loss > 0].cpu()
    ((item, _), twice), ((mask, _), reads) = active().host_reads.items()
    assert (item.line, twice) == ("loss.sum().item()", 2)
    assert (mask.line, reads) == ("loss[loss > 0].cpu()", 2)


@pytest.mark.parametrize(
    ("saved", "where", "index"),
    [("cpu", "cuda:1", 1), ("cuda:0", "cuda", 1), ("cuda:1", {"cuda:1": "cuda:0"}, 0), ("cuda:1", "cpu", None)],
)
def test_map_location_decides_where_a_checkpoint_lands(cuda, saved, where, index):
    """``torch.load(map_location=…)`` takes a device or a mapping, for files from the CPU and from devices."""
    buffer = io.BytesIO()
    torch.save({"layers": [nn.Linear(2, 2).to(saved).state_dict()]}, buffer)
    buffer.seek(0)
    weight = torch.load(buffer, map_location=where, weights_only=True)["layers"][0]["weight"]
    assert weight.device == (torch.device("cpu") if index is None else torch.device("cuda", index))


class Batch(NamedTuple):
    """What a script may save."""

    inputs: torch.Tensor
    weights: list[torch.Tensor]


def test_map_location_moves_what_named_tuples_hold(cuda):
    """``torch.load(map_location=…)`` puts the fields of a named tuple on the device; it stays one."""
    buffer = io.BytesIO()
    torch.save(Batch(torch.ones(2), [torch.ones(1)]), buffer)
    buffer.seek(0)
    batch = torch.load(buffer, map_location="cuda:1", weights_only=False)
    assert type(batch) is Batch
    assert batch.inputs.device == batch.weights[0].device == torch.device("cuda", 1)


@pytest.mark.parametrize("move", [lambda net: net.to("cuda:1"), lambda net: net.cuda(1)])
def test_hooks_stay_with_a_parameter_that_moves(cuda, move):
    """Hooks that were registered on the CPU run after the module has moved, and can still be removed."""
    net = torch.nn.Linear(2, 1)
    calls = []
    handle = net.weight.register_hook(lambda grad: 2 * grad)
    net.weight.register_post_accumulate_grad_hook(calls.append)
    move(net)
    net(torch.ones(1, 2, device="cuda:1")).sum().backward()
    assert net.weight.grad.tolist() == [[2.0, 2.0]]
    assert calls[0] is net.weight
    handle.remove()
    net(torch.ones(1, 2, device="cuda:1")).sum().backward()
    assert net.weight.grad.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_name_devices(cuda, kind):
    """A recurrent layer whose state is elsewhere is refused in torch's words, with the devices a user knows."""
    layer, state = kind(2, 3).to("cuda:1"), torch.zeros(1, 1, 3)
    words = "Input and hidden tensors are not at the same device, found input tensor at cuda:1 and hidden tensor at cpu"
    with pytest.raises(RuntimeError, match=words):
        layer(torch.ones(1, 1, 2, device="cuda:1"), (state, state) if kind is torch.nn.LSTM else state)
    layer(torch.ones(1, 1, 2, device="cuda:1"))


def test_the_meta_device_by_name_is_meta(cuda):
    """A device tensor, or a module, that is sent to meta is there; one sent to another tensor's place is there."""
    tensor = torch.ones(2, 3, device="cuda")
    assert tensor.to("meta", torch.float16).is_meta
    assert nn.Linear(2, 2).cuda().to("meta").weight.is_meta
    assert nn.Linear(2, 2).to(tensor).weight.device == torch.device("cuda", 1)


def test_optimizers_and_clipping_group_by_device(cuda):
    """What torch groups by device in C++ is grouped by the pretended one."""
    layers = nn.ModuleList([nn.Linear(2, 2).to("cuda:0"), nn.Linear(2, 2).to("cuda:1")])
    optimizer = torch.optim.Adam(layers.parameters(), foreach=True)
    sum(layer(torch.ones(1, 2, device=layer.weight.device)).sum().to("cuda:1") for layer in layers).backward()
    nn.utils.clip_grad_norm_(layers.parameters(), 1.0, foreach=True)
    optimizer.step()
    assert [optimizer.state[layer.weight]["exp_avg"].device.index for layer in layers] == [0, 1]


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: torch.ones(2).type(torch.cuda.HalfTensor), torch.float16),
        (lambda: torch.ones(2).type("torch.cuda.HalfTensor"), torch.float16),
        (lambda: torch.ones(2, device="cuda").type(torch.cuda.LongTensor), torch.int64),
        (lambda: torch.cuda.FloatTensor([1.0, 2.0]), torch.float32),
        (lambda: torch.cuda.LongTensor(2, 3), torch.int64),
        (lambda: torch.ones(2, device="cuda").new([1, 2]), torch.float32),
        (lambda: torch.ones(2, device="cuda").new(3, 4), torch.float32),
    ],
)
def test_old_tensor_types(cuda, make, dtype):
    """The old types convert, make tensors, and are asked whether something is one."""
    tensor = make()
    assert (tensor.device, tensor.dtype) == (torch.device("cuda", 1), dtype)
    kinds = {
        torch.float16: torch.cuda.HalfTensor,
        torch.int64: torch.cuda.LongTensor,
        torch.float32: torch.cuda.FloatTensor,
    }
    assert isinstance(tensor, kinds[dtype])
    assert not isinstance(tensor.cpu(), kinds[dtype])
    assert tensor.type("torch.FloatTensor").device.type == "cpu"


def test_the_default_type_on_a_device_is_refused(cuda):
    """The default tensor type cannot be one of CUDA; the message names what does the same."""
    with pytest.raises(RuntimeError, match=r"not simulated: use torch\.set_default_device"):
        torch.set_default_tensor_type("torch.cuda.FloatTensor")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2), device="cuda"),
        lambda: torch.eye(2, device="cuda").to_sparse(),
        lambda: torch.eye(2).to_sparse_csr().cuda(),
        lambda: torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2), device="cuda"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors(cuda, make):
    """Sparse tensors in both layouts are on the device with their parts, multiply there, and come back."""
    sparse = make()
    assert sparse.device == torch.device("cuda", 1)
    assert sparse.type() == "torch.cuda.sparse.FloatTensor"
    assert (sparse @ torch.ones(2, 3, device="cuda")).device == sparse.to_dense().device == sparse.device
    values = sparse.coalesce().values() if sparse.layout is torch.sparse_coo else sparse.values()
    assert values.device == sparse.device
    assert torch.equal(sparse.cpu().to_dense(), sparse.to_dense().cpu())
    with pytest.raises(RuntimeError, match="found at least two devices"):
        sparse @ torch.ones(2, 3)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_gradients_train(cuda):
    """SparseAdam updates the rows that were looked up, as on the CPU."""
    plain = nn.Embedding(5, 3, sparse=True)
    moved = copy.deepcopy(plain).cuda()
    for table in (plain, moved):
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        table(torch.tensor([1, 2], device=table.weight.device)).sum().backward()
        optimizer.step()
    assert torch.equal(moved.weight.cpu(), plain.weight)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).cuda(), "nested"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged).cuda(), "nested"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged, device="cuda"), "nested"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], device="cuda"), "nested"),
        (lambda: torch.nested.as_nested_tensor([torch.ones(2, device="cuda")]), "nested"),
        (lambda: torch.eye(2, device="cuda").to_sparse_csc(), "sparse_csc"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:Sparse")
def test_layouts_that_are_not_simulated_say_so(cuda, make, what):
    """Nested tensors and the column-wise sparse layouts are refused by name."""
    with pytest.raises(NotImplementedError, match=f"{what} tensors on CUDA are not simulated"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()).cuda(),
        lambda: nn.Sequential(nn.LazyLinear(4, device="cuda"), nn.LazyBatchNorm1d(device="cuda")),
        lambda: nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()).to(torch.device("cuda", 1), torch.float32),
    ],
)
def test_lazy_modules(cuda, make):
    """Lazy modules are made on the device they were sent to, keep their parameters' identity, and train."""
    layers = make()
    weight = layers[0].weight
    layers(torch.randn(3, 2, device="cuda")).pow(2).sum().backward()
    assert layers[0].weight is weight
    assert weight.device == weight.grad.device == layers[1].running_mean.device == torch.device("cuda", 1)
    assert isinstance(weight, nn.Parameter)
    assert type(layers[0]) is nn.Linear


def test_scripted_modules_move_and_train(cuda):
    """A module that TorchScript compiled moves as others do, and trains there."""
    module = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())).to("cuda:1")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    module(torch.randn(4, 3, device="cuda:1")).square().sum().backward()
    optimizer.step()
    assert {str(tensor.device) for tensor in (*module.parameters(), *module.buffers())} == {"cuda:1"}
    assert not any(map(torch.equal, [*module.parameters()][:1], before))
