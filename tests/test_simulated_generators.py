"""Random numbers on simulated devices: one stream with the CPU, until a script asks for a device's own."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.seed import seed_everything
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_devcheck import simulate_cuda


@pytest.fixture
def cuda():
    """Two simulated devices."""
    with simulate_cuda(devices=2):
        yield


def draw(device="cuda"):
    """Numbers from the device's default generator."""
    return torch.rand(4, device=device).tolist()


DRAWS = {
    "rand": lambda: torch.rand(9, device="cuda"),
    "randn_like": lambda: torch.randn_like(torch.ones(9, device="cuda")),
    "randint": lambda: torch.randint(99, (9,), device="cuda"),
    "randperm": lambda: torch.randperm(9, device="cuda"),
    "dropout": lambda: F.dropout(torch.ones(9, device="cuda")),
    "dropout in inference mode": torch.inference_mode()(lambda: F.dropout(torch.ones(9, device="cuda"))),
    "alpha_dropout": lambda: F.alpha_dropout(torch.ones(9, device="cuda"), training=True),
    "bernoulli_": lambda: torch.ones(9, device="cuda").bernoulli_(0.5),
    "multinomial": lambda: torch.ones(9, device="cuda").multinomial(5),
    "normal": lambda: torch.normal(torch.zeros(9, device="cuda"), 1.0),
    "init": lambda: nn.init.xavier_uniform_(torch.empty(3, 3, device="cuda")),
    "layer": lambda: nn.Linear(3, 3, device="cuda").weight.detach(),
    "rrelu": lambda: F.rrelu(-torch.ones(9, device="cuda"), training=True),
    "attention": lambda: F.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 4, device="cuda")] * 3, dropout_p=0.5),
    "distribution": lambda: torch.distributions.Gamma(torch.ones(9, device="cuda"), 1.0).sample(),
    "vmap": lambda: torch.func.vmap(lambda x: x + torch.rand_like(x), randomness="different")(
        torch.ones(9, device="cuda")
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seeded_device_draws_from_its_own_stream(cuda, name):
    """After its seed a device draws the same numbers, whatever the CPU draws, and takes none from the CPU."""
    torch.manual_seed(3)
    expected = torch.rand(4).tolist()
    torch.manual_seed(3)
    results = []
    for cpu_draws in (0, 5):
        torch.cuda.manual_seed(7)
        torch.rand(cpu_draws)
        results.append(DRAWS[name]())
    assert torch.equal(*results)
    torch.manual_seed(3)
    DRAWS[name]()
    assert torch.rand(4).tolist() == expected


@pytest.mark.parametrize("name", DRAWS)
def test_before_that_the_devices_draw_the_cpus_numbers(cuda, name):
    """Without a word on a device's generator the device draws what the default generator holds."""
    torch.manual_seed(3)
    DRAWS[name]()
    after = torch.get_rng_state()
    torch.manual_seed(3)
    assert not torch.equal(after, torch.get_rng_state())


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.cuda.manual_seed(5),
        lambda: torch.cuda.manual_seed_all(5),
        lambda: torch.cuda.seed(),
        lambda: torch.cuda.seed_all(),
        lambda: torch.cuda.get_rng_state(),
        lambda: torch.cuda.get_rng_state_all(),
        lambda: torch.cuda.set_rng_state(torch.Generator().manual_seed(5).get_state()),
        lambda: torch.cuda.set_rng_state_all([torch.Generator().manual_seed(5).get_state()]),
        lambda: torch.cuda.default_generators[0].manual_seed(5),
        lambda: torch.cuda.default_generators[0].get_state(),
    ],
)
def test_what_separates_a_device(cuda, ask):
    """A script that seeds, sets or reads a device's generator gets numbers that do not depend on the CPU's."""
    ask()
    state = torch.cuda.get_rng_state()
    first = draw()
    torch.cuda.set_rng_state(state)
    torch.rand(3)
    assert draw() == first


def everywhere(script):
    """What a script draws on the CPU and on a device, from the same seed."""
    results = []
    for device in ("cpu", "cuda"):
        with simulate_cuda(devices=2):
            torch.manual_seed(1)
            results.append(script(device))
    return results


def forked(device):
    with torch.random.fork_rng(devices=[0, 1]):
        torch.manual_seed(9)
        inside = draw(device)
    return inside, draw("cpu"), draw(device)


def isolated(device):
    with isolate_rng():
        seed_everything(4, verbose=False)
        inside = draw(device)
    return inside, draw("cpu"), draw(device)


def seeded(device):
    seed_everything(11, verbose=False)
    return draw("cpu"), draw(device), draw("cpu"), torch.cuda.initial_seed()


def checkpointed(device, reentrant):
    x = torch.ones(4, 4, device=device, requires_grad=True)
    out = checkpoint(lambda t: F.dropout(t * 2) + torch.rand(4, 4).to(device), x, use_reentrant=reentrant)
    out.sum().backward()
    return out.tolist(), x.grad.tolist(), draw("cpu"), draw(device)


@pytest.mark.parametrize(
    "script",
    [forked, isolated, seeded, lambda d: checkpointed(d, True), lambda d: checkpointed(d, False)],
    ids=["fork_rng", "isolate_rng", "seed_everything", "reentrant", "non-reentrant"],
)
def test_what_libraries_do_separates_nothing(script):
    """Seeds and states of CPU and devices alike leave one stream: a device draws what the CPU run does."""
    plain, simulated = everywhere(script)
    assert plain == simulated


def test_manual_seed_seeds_separate_devices_too(cuda):
    """``torch.manual_seed`` gives each device that has a stream of its own that seed, and both the same numbers."""
    torch.cuda.manual_seed_all(1)
    torch.manual_seed(2)
    first = draw("cuda:0"), draw("cuda:1")
    assert first[0] == first[1]
    torch.manual_seed(2)
    torch.rand(3)
    assert (draw("cuda:0"), draw("cuda:1")) == first
    assert torch.cuda.initial_seed() == 2


def test_one_device_alone(cuda):
    """Seeding the current device leaves the other one with the CPU's stream."""
    torch.cuda.manual_seed(5)
    torch.manual_seed(3)
    expected = torch.rand(8).tolist()
    torch.manual_seed(3)
    assert draw("cuda:1") + draw("cpu") == expected


def test_a_separate_device_checkpoints_and_forks(cuda):
    """Checkpointing and ``fork_rng`` put a device's own stream back as they do on CUDA."""
    torch.cuda.manual_seed(5)
    x = torch.ones(64, device="cuda", requires_grad=True)
    out = checkpoint(F.dropout, x, use_reentrant=False)
    out.sum().backward()
    assert torch.equal(out, x.grad)
    torch.cuda.manual_seed(5)
    expected = draw()
    torch.cuda.manual_seed(5)
    with torch.random.fork_rng(devices=[0]):
        draw()
    assert draw() == expected


def test_a_generator_of_the_cpu_after_a_dead_one_of_a_device(cuda):
    """Nothing stays of a device's generator that is gone: a CPU generator at its address draws CPU numbers."""
    for _ in range(50):
        made = torch.Generator(device="cuda:1")
        assert torch.rand(1, device="cuda:1", generator=made).device.index == 1
        del made
        gc.collect()
        torch.rand(2, generator=torch.Generator())


def test_a_generator_in_its_copies(cuda):
    """A clone, a deep copy and a pickled generator are on the same device and draw the same numbers."""
    made = torch.Generator(device="cuda:1").manual_seed(3)
    torch.rand(2, device="cuda:1", generator=made)
    copies = [made.clone_state(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    numbers = [torch.rand(3, device="cuda:1", generator=each).tolist() for each in (made, *copies)]
    assert numbers == numbers[:1] * 4
    assert {str(each.device) for each in copies} == {"cuda:1"}
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.rand(1, generator=copies[0])


def test_a_default_generator_may_be_handed_over(cuda):
    """``generator=torch.cuda.default_generators[0]`` draws what the device draws by default."""
    torch.cuda.manual_seed(8)
    expected = draw()
    torch.cuda.manual_seed(8)
    generators = torch.cuda.default_generators
    assert torch.rand(4, device="cuda", generator=generators[0]).tolist() == expected
    assert [str(each.device) for each in generators] == ["cuda:0", "cuda:1"]


def test_a_thread_draws_from_the_devices_stream(cuda):
    """Threads share a device's stream."""
    torch.cuda.manual_seed(8)
    expected = draw()
    torch.cuda.manual_seed(8)
    found = []
    thread = threading.Thread(target=lambda: found.append(draw()))
    thread.start()
    thread.join()
    assert found == [expected]


def test_the_next_simulation_shares_again(cuda):
    """A stream of its own ends with the simulation, and the generator that it leaves is the CPU's."""
    generator = torch.cuda.default_generators[0]
    assert str(generator.device) == "cuda:0"


def test_shapes_only_draw_from_their_streams():
    """Without values whole numbers that are kept are drawn from the device's stream as well."""
    with simulate_cuda(values=False):
        torch.cuda.manual_seed(7)
        first = torch.randint(99, (9,), device="cuda").tolist()
        torch.cuda.manual_seed(7)
        torch.rand(3)
        assert torch.randint(99, (9,), device="cuda").tolist() == first
