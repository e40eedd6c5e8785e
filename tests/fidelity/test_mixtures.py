"""Mixed devices, kind by kind: what CUDA takes beside what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightning_devcheck import simulate_cuda

REFUSED = "same device"


def cpu(*shape: int) -> torch.Tensor:
    """Ones on the CPU."""
    return torch.ones(shape)


def near(*shape: int) -> torch.Tensor:
    """Ones on the first simulated device."""
    return torch.ones(shape, device="cuda:0")


def far(*shape: int) -> torch.Tensor:
    """Ones on the second simulated device."""
    return torch.ones(shape, device="cuda:1")


# what is called, and where its result is; None where it is refused
MIXTURES: dict[str, tuple[Callable[[], Any], str | None]] = {
    "a 0-dim CPU tensor joins an operator of two": (lambda: far(3) + cpu(), "cuda:1"),
    "a CPU tensor with dimensions does not": (lambda: far(3) + cpu(1), None),
    "nor does a 0-dim tensor of another CUDA device": (lambda: far(3) + near(), None),
    "one 0-dim CPU tensor joins addcmul": (lambda: torch.addcmul(far(3), far(3), cpu()), "cuda:1"),
    "two do not": (lambda: torch.addcmul(far(3), cpu(), cpu()), None),
    "a device tensor is not added into a 0-dim CPU tensor": (lambda: cpu().add_(far()), None),
    "a 0-dim CPU tensor is added into a device tensor": (lambda: far(3).add_(cpu()), "cuda:1"),
    "an operator of one takes no other out=": (lambda: torch.sin(cpu(), out=far()), None),
    "out= is where the inputs are": (lambda: torch.sin(far(3), out=far(3)), "cuda:1"),
    "out= on another CUDA device": (lambda: torch.linalg.norm(near(3), out=far()), None),
    "where() takes 0-dim tensors from anywhere": (lambda: torch.where(far(3) > 0, near(), cpu()), "cuda:1"),
    "where() takes no other condition with dimensions": (lambda: torch.where(cpu(3) > 0, far(3), far(3)), None),
    "indices may be on the CPU": (lambda: far(3)[cpu(2).long()], "cuda:1"),
    "a CPU tensor takes no device indices": (lambda: cpu(3)[far(2).long()], None),
    "not even a 0-dim one": (lambda: torch.ops.aten.index_put(cpu(3), [far(2).long()], cpu(2)), None),
    "a 0-dim value goes where the indexed tensor is": (
        lambda: torch.index_put(cpu(3), (torch.tensor([0]),), far()),
        "cpu",
    ),
    "a value with dimensions does not": (lambda: torch.index_put(far(3), (torch.tensor([0]),), cpu(1)), None),
    "masked_fill reads its value on the host": (lambda: far(3).masked_fill(far(3) > 0, near()), "cuda:1"),
    "masked_fill takes no 0-dim CPU mask": (lambda: far(3).masked_fill(cpu() > 0, 1.0), None),
    "masked_fill takes no device value for the CPU": (lambda: cpu(3).masked_fill(cpu(3) > 0, far()), None),
    "fill_ reads its value anywhere": (lambda: cpu(3).fill_(far()), "cpu"),
    "copy_ crosses": (lambda: cpu(3).copy_(far(3)), "cpu"),
    "a scatter of a slice copies": (lambda: torch.slice_scatter(far(3), near(2), end=2), "cuda:1"),
    "resize_as_ looks at the shape": (lambda: far(3).resize_as_(cpu(2)), "cuda:1"),
    "cat takes no 0-dim exception": (lambda: torch.cat([far(1), cpu(1)]), None),
    "stack neither": (lambda: torch.stack([far(), cpu()]), None),
    "a matrix product neither": (lambda: far(2, 2) @ cpu(2, 2), None),
    "_like stays": (lambda: torch.zeros_like(far(3)), "cuda:1"),
    "_like goes where it is told": (lambda: torch.zeros_like(far(3), device="cpu"), "cpu"),
    "ldexp is a product and a power": (lambda: torch.ldexp(far(3), cpu()), "cuda:1"),
    "block_diag compares for itself": (lambda: torch.block_diag(far(2, 2), cpu(2, 2)), None),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture(name):
    """Each kind of mixture is taken or refused as CUDA does."""
    call, place = MIXTURES[name]
    with simulate_cuda(devices=2):
        if place is None:
            with pytest.raises(RuntimeError, match=REFUSED):
                call()
        else:
            assert str(call().device) == place


def test_a_composed_operator_is_differentiated():
    """The gradient of an operator that is judged by its parts is where its input is."""
    with simulate_cuda(devices=2):
        weight = torch.ones(3, device="cuda:1", requires_grad=True)
        torch.slice_scatter(weight, torch.zeros(2), end=2).sum().backward()
        assert weight.grad.device == torch.device("cuda:1")
        assert weight.grad.tolist() == [0, 0, 1]


def test_a_double_backward_through_abs():
    """Autograd's zeros without data, which abs makes in a double backward, are zeros."""
    with simulate_cuda(devices=2):
        weight = torch.tensor([1.0, -2.0], device="cuda:1", requires_grad=True)
        (gradient,) = torch.autograd.grad(weight.abs().abs().sum(), weight, create_graph=True)
        gradient.abs().sum().backward()
        assert weight.grad.tolist() == [0, 0]
        assert weight.grad.device == torch.device("cuda:1")
