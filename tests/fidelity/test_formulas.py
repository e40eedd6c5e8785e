"""Formulas that torch picks by device are the CPU's on simulated devices."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lightning_devcheck import simulate_cuda

BOOLEAN = torch.ones(9, 9, dtype=torch.bool).tril()
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "a boolean mask": {"attn_mask": BOOLEAN},
    "a mask to add": {"attn_mask": torch.linspace(-1, 1, 81).reshape(9, 9)},
    "dropout": {"dropout_p": 0.5},
    "grouped queries": {"enable_gqa": True},
}


def attention(source, options):
    """Results and gradients of attention on a tensor's device."""
    given = {name: v.to(source.device) if isinstance(v, torch.Tensor) else v for name, v in options.items()}
    heads = 2 if "enable_gqa" in options else 4
    query, key, value = (
        part.detach().requires_grad_() for part in (source, source[:, :heads] * 0.7, source[:, :heads])
    )
    torch.manual_seed(0)
    result = F.scaled_dot_product_attention(query, key, value, **given)
    result.square().sum().backward()
    return [tensor.detach().cpu() for tensor in (result, query.grad, key.grad, value.grad)]


@pytest.mark.parametrize("name", OPTIONS)
def test_attention_is_the_cpu_s(name):
    """Attention and its gradients are those of the kernel that the CPU picks, bit for bit."""
    torch.manual_seed(1)
    source = torch.randn(2, 4, 9, 16)
    expected = attention(source, OPTIONS[name])
    with simulate_cuda(devices=2):
        got = attention(source.to("cuda:1"), OPTIONS[name])
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_attention_of_mixed_devices_is_refused():
    """Query and key on two devices are an error, as in CUDA."""
    source = torch.ones(1, 1, 2, 2)
    with simulate_cuda(devices=2), pytest.raises(RuntimeError, match="same device"):
        F.scaled_dot_product_attention(source.to("cuda:1"), source, source.to("cuda:1"))


def test_mish_is_the_cpu_s():
    """The gradient of mish is that of the CPU's kernel, bit for bit."""
    torch.manual_seed(1)
    source = torch.randn(100)
    plain = source.clone().requires_grad_()
    F.mish(plain).sum().backward()
    with simulate_cuda(devices=2):
        moved = source.to("cuda:1").requires_grad_()
        F.mish(moved).sum().backward()
        assert torch.equal(moved.grad.cpu(), plain.grad)


def test_nothing_is_left_behind():
    """After the simulation attention on torch's own meta device is composed as before, also a second time."""
    for _ in range(2):
        with simulate_cuda(devices=2):
            F.mish(torch.ones(2, device="cuda:1"))
        meta = torch.ones(1, 1, 2, 2, device="meta", requires_grad=True)
        F.scaled_dot_product_attention(meta, meta, F.mish(meta)).sum().backward()
        assert meta.grad.device.type == "meta"


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_differ_by_rounding_only(kind):
    """GRU and RNN give the CPU's results bit for bit, LSTM and all gradients up to rounding."""

    def trained(device):
        torch.manual_seed(0)
        layer, source = kind(8, 8).to(device), torch.randn(16, 18, 8).to(device)
        result = layer(source)[0]
        result.square().sum().backward()
        return [result.detach().cpu(), *(parameter.grad.cpu() for parameter in layer.parameters())]

    expected = trained("cpu")
    with simulate_cuda(devices=2):
        got = trained("cuda:1")
    assert kind is torch.nn.LSTM or torch.equal(got[0], expected[0])
    for found, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)
