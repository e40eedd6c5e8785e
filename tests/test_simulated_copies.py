"""Copies between devices keep and change memory formats as torch's do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lightning_devcheck import simulate_cuda

FORMATS = (torch.preserve_format, torch.contiguous_format, torch.channels_last)


def sources():
    """Tensors of four dimensions whose strides differ, by name."""
    x = torch.arange(120.0).view(2, 3, 4, 5)
    return {
        "plain": x,
        "channels last": x.to(memory_format=torch.channels_last),
        "permuted": x.permute(3, 0, 2, 1),
        "with steps": x[:, ::2],
        "channels last with steps": x.to(memory_format=torch.channels_last)[:, :, ::2],
        "expanded": x[:, :1].expand(2, 3, 4, 5),
        "with an offset": x[1:, 1:],
        "empty": x[:0],
        "one channel": x[:, :1],
    }


COPIES = {
    "to": lambda x, layout: x.to("cuda:1", memory_format=layout),
    "to without waiting": lambda x, layout: x.to("cuda:1", non_blocking=True, memory_format=layout),
    "cuda": lambda x, layout: x.cuda(memory_format=layout),
    "cuda by position": lambda x, layout: x.cuda(1, True, memory_format=layout),
    "cuda by name": lambda x, layout: x.cuda(device="cuda:1", non_blocking=True, memory_format=layout),
    "cpu": lambda x, layout: x.cuda().cpu(memory_format=layout),
    "between devices": lambda x, layout: x.cuda(0).to("cuda:1", memory_format=layout),
}
HERE = {
    "clone": lambda x, layout: x.clone(memory_format=layout),
    "like": lambda x, layout: torch.zeros_like(x, memory_format=layout),
    "double": lambda x, layout: x.double(memory_format=layout),
}


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_has_the_strides_of_a_cpu_copy(copy, layout):
    """Values and strides of a copy to another device are those of a copy on the CPU."""
    twice = copy in ("cpu", "between devices")
    with simulate_cuda(devices=2):
        for name, source in sources().items():
            first = source.clone() if twice else source
            expected = first.to(memory_format=layout, copy=True)
            found = COPIES[copy](source, layout)
            assert (name, found.stride()) == (name, expected.stride())
            assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("make", HERE)
def test_what_is_made_on_the_device_has_the_cpu_s_strides(make, layout):
    """A clone, a tensor like another and a conversion have the strides that they have on the CPU."""
    with simulate_cuda(devices=2):
        for name, source in sources().items():
            expected = HERE[make](source.clone(), layout)
            found = HERE[make](source.cuda(1), layout)
            assert (name, found.stride()) == (name, expected.stride())
            assert torch.equal(found.cpu(), expected)


def test_a_tensor_that_is_there_already_is_itself():
    """Without a format, and with the one it has, a tensor on its device is returned as it is."""
    with simulate_cuda(devices=2):
        tensor = torch.ones(1, 2, 3, 4, device="cuda:1")
        assert tensor.cuda(1) is tensor
        assert tensor.to("cuda:1", memory_format=torch.preserve_format).data_ptr() == tensor.data_ptr()
        assert tensor.cuda(1, memory_format=torch.channels_last).stride() == (24, 1, 8, 2)


def test_a_module_moves_in_a_format():
    """``Module.to`` and ``cuda`` change and keep the format of weights."""
    expected = nn.Conv2d(3, 3, 2).to(memory_format=torch.channels_last).weight.stride()
    with simulate_cuda(devices=2):
        assert nn.Conv2d(3, 3, 2).to("cuda:1", memory_format=torch.channels_last).weight.stride() == expected
        assert nn.Conv2d(3, 3, 2).to(memory_format=torch.channels_last).cuda().weight.stride() == expected


def test_a_gradient_passes_a_copy_in_a_format():
    """The gradient of a copy that changes the format is the CPU's."""
    source = torch.arange(120.0).view(2, 3, 4, 5).requires_grad_()
    with simulate_cuda(devices=2):
        source.cuda(memory_format=torch.channels_last).square().sum().backward()
    assert torch.equal(source.grad, 2 * source.detach())
    assert source.grad.is_contiguous()


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_has_no_format(convert):
    """Sparse tensors move as before."""
    with simulate_cuda(devices=2):
        moved = convert(torch.eye(3)).cuda(1)
        assert torch.equal(moved.cpu().to_dense(), torch.eye(3))
