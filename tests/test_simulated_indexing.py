"""Indices on simulated devices: what torch makes of sequences, and that reading and writing give the CPU's values."""

from __future__ import annotations

import array
import warnings
from collections import UserList, deque

import numpy as np
import pytest
import torch

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.state import running


class Position:
    """What stands for a number as an index."""

    def __index__(self):
        return 1


class Old:
    """A sequence by its methods alone."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, position):
        return self.values[position]


TENSORS = {"one": torch.tensor([1]), "zero_dim": torch.tensor(1), "short": torch.tensor([1, 0], dtype=torch.uint8)}
TENSORS |= {"mask": torch.tensor([[True, False, True], [False, True, True]]), "yes": torch.tensor(True)}
# text -> the index, of the tensors above on some device
INDICES = {
    "a tuple inside": lambda t: (slice(None), (0, 2)),
    "a tuple alone inside": lambda t: ((0, 1),),
    "a range inside": lambda t: (slice(None), range(1, 3)),
    "two ranges": lambda t: (range(2), range(1, 3)),
    "a range": lambda t: range(2),
    "a list": lambda t: [1, 0],
    "a negative list": lambda t: [-1],
    "an empty list": lambda t: [],
    "a list of an empty list": lambda t: [[]],
    "an empty tuple": lambda t: (),
    "a list of an empty tuple": lambda t: [()],
    "a list of truth values": lambda t: [True, False],
    "a nested list of truth values": lambda t: ([[True, False, True], [True] * 3],),
    "fractions": lambda t: [1.5],
    "two lists": lambda t: ([0, 1], slice(None), [1, 3]),
    "a list of lists": lambda t: [[0, 1], [1, 2]],
    "a list of one list": lambda t: [[0, 1]],
    "a deep list": lambda t: [[[1]]],
    "31 lists": lambda t: [[0]] * 31,
    "40 lists": lambda t: [[0]] * 40,
    "a list of ranges": lambda t: [range(2), range(1, 3)],
    "a list of slices": lambda t: [slice(None), slice(0, 2)],
    "a slice and a number": lambda t: [slice(0, 2), 1],
    "None and a number": lambda t: [None, 1],
    "an ellipsis and a number": lambda t: [..., 3],
    "a number and a list": lambda t: [1, [1, 2]],
    "a list of tensors": lambda t: [t["one"], t["one"]],
    "a list of one tensor": lambda t: [t["one"]],
    "a list of scalars": lambda t: [t["zero_dim"], t["zero_dim"]],
    "a list of a tensor and None": lambda t: [t["one"], None],
    "a list of a mask": lambda t: [t["mask"]],
    "a list of a scalar mask": lambda t: [t["yes"]],
    "a list of scalars inside": lambda t: ([t["zero_dim"], 0],),
    "a deep list of scalars": lambda t: [[t["zero_dim"], 0]],
    "a CPU tensor in a list": lambda t: [torch.tensor([1]), t["one"]],
    "a mask and a list": lambda t: (t["mask"], [0]),
    "a scalar mask and a list": lambda t: (t["yes"], [0]),
    "a truth value and a list": lambda t: (True, [0]),
    "bounds of a slice": lambda t: (slice(t["zero_dim"], None), [0]),
    "bytes": lambda t: t["short"],
    "a step": lambda t: slice(None, None, t["zero_dim"]),
    "an array": lambda t: np.array([1, 0]),
    "an array of no dimensions": lambda t: np.array(1),
    "an array of truth values": lambda t: np.array([True, False]),
    "two arrays": lambda t: (np.array([0, 1]), np.array([1, 2])),
    "a list of arrays": lambda t: [np.array([0, 1]), np.array([1, 2])],
    "a NumPy number": lambda t: np.int64(1),
    "a list of NumPy numbers": lambda t: [np.int64(1), np.int64(0)],
    "NumPy numbers and None": lambda t: [np.int64(1), None],
    "NumPy truth values": lambda t: [np.True_, np.False_],
    "what has __index__": lambda t: (Position(), [0]),
    "an array of Python's": lambda t: array.array("i", [1, 0]),
    "a UserList": lambda t: UserList([1, 0]),
    "a UserList of slices": lambda t: UserList([slice(0, 1), 1]),
    "a deque": lambda t: deque([1, 0]),
    "an old sequence": lambda t: Old([1, 0]),
    "an old sequence of lists": lambda t: Old([[0], [1]]),
    "a size": lambda t: [torch.Size([0, 1])],
}
REFUSED = {
    "a set": lambda t: {1},
    "a text": lambda t: "a",
    "a fraction": lambda t: 1.5,
    "a NumPy truth value": lambda t: np.bool_(True),
    "a list of mappings": lambda t: [{}],
    "too many": lambda t: ([0], [0], [0], [0]),
    "shapes that do not broadcast": lambda t: ([0, 1], [0, 1, 2]),
    "out of bounds": lambda t: 7,
    "a list out of bounds": lambda t: [7],
    "out of bounds in a list": lambda t: [7, None],
}


def read(x, index):
    """What is read, with shape and strides."""
    found = x[index]
    return found.cpu(), found.stride()


def write(x, index):
    """The tensor after a number was written."""
    x = x.clone()
    x[index] = 7
    return (x.cpu(),)


def write_tensor(x, index):
    """The tensor after numbers that differ were written."""
    x = x.clone()
    size = x[index].shape
    x[index] = torch.arange(size.numel(), device=x.device).view(size).to(x.dtype)
    return (x.cpu(),)


def augment(x, index):
    """The tensor after a number was added."""
    x = x.clone()
    x[index] += 2
    return (x.cpu(),)


def differentiate(x, index):
    """The gradients of reading, and of writing a number that requires one."""
    leaf, value = x.clone().requires_grad_(), torch.ones((), device=x.device, requires_grad=True)
    written = leaf * 2
    written[index] = value
    (leaf[index].square().sum() + written.square().sum()).backward()
    return leaf.grad.cpu(), value.grad.cpu()


def infer(x, index):
    """What is read in inference mode."""
    with torch.inference_mode():
        found = x[index]
    return (found.cpu(), found.is_inference())


def vectorize(x, index):
    """What is read below `torch.vmap`."""
    return (torch.vmap(lambda row: row[index])(x.expand(2, *x.shape)).cpu(),)


USES = (read, write, write_tensor, augment, differentiate, infer, vectorize)


def outcome(use, device, make, dtype=torch.float32):
    """What a use gives on a device, or its error."""
    x = torch.arange(24.0).view(2, 3, 4).to(dtype).to(device)
    tensors = {name: tensor.to(device) for name, tensor in TENSORS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return use(x, make(tensors))
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            return type(error).__name__, str(error).partition("\n")[0]


def same(found, expected):
    """Whether two outcomes are equal, tensors in shape, dtype and values."""
    pairs = zip(found, expected, strict=True)
    return all(torch.equal(a, b) and a.dtype is b.dtype if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def differing(use, makes, dtype=torch.float32):
    """The names of what gives something else on a simulated device than on the CPU."""
    expected = {name: outcome(use, "cpu", make, dtype) for name, make in makes.items()}
    with simulate_cuda(devices=2):
        found = {name: outcome(use, "cuda:1", make, dtype) for name, make in makes.items()}
    return [name for name in makes if not same(found[name], expected[name])]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_an_index_is_the_cpu_s(use):
    """Each index selects on a simulated device what it selects on the CPU."""
    assert differing(use, INDICES) == []


@pytest.mark.parametrize("use", [read, write, augment])
def test_what_torch_refuses_is_refused_alike(use):
    """An index that the CPU does not take is an error in the same words."""
    assert all(outcome(use, "cpu", make)[0].endswith("Error") for make in REFUSED.values())
    assert differing(use, REFUSED) == []


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("use", [read, write, write_tensor])
def test_other_dtypes_are_indexed_alike(use, dtype):
    """What is read and written does not depend on the dtype."""
    assert differing(use, INDICES, dtype) == []


def test_an_index_without_values_has_the_cpu_s_shape():
    """Where there are no values, what is read has the shape that it has on the CPU."""

    def shape(x, index):
        return (x[index].shape,)

    makes = {name: make for name, make in INDICES.items() if "mask" not in name and name != "bytes"}
    expected = {name: outcome(shape, "cpu", make) for name, make in makes.items()}
    with simulate_cuda(devices=2, values=False):
        found = {name: outcome(shape, "cuda:1", make) for name, make in makes.items()}
    assert [name for name in makes if found[name] != expected[name]] == []


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_reading_an_index_makes_the_host_wait_no_more_often():
    """A scalar of the device in a list is read once: the parser that looks at the list first reads none."""
    with simulate_cuda(devices=1):
        x, scalar = torch.arange(24.0, device="cuda").view(4, 6), torch.tensor(1, device="cuda")
        running().record_host_reads = True
        x[[scalar, slice(None)]]
        assert list(running().host_reads.values()) == [1]


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_devices_of_an_index_are_checked():
    """CPU tensors may index a device tensor, another device's may not, and a device tensor no CPU tensor."""
    with simulate_cuda(devices=2):
        x, other = torch.arange(4.0, device="cuda:0"), torch.tensor([1], device="cuda:1")
        assert x[[torch.tensor([1])]].item() == 1
        with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cuda:1"):
            x[[other]]
        with pytest.raises(RuntimeError, match="found at least two devices, cpu and cuda:1"):
            torch.arange(4.0)[[other]]


def test_a_list_cannot_be_assigned():
    """The error names CUDA's type, not the one that C++ sees."""
    with simulate_cuda(devices=1):
        x = torch.zeros(2, device="cuda")
        with pytest.raises(TypeError, match=r"can't assign a list to a torch\.cuda\.FloatTensor"):
            x[0] = [1]


def test_index_put_and_take_are_the_cpu_s():
    """The functions behind the brackets give the CPU's values, with accumulation and gradients."""

    def use(device):
        x = torch.arange(6.0, device=device, requires_grad=True)
        index, value = torch.tensor([1, 1, 4], device=device), torch.ones(3, device=device)
        put = (x * 1).index_put_((index,), value, accumulate=True)
        (put.square().sum() + torch.take(x, index).sum()).backward()
        return put.detach().cpu(), x.grad.cpu(), torch.Tensor.__getitem__(x, ([1, 2],)).detach().cpu()

    expected = use("cpu")
    with simulate_cuda(devices=2):
        assert same(use("cuda:1"), expected)
