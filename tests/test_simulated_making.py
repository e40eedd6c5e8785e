"""``torch.tensor``, ``as_tensor``, ``asarray`` and their like on simulated devices, and default devices."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from lightning_devcheck import simulate_cuda

IGNORED = (
    "To copy construct from",
    "Creating a tensor from a list",
    "Converting a tensor with",
    "torch.asarray",
)
pytestmark = pytest.mark.filterwarnings(*(f"ignore:{text}" for text in IGNORED))
FUNCTIONS = (torch.tensor, torch.as_tensor, torch.asarray)
DATA = {
    "a leaf": lambda w: w,
    "a result": lambda w: w * 2,
    "a tensor without a graph": lambda w: w.detach(),
    "a parameter": lambda w: nn.Parameter(w.detach()),
    "a scalar": lambda w: w[0],
    "a list with a scalar": lambda w: [w[0], 2],
    "a nested list with scalars": lambda w: [[w[0], 3], [4, w[1]]],
    "a deque of scalars": lambda w: deque([w[0], w[1]]),
    "a list of CPU tensors": lambda w: [torch.ones(1), 2.0],
    "numbers": lambda w: (1, 2),
    "a number": lambda w: 3,
    "a truth value": lambda w: True,
    "a complex number": lambda w: 2 + 1j,
    "an array": lambda w: np.ones(2),
    "a list of arrays": lambda w: [np.ones(2), np.zeros(2)],
    "a NumPy number": lambda w: np.float32(2),
    "nothing": lambda w: [],
    "nothing in a list": lambda w: [[]],
    "a range": lambda w: range(3),
    "a text": lambda w: "a",
}
OPTIONS = ({}, {"dtype": torch.float64}, {"dtype": torch.float32}, {"requires_grad": True}, {"copy": True})


def made(function, device, make, options):
    """What a function makes of data on a device, told apart from its argument, or its error."""
    data = make(torch.tensor([1.0, 2.0], device=device, requires_grad=True))
    try:
        result = function(data, device=device, **options)
    except (TypeError, RuntimeError, ValueError) as error:
        return type(error).__name__, str(error)
    graph = result.grad_fn and result.grad_fn.name()
    on_device = result.device == torch.device(device)
    return result.tolist(), result.dtype, result.requires_grad, graph, type(result).__name__, result is data, on_device


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_made_is_as_on_the_cpu(function, options):
    """Values, dtype, graph, class and identity of what is made are those of the CPU."""
    expected = {name: made(function, "cpu", make, options) for name, make in DATA.items()}
    with simulate_cuda(devices=2):
        found = {name: made(function, "cuda:1", make, options) for name, make in DATA.items()}
    plain = [(name, *result[:4], *result[5:]) for name, result in found.items()]
    assert plain == [(name, *result[:4], *result[5:]) for name, result in expected.items()]


@pytest.mark.parametrize(
    "convert",
    [
        lambda y, device: torch.as_tensor(y),
        lambda y, device: torch.as_tensor(y, device=device, dtype=torch.float64),
        lambda y, device: torch.as_tensor(y, device="cpu"),
        lambda y, device: torch.as_tensor(torch.as_tensor(y, device="cpu") * 2, device=device),
        lambda y, device: torch.asarray(y, device=device),
        lambda y, device: torch.asarray(y, device="cpu"),
        lambda y, device: torch.distributions.Gamma(2.0, torch.ones(2, device=device)).log_prob(y),
        lambda y, device: y.new(y) * y.new(y.detach()),
        lambda y, device: torch.tensor(y, device=device) * y,
    ],
)
def test_gradients_flow_as_on_the_cpu(convert):
    """What keeps a graph in torch keeps it on a simulated device, between devices too."""

    def gradient(device):
        leaf = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
        convert(leaf * 3, device).square().sum().backward()
        return leaf.grad.cpu()

    try:
        expected = gradient("cpu")
    except RuntimeError as error:  # asarray of torch 2.6
        pytest.skip(f"cuts the graph in this torch: {error}")
    with simulate_cuda(devices=2):
        assert torch.equal(gradient("cuda:1"), expected)


def test_memory_is_shared_as_in_torch():
    """``as_tensor`` and ``asarray`` of a tensor on its own device share its memory, all else is a copy."""
    array, source = np.zeros(2), torch.zeros(2)
    with simulate_cuda(devices=2):
        tensor = torch.zeros(2, device="cuda:1")
        assert torch.as_tensor(tensor, device="cuda:1", dtype=torch.float32) is tensor
        torch.asarray(tensor)[0] = 1
        tensor.new(tensor)[1] = 2
        copies = [torch.tensor(tensor), torch.asarray(tensor, copy=True), torch.as_tensor(tensor, device="cuda:0")]
        copies += [torch.as_tensor(array, device="cuda"), torch.asarray(array, device="cuda")]
        copies += [torch.as_tensor(source, device="cuda"), torch.as_tensor(tensor, device="cpu")]
        for copy in copies:
            copy[0] = 9
        assert tensor.tolist() == [1, 2]
    assert array.tolist() == source.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.asarray(np.ones(2), device="cuda", copy=False), "from device 'cpu' to 'cuda:0'"),
        (lambda: torch.asarray(torch.ones(2), device="cuda", copy=False), "from device 'cpu' to 'cuda:0'"),
        (
            lambda: torch.asarray(torch.ones(2, device="cuda"), device="cpu", copy=False),
            "from device 'cuda:0' to 'cpu'",
        ),
        (lambda: torch.asarray([1.0], device="cuda", copy=False), "can't alias arbitrary sequence"),
    ],
)
def test_what_cannot_be_shared_is_refused(make, text):
    """``asarray(copy=False)`` refuses what another device would have to copy, in torch's words."""
    with simulate_cuda(devices=1), pytest.raises(ValueError, match=text):
        make()


def test_data_by_name_works():
    """The first argument may be given by its name."""
    with simulate_cuda(devices=1):
        assert torch.tensor(data=[1], device="cuda").tolist() == [1]
        assert torch.asarray(obj=[1], device=0).device == torch.device("cuda", 0)


def test_new_tensor_is_as_on_the_cpu():
    """``new_tensor`` copies data of every kind to the tensor's device."""
    with simulate_cuda(devices=2):
        tensor = torch.ones(2, device="cuda:1", requires_grad=True)
        made = [tensor.new_tensor(data) for data in ([1, 2], tensor, np.ones(2), tensor.cpu())]
        assert {str(result.device) for result in made} == {"cuda:1"}
        assert [result.grad_fn for result in made] == [None] * 4
        assert tensor.new_tensor(data=[1], dtype=torch.int32).dtype is torch.int32


FACTORIES = {
    "tensor": lambda: torch.tensor([1.0]),
    "as_tensor": lambda: torch.as_tensor([1.0]),
    "asarray": lambda: torch.asarray([1.0]),
    "tensor of an array": lambda: torch.tensor(np.ones(2)),
    "as_tensor of a tensor": lambda: torch.as_tensor(torch.ones(2)),
    "zeros": lambda: torch.zeros(2),
    "arange": lambda: torch.arange(3),
    "randn": lambda: torch.randn(2),
    "eye": lambda: torch.eye(2),
    "scalar_tensor": lambda: torch.scalar_tensor(2.0),
    "hann_window": lambda: torch.hann_window(3),
    "fftfreq": lambda: torch.fft.fftfreq(4),
    "a linear layer": lambda: nn.Linear(2, 2).weight,
    "a buffer": lambda: nn.BatchNorm1d(2).running_mean,
    "a recurrent layer": lambda: nn.LSTM(2, 2).weight_hh_l0,
}


def devices_made():
    """The device of each factory's result."""
    return {name: str(make().device) for name, make in FACTORIES.items()}


@pytest.mark.parametrize("device", ["cuda:1", "cpu", "meta"])
def test_a_default_device_holds_for_every_factory(device):
    """Both ways to set a default device reach every factory, and end with it."""
    expected, before = dict.fromkeys(FACTORIES, device), dict.fromkeys(FACTORIES, "cpu")
    with simulate_cuda(devices=2):
        with torch.device(device):
            assert devices_made() == expected
        torch.set_default_device(device)
        try:
            assert devices_made() == expected
        finally:
            torch.set_default_device(None)
        assert devices_made() == before


def test_device_contexts_nest():
    """The inner context holds inside; values are those of the CPU."""
    with simulate_cuda(devices=2), torch.device("cuda:1"):
        with torch.device("cpu"):
            assert str(torch.tensor(1.0).device) == "cpu"
            with torch.device("cuda:0"):
                assert torch.tensor([1.0, 2.0]).tolist() == [1, 2]
                assert str(torch.tensor(1.0).device) == "cuda:0"
        assert str(torch.as_tensor([1.0]).device) == "cuda:1"
        assert str(torch.tensor(1.0, device="cpu").device) == "cpu"


def test_a_default_without_an_index_is_the_current_device():
    """``torch.set_default_device("cuda")`` means the current device."""
    with simulate_cuda(devices=2):
        torch.cuda.set_device(1)
        torch.set_default_device("cuda")
        try:
            assert str(torch.tensor(1.0).device) == str(torch.as_tensor([1]).device) == "cuda:1"
            assert str(torch.get_default_device()) == "cuda:1"
        finally:
            torch.set_default_device(None)


def test_a_context_of_another_thread_is_not_this_one_s():
    """A device context holds in its own thread only."""
    found = []

    def work():
        found.append(str(torch.tensor(1.0).device))
        with torch.device("cuda:1"):
            found.append(str(torch.tensor(1.0).device))

    with simulate_cuda(devices=2), torch.device("cuda:0"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == ["cpu", "cuda:1"]


FIRST_INSIDE = """
import torch
from lightning_devcheck import simulate_cuda
with simulate_cuda(devices=2), torch.device("cuda:1"):
    print(torch.tensor(1.0).device, torch.as_tensor(1.0).device, torch.asarray(1.0).device, torch.zeros(1).device)
with torch.device("meta"):
    print(torch.tensor(1.0).device, torch.as_tensor(1.0).device, torch.asarray(1.0).device)
"""


def test_the_first_context_of_a_process_may_be_a_simulated_one():
    """Torch lists its factories at the first context: inside a simulation it lists the real ones."""
    done = subprocess.run([sys.executable, "-c", FIRST_INSIDE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["cuda:1 cuda:1 cuda:1 cuda:1", "meta meta meta"]
