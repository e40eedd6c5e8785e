"""Batched gradients and `torch.func` on simulated devices: the CPU's values, and mistakes in CUDA's words."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.functional as AF
import torch.nn.functional as F
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.fx.experimental.proxy_tensor import make_fx

from lightning_devcheck import preflight, simulate_cuda
from tests.helpers.training import Clean, make_loader


def numbers(*shape):
    """The same numbers in each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


class Square(torch.autograd.Function):
    """A Function that torch.func takes apart."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * ctx.saved_tensors[0] * tangent


class Scaled(Square):
    """A Function with its own rule for batches."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x):
        return Scaled.apply(x), in_dims[0]


class Old(torch.autograd.Function):
    """A Function whose forward takes the context."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def leaf(d, *shape):
    return numbers(*shape).to(d).requires_grad_()


def batched(call, **options):
    """Batched gradients of a function of three numbers."""

    def run(d):
        x = leaf(d, 3)
        return torch.autograd.grad(call(x), x, torch.eye(3, device=call(x).device), is_grads_batched=True, **options)

    return run


def doubled(d):
    x = leaf(d, 3)
    (first,) = torch.autograd.grad(x**3, x, torch.eye(3, device=d), is_grads_batched=True, create_graph=True)
    return torch.autograd.grad(first, x, torch.eye(9, device=d).view(9, 3, 3), is_grads_batched=True)


def several(d):
    x, y = leaf(d, 3), leaf(d, 3)
    weights = [torch.eye(3, device=d), torch.ones(3, device=d)]
    return torch.autograd.grad([x * y, (x + y).sum()], [x, y], weights, is_grads_batched=True)


def hooked(d):
    x = leaf(d, 3)
    y = x * x
    y.register_hook(lambda gradient: gradient * 2)
    return torch.autograd.grad(y.sin(), x, torch.eye(3, device=d), is_grads_batched=True)


def checked(call):
    def run(d):
        x = numbers(3).double().to(d).requires_grad_()
        options = {"check_batched_grad": True}
        return torch.autograd.gradcheck(call, x, **options) and torch.autograd.gradgradcheck(call, x, **options)

    return run


def pulled(call, weights=lambda d: torch.ones(3, device=d), **options):
    """`vjp` of a function, called twice."""

    def run(d):
        out, pull, *rest = vjp(call, numbers(3).to(d), **options)
        return out, pull(weights(d)), pull(weights(d)), vmap(pull)(torch.eye(3, device=d)), rest

    return run


def pulled_dictionary(d):
    out, pull = vjp(lambda t: {"a": t["x"] * 2, "b": t["x"].sum()}, {"x": numbers(3).to(d)})
    return out["a"], pull({"a": torch.ones(3, device=d), "b": torch.ones((), device=d)})[0]["x"]


def network(d):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(d)
    return net, {name: weight.detach() for name, weight in net.named_parameters()}


def per_sample(d):
    net, weights = network(d)

    def loss(weights, x, y):
        return F.cross_entropy(functional_call(net, weights, (x[None],)), y[None])

    labels = torch.tensor([0, 1, 0, 1, 1], device=d)
    return list(vmap(grad(loss), in_dims=(None, 0, 0))(weights, numbers(5, 3).to(d), labels).values())


def ensemble(d):
    torch.manual_seed(0)
    nets = [nn.Linear(3, 2).to(d) for _ in range(3)]
    weights, buffers = stack_module_state(nets)
    call = vmap(lambda w, b, x: functional_call(nets[0], (w, b), (x,)), in_dims=(0, 0, None))
    out = call(weights, buffers, numbers(4, 3).to(d))
    out.sum().backward()
    return out, [weight.grad for weight in weights.values()]


def adapted(d):
    net, weights = network(d)

    def loss(weights, x, y):
        return (functional_call(net, weights, (x,)) - y).square().mean()

    def outer(weights, x, y):
        step = grad(loss)(weights, x, y)
        return loss({name: weight - 0.1 * step[name] for name, weight in weights.items()}, x, y)

    def total(weights):
        return vmap(outer, (None, 0, 0))(weights, numbers(4, 5, 3).to(d), numbers(4, 5, 2).to(d)).mean()

    return list(grad(total)(weights).values())


def asked(x):
    """A tensor that is made where another one says it is."""
    made = torch.ones(3, device=x.device) + torch.tensor([1.0, 2.0, 3.0], device=x.device) + x.new_tensor([4.0] * 3)
    return x * made * (x.get_device() + 2 if x.is_cuda and not (x.is_cpu or x.is_meta) else 1 + x.is_cpu)


def traced(call):
    """A function recorded by `make_fx`, with other numbers."""

    def run(d):
        other = numbers(3).to(d)
        return make_fx(lambda x: call(x) * other.to(call(x).device))(numbers(3).to(d))(numbers(3).to(d) * 2)

    return run


def straight(call):
    """`linearize`, `jvp`, `jacrev` and others of a function."""

    def run(d):
        x, v = numbers(3).to(d), numbers(3).to(d) * 2
        out, push = linearize(call, x)
        total = hessian(lambda t: call(t).pow(3).sum())
        return (
            out,
            push(v),
            jvp(call, (x,), (v,)),
            jacrev(call)(x),
            jacrev(call, chunk_size=2)(x),
            jacfwd(call)(x),
            total(x),
        )

    return run


PROGRAMS = {
    "grad": batched(lambda x: x * x),
    "grad, created graph": doubled,
    "grad, several": several,
    "grad, hook": hooked,
    "grad through the CPU": batched(lambda x: (x.cpu() * 2).to(x.device) ** 2),
    "grad of a copy on the CPU": batched(lambda x: x.cpu() ** 2),
    "grad of an old Function": batched(Old.apply),
    "grad, unused": batched(lambda x: x * x, allow_unused=True),
    "grad of solve": batched(lambda x: torch.linalg.solve(torch.diag(x) + 4 * torch.eye(3, device=x.device), x)),
    "jacobian": lambda d: AF.jacobian(torch.sin, numbers(3).to(d), vectorize=True),
    "jacobian of several": lambda d: AF.jacobian(
        lambda x, y: (x * y, x.sum()), (leaf(d, 3), leaf(d, 3)), vectorize=True
    ),
    "jacobian forward": lambda d: AF.jacobian(torch.sin, leaf(d, 3), vectorize=True, strategy="forward-mode"),
    "hessian": lambda d: AF.hessian(lambda x: (x**3).sum(), numbers(3).to(d), vectorize=True),
    "gradcheck": checked(torch.sin),
    "gradcheck of a Function": checked(Old.apply),
    "vjp": pulled(torch.sin),
    "vjp, has_aux": pulled(lambda x: (x**2, x * 3), has_aux=True),
    "vjp of a dictionary": pulled_dictionary,
    "vjp of a Function": pulled(Square.apply),
    "vjp through the CPU": pulled(lambda x: (x.cpu() ** 2).to(x.device)),
    "transforms": straight(torch.sin),
    "transforms of a Function": straight(Square.apply),
    "transforms through the CPU": lambda d: [
        (jacrev(call)(x), jacfwd(call)(x), hessian(lambda t, c=call: (c(t) ** 3).sum())(x))
        for call, x in ((lambda t: t.cpu() ** 2, numbers(3).to(d)), (lambda t: t.to(d) ** 2, numbers(3)))
    ],
    "nested": lambda d: (grad(grad(lambda x: x**3))(numbers(1)[0].to(d)), jacrev(jacfwd(torch.sin))(numbers(3).to(d))),
    "vmap of grad": lambda d: vmap(vmap(grad(torch.sin)))(numbers(3, 2).to(d)),
    "grad of vmap": lambda d: grad(lambda x: vmap(torch.sin)(x).sum())(numbers(3).to(d)),
    "Functions in vmap": lambda d: [vmap(f.apply)(numbers(4, 3).to(d)) for f in (Square, Scaled)],
    "per-sample gradients": per_sample,
    "ensemble": ensemble,
    "adapted weights": adapted,
    "index lists": lambda d: (
        grad(lambda x: x[[0, 2]].sum())(numbers(3).to(d)),
        vmap(lambda x: x[[0, 2]])(numbers(4, 3).to(d)),
    ),
    "functionalize": lambda d: functionalize(lambda x: x.clone().add_(1))(numbers(3).to(d)),
    "make_fx": traced(lambda x: x.cos() + torch.arange(3, device=x.device) + x.new_zeros(3)),
    "make_fx in place": traced(lambda x: x.clone().add_(1).view(3)),
    "make_fx through the CPU": traced(lambda x: x.cpu().double() * 2),
}


def on_cpu(value):
    """Results as tensors of the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    return [on_cpu(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_the_cpus(name):
    """A program gives on the second device what it gives on the CPU, bit for bit."""
    expected = on_cpu(PROGRAMS[name]("cpu"))
    with simulate_cuda(devices=2):
        on_device = on_cpu(PROGRAMS[name]("cuda:1"))
        plain = on_cpu(PROGRAMS[name]("cpu"))
    for found in (on_device, plain):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("transform", [vmap, lambda f: grad(lambda x: f(x).sum()), jacrev, jacfwd])
def test_a_tensor_inside_says_where_it_is(transform):
    """``device`` and its like answer for a tensor that a transform has wrapped, and what is made there is there."""
    with simulate_cuda(devices=2):
        result = transform(asked)(numbers(3, 3).to("cuda:1") if transform is vmap else numbers(3).to("cuda:1"))
        assert result.device == torch.device("cuda", 1)
        assert transform(lambda x: x * (str(x.device) == "cuda:1"))(numbers(3).to("cuda:1")).count_nonzero()


class Wrong(Square):
    """Leaves its gradient on the CPU."""

    @staticmethod
    def backward(ctx, gradient):
        return (2 * ctx.saved_tensors[0] * gradient).cpu()


TWO = "at least two devices, cuda:1 and cpu!"
MISTAKES = {
    "vmap": (lambda x: vmap(lambda row: row + torch.ones(3))(x.expand(2, 3)), TWO),
    "grad": (grad(lambda x: (x * torch.ones(3)).sum()), TWO),
    "jacrev": (jacrev(lambda x: x * torch.ones(3)), TWO),
    "jvp": (lambda x: jvp(torch.sin, (x,), (torch.ones(3),)), TWO),
    "linearize": (lambda x: linearize(lambda t: t * torch.ones(3), x), TWO),
    "other device": (grad(lambda x: (x * torch.ones(3, device="cuda:0")).sum()), "two devices, cuda:1 and cuda:0!"),
    "vjp": (lambda x: vjp(torch.sin, x)[1](torch.ones(3)), "index 0 - expected device cuda:1 but got cpu"),
    "grad_outputs": (
        lambda x: torch.autograd.grad(x.requires_grad_() * 2, x, torch.eye(3), is_grads_batched=True),
        "invalid gradient at index 0 - expected device cuda:1 but got cpu",
    ),
    "Function": (
        grad(lambda x: Wrong.apply(x).sum()),
        "Function WrongGeneratedBackward returned an invalid gradient at index 0 - expected device cuda:1 but got cpu",
    ),
    "batched Function": (
        lambda x: torch.autograd.grad(
            Wrong.apply(x.requires_grad_()), x, torch.eye(3, device="cuda:1"), is_grads_batched=True
        ),
        "Function WrongBackward returned an invalid gradient at index 0 - expected device cuda:1 but got cpu",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mixed_devices_inside_are_refused(name):
    """A mistake inside a transform is refused as outside of one, with the devices by name."""
    call, message = MISTAKES[name]
    with simulate_cuda(devices=2), pytest.raises(RuntimeError, match=message):
        call(numbers(3).to("cuda:1"))


class Penalised(Clean):
    """A gradient penalty by batched gradients."""

    def training_step(self, batch, batch_idx):
        batch.requires_grad_()
        out = self.net(batch)
        rows = torch.eye(out.shape[1], device=batch.device)[:, None].expand(-1, *out.shape)
        (jacobian,) = torch.autograd.grad(out, batch, rows, create_graph=True, is_grads_batched=True)
        return out.square().mean() + jacobian.square().mean()


def test_preflight_of_a_gradient_penalty_is_clean():
    """A step with batched gradients and a graph of them has no finding."""
    report = preflight(Penalised, make_loader())
    assert report.ok, str(report)


def test_what_is_compiled_as_a_whole_runs():
    """``fullgraph=True`` is no reason to refuse, also for what was compiled before the simulation."""
    before = torch.compile(torch.sin, fullgraph=True, backend="eager")
    with simulate_cuda(devices=2):
        inside = torch.compile(torch.sin, fullgraph=True, backend="eager")
        x = numbers(3).to("cuda:1")
        assert torch.equal(before(x), torch.sin(x))
        assert torch.equal(inside(x), torch.sin(x))


@pytest.mark.skipif(torch.__version__ < "2.7", reason="torch 2.6 exports in another way")
def test_the_export_of_parameters_on_a_device_is_refused():
    """Torch without CUDA would end the process; without autograd the export works."""
    with simulate_cuda(devices=2):
        x = numbers(1, 2).to("cuda:1")
        model = nn.Linear(2, 2).to("cuda:1")
        with pytest.raises(NotImplementedError, match=r"export the model on the CPU \(model.cpu\(\)\)"):
            torch.export.export(model, (x,))
        with torch.no_grad():
            exported = torch.export.export(model, (x,)).module()
            assert torch.equal(exported(x), model(x))


def test_distributions_need_no_values():
    """Where there are no values nothing is validated, and afterwards it is again, if it was before."""
    before = vars(torch.distributions.Distribution)["_validate_args"]  # torch.compile switches it off for good
    with simulate_cuda(values=False):
        loc = torch.zeros(3, device="cuda")
        sample = torch.distributions.Normal(loc, torch.ones_like(loc)).rsample((2,))
        assert sample.shape == (2, 3)
    assert vars(torch.distributions.Distribution)["_validate_args"] is before
