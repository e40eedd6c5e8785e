"""What scripts call in ``torch.cuda``, ``torch.accelerator`` and ``torch.backends`` answers on simulated devices."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
import torch._dynamo  # its import wraps torch.manual_seed for the life of the process

from lightning_devcheck import simulate_cuda
from lightning_devcheck._simulate.api.cuda_rest import NOT_SIMULATED


@pytest.mark.parametrize("name", [name for name in sorted(NOT_SIMULATED) if hasattr(torch.cuda, name)])
def test_what_is_not_simulated_says_so(name):
    """A part of torch.cuda that is not simulated names itself and says what to do."""
    with simulate_cuda(), pytest.raises(RuntimeError, match=rf"torch\.cuda\.{name} is not simulated: \w+"):
        getattr(torch.cuda, name)()


def test_memory_figures():
    """Memory figures exist for every device and are refused for one that does not."""
    with simulate_cuda():
        assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated("cuda:1") == 0
        assert torch.cuda.memory.memory_reserved(1) == 0
        assert torch.cuda.mem_get_info()[1] == torch.cuda.get_device_properties(0).total_memory
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()
        assert "simulated" in torch.cuda.memory_summary()
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.cuda.memory_allocated(2)


def test_memory_fraction():
    """The memory fraction is kept, and checked as torch does."""
    with simulate_cuda():
        torch.cuda.set_per_process_memory_fraction(0.5, 1)
        with pytest.raises(ValueError, match=r"Invalid fraction value: 2\.0"):
            torch.cuda.set_per_process_memory_fraction(2.0)


def test_streams_and_events():
    """Work on streams happens at once and in order."""
    with simulate_cuda():
        start, end, side = torch.cuda.Event(enable_timing=True), torch.cuda.Event(), torch.cuda.Stream()
        start.record()
        with torch.cuda.stream(side):
            values = torch.ones(3, device="cuda")
        values.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        end.record()
        torch.cuda.synchronize()
        assert side.query()
        assert start.elapsed_time(end) == 0.0


def test_current_device():
    """set_device and the device context decide what cuda without an index means, and the context puts it back."""
    with simulate_cuda():
        torch.cuda.set_device(1)
        assert torch.ones(1, device="cuda").device == torch.device("cuda", 1)
        with torch.cuda.device(0):
            assert torch.ones(1, device="cuda").device == torch.device("cuda", 0)
        assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.cuda.can_device_access_peer(0, 1)


def test_random_state():
    """Random states are read and put back; a device generator draws the same numbers for the same seed."""
    with simulate_cuda():
        state = torch.cuda.get_rng_state("cuda:1")
        first = torch.rand(3, device="cuda:1")
        torch.cuda.set_rng_state(state, "cuda:1")
        assert torch.equal(first, torch.rand(3, device="cuda:1"))
        assert len(torch.cuda.get_rng_state_all()) == len(torch.cuda.default_generators) == 2
        draws = [
            torch.rand(3, device="cuda", generator=torch.Generator("cuda").manual_seed(7)).tolist() for _ in range(2)
        ]
        assert draws[0] == draws[1]


def test_profiling_marks():
    """NVTX marks and the profiler's switches are there and do nothing."""
    with simulate_cuda():
        torch.cuda.nvtx.range_push("step")
        with torch.cuda.nvtx.range("forward"):
            torch.cuda.nvtx.mark("loss")
        torch.cuda.nvtx.range_pop()
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()


def test_backends():
    """A cuDNN is there; its switches are torch's own."""
    with simulate_cuda():
        assert torch.backends.cudnn.is_available()
        # flags(): torch's own test helpers, which the fidelity tests import, freeze plain assignment for the process
        with torch.backends.cudnn.flags(benchmark=True):
            assert torch.backends.cudnn.benchmark
        assert torch.backends.cudnn.version() > 90000
        assert torch.backends.cuda.is_built()


@pytest.mark.parametrize("make", [torch.empty, torch.zeros, lambda n, **options: torch.tensor([0.0] * n, **options)])
def test_pinned_buffers(make):
    """A buffer made in pinned memory is a CPU tensor that can be copied to a device and back."""
    with simulate_cuda():
        buffer = make(3, pin_memory=True)
        buffer.copy_(torch.ones(3, device="cuda:1"), non_blocking=True)
        assert (buffer.device.type, buffer.tolist()) == ("cpu", [1.0, 1.0, 1.0])
        assert buffer.new_zeros(2, pin_memory=True).to("cuda:1", non_blocking=True).tolist() == [0.0, 0.0]


def test_pinned_memory_in_a_loader():
    """A loader with pin_memory and non-blocking copies works."""
    with simulate_cuda():
        loader = torch.utils.data.DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True)
        moved = [batch.to("cuda:1", non_blocking=True) for batch in loader]
        assert [batch.tolist() for batch in moved] == [[0.0, 1.0], [2.0, 3.0]]


def test_parameters_keep_their_identity():
    """An optimizer made before the module moves goes on training it, as with real devices."""
    with simulate_cuda():
        module = torch.nn.Linear(2, 1)
        weight, optimizer = module.weight, torch.optim.SGD(module.parameters(), lr=0.1)
        before = weight.detach().clone()
        module.to("cuda:1")
        assert module.weight is weight
        assert isinstance(weight, torch.nn.Parameter)
        module(torch.ones(1, 2, device="cuda:1")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        module.cpu()
        assert module.weight is weight
        assert torch.allclose(weight, before - 0.1)


# what to call the parts of torch.cuda with that need arguments
ARGUMENTS = {
    "StreamContext": lambda: (torch.cuda.Stream(),),
    "can_device_access_peer": lambda: (0, 1),
    "check_error": lambda: (0,),
    "device": lambda: (1,),
    "device_of": lambda: (torch.ones(1, device="cuda:1"),),
    "manual_seed": lambda: (1,),
    "manual_seed_all": lambda: (1,),
    "set_device": lambda: (1,),
    "set_per_process_memory_fraction": lambda: (0.5,),
    "set_rng_state": lambda: (torch.cuda.get_rng_state(),),
    "set_rng_state_all": lambda: (torch.cuda.get_rng_state_all(),),
    "set_stream": lambda: (torch.cuda.Stream(),),
    "set_sync_debug_mode": lambda: ("default",),
    "stream": lambda: (torch.cuda.Stream(),),
}
PUBLIC = [
    name
    for name, value in sorted(vars(torch.cuda).items())
    if not name.startswith("_") and callable(value) and str(getattr(value, "__module__", "")).startswith("torch.cuda")
    if not (isinstance(value, type) and issubclass(value, Exception))
]


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.filterwarnings("ignore")
def test_all_of_torch_cuda_works_or_says_that_it_does_not(name):
    """Every public part of torch.cuda answers, or is refused by name; no error of CUDA's own comes through."""
    state = torch.get_rng_state()
    with simulate_cuda():
        call = functools.partial(getattr(torch.cuda, name), *ARGUMENTS.get(name, tuple)())
        if name in NOT_SIMULATED:
            with pytest.raises(RuntimeError, match=rf"torch\.cuda\.{name} is not simulated: \w+"):
                call()
        else:
            result = call()
            with result if hasattr(result, "__enter__") else contextlib.nullcontext():
                torch.ones(1, device="cuda")
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    "call", [lambda x: torch.nn.parallel.comm.broadcast(x, [0, 1]), lambda x: torch.cuda.nccl.all_reduce([x])]
)
def test_modules_below_torch_cuda_say_so_too(call):
    """What is not simulated in a module below torch.cuda is refused with its whole name."""
    with simulate_cuda(), pytest.raises(RuntimeError, match=r"torch\.\S+\.(comm|nccl)\.\w+ is not simulated: use"):
        call(torch.ones(1, device="cuda"))


def test_the_device_of_a_tensor():
    """``device_of`` makes a tensor's device the current one, and leaves it alone for a CPU tensor."""
    with simulate_cuda():
        with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
            assert torch.cuda.current_device() == 1
        with torch.cuda.device_of(torch.ones(1)):
            assert torch.cuda.current_device() == 0
