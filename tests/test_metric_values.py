"""LossAccumulator gives right values where the arithmetic is special: nothing counted, half precision, tracing."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import lightning_devcheck._metric._weights as weights_module
from lightning_devcheck import LossAccumulator

WEIGHTS = {"a": 1.0, "b": 2.0}
POLICIES = ("propagate", "skip", "raise")
BAD = (math.nan, math.inf, -math.inf)


def tensors(*values, **options):
    return [torch.tensor(value, **options) for value in values]


def floats(values):
    return {name: value.item() for name, value in values.items()}


@pytest.mark.parametrize("without", [set(), {"cpu"}], ids=["float64", "two-float32"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("nan", POLICIES)
def test_no_samples_count_for_nothing(nan, bad, without, monkeypatch):
    """A step of n=0 leaves all means as they are, whatever its terms are."""
    monkeypatch.setattr(weights_module, "WITHOUT_FLOAT64", without)
    metric = LossAccumulator(WEIGHTS, nan=nan)
    for n in (4, 0, 0.0, 4):
        metric(tensors(1.0 if n else bad, 1.0), n=n)
        metric({"a": torch.tensor(1.0 if n else bad)}, n=n)
    assert floats(metric.compute()) == {"loss": 3.0, "a": 1.0, "b": 1.0}
    assert metric.update_count == 8


@pytest.mark.parametrize("nan", POLICIES)
def test_no_samples_count_for_nothing_in_compiled_code(nan):
    """An empty batch in a compiled loop, whose mean is NaN, counts for nothing; no step is compiled anew for it."""
    metric, counter = LossAccumulator(WEIGHTS, nan=nan), CompileCounter()

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def step(x, n):
        return metric([x.mean(), x.sum()], n=n)

    for values, n in [([1.0, 1.0], 4.0), ([], 0.0), ([1.0, 1.0], 2.0), ([math.inf, 1.0], 0.0)]:
        step(torch.tensor(values), n)
    assert floats(metric.compute()) == {"loss": 5.0, "a": 1.0, "b": 2.0}
    assert counter.frame_count <= 3


def test_raise_names_what_no_nan_made():
    """Under ``raise`` a NaN that inf and -inf make is named too, in a mean or in the total alone."""
    metric = LossAccumulator(WEIGHTS, nan="raise")
    for value in (math.inf, -math.inf):
        metric(tensors(1.0, value))
    with pytest.raises(ValueError, match=r"NaN in 'b' \(inf and -inf\)\. Look"):
        metric.compute()
    metric.reset()
    metric(tensors(math.inf, -math.inf))
    with pytest.raises(ValueError, match=r"NaN in 'loss' \(inf and -inf\)\. Look"):
        metric.compute()
    metric.reset()
    metric({"a": torch.tensor(math.inf)})
    assert metric.compute()["loss"] == math.inf, "infinite is not NaN, and a term nobody saw is none either"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weight", [1e-8, 2e-8, 1e-5, 0.3, 3e4, 1e5, 1e30, 1e39, -1e5])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_weights_that_half_precision_cannot_hold(weight, dtype, compiled):
    """The total and its gradients are those of ``a + weight * b`` in exact arithmetic, rounded to the losses' type."""
    metric = LossAccumulator({"a": 1.0, "b": weight})
    leaves = tensors(1.0, 0.25 / weight if 1e-6 < abs(weight) < 1e6 else 0.5, dtype=dtype, requires_grad=True)
    step = torch.compile(metric, backend="eager", fullgraph=True) if compiled else metric
    for _ in range(3):
        total = step(leaves)
    first, second = (leaf.item() for leaf in leaves)
    torch.testing.assert_close(total, torch.tensor(first + weight * second).to(dtype))
    total.backward()
    expected = [torch.tensor(value, dtype=torch.float64).to(dtype) for value in (1.0, weight)]
    torch.testing.assert_close([leaf.grad for leaf in leaves], expected)
    assert step({"a": leaves[0]}) == 1.0, "an absent term counts for nothing, however large its weight"


def test_a_weight_set_out_of_reach_and_back():
    """A weight that the losses' type cannot hold is weighed in a wider one, from the step on in which it was set."""
    metric = LossAccumulator(WEIGHTS)
    losses = tensors(1.0, 0.0005, dtype=torch.float16)
    for weight in (2.0, 1e5, 3.0, 1e300, 2.0):
        metric.weights["b"] = weight
        for _ in range(3):
            expected = torch.tensor(1.0 + weight * losses[1].item()).half()
            torch.testing.assert_close(metric(losses), expected)


@pytest.mark.parametrize("nan", ["propagate", "skip", "raise"])
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "not cached"])
def test_a_weight_set_after_compute_is_in_the_next_total(nan, cached):
    """The total is by the present weights where the means are those kept from an earlier compute, too."""
    metric = LossAccumulator({"a": 1.0, "b": 2.0, "c": 4.0}, nan=nan, compute_with_cache=cached)
    metric({"a": torch.tensor(1.0), "b": torch.tensor(2.0)})
    assert floats(metric.compute())["loss"] == 5.0
    metric.weights["a"] = 9.0
    values = floats(metric.compute())
    assert [values["loss"], values["a"], values["b"]] == [13.0, 1.0, 2.0]
    assert list(values) == ["loss", "a", "b", "c"]
    assert floats(copy.deepcopy(metric).compute())["loss"] == 13.0
    metric.weights.update(a=0.0, c=8.0)
    assert floats(metric.double().compute())["loss"] == 4.0, "c was never seen"
    other = LossAccumulator({"a": 1.0, "b": 2.0, "c": 4.0})
    other.weights["b"] = 3.0
    metric.load_state_dict(other.state_dict())
    assert floats(metric.compute())["loss"] == 7.0


def test_a_weight_that_makes_the_kept_means_undefined_is_refused():
    """Under nan="raise" a total that a weight set later makes NaN is named, as one of the first compute is."""
    metric = LossAccumulator({"a": 1.0, "b": 0.0}, nan="raise")
    metric({"a": torch.tensor(math.inf), "b": torch.tensor(-math.inf)})
    assert floats(metric.compute())["loss"] == math.inf
    metric.weights["b"] = 1.0
    with pytest.raises(ValueError, match=r"NaN in 'loss' \(inf and -inf\)"):
        metric.compute()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_weight_of_zero_switches_a_term_off(compiled, bad):
    """A NaN or infinite term of weight 0 is in no total and gets no gradient; its mean is logged as it is."""
    metric = LossAccumulator({"a": 1.0, "b": 2.0})
    metric.weights["b"] = 0.0
    step = torch.compile(metric, backend="eager", fullgraph=True) if compiled else metric
    for _ in range(3):
        leaves = tensors(3.0, bad, requires_grad=True)
        total = step(leaves)
    total.backward()
    assert total == metric.last_value("loss") == 3.0
    assert [leaf.grad.item() for leaf in leaves] == [1.0, 0.0]
    values = floats(metric.compute())
    assert values["loss"] == values["a"] == 3.0
    assert not math.isfinite(values["b"])
    metric.weights["b"] = 2.0
    assert step(tensors(1.0, 2.0)) == 5.0


@pytest.mark.parametrize("mode", ["fake", "make_fx", "functionalize", "grad", "vmap"])
@pytest.mark.parametrize("reset", [False, True], ids=["on", "reset"])
def test_steps_in_another_world_leave_nothing_behind(mode, reset):
    """After a first step under fake tensors, a tracer or a transform real steps give real and right values."""
    metric = LossAccumulator(WEIGHTS)

    def step(value):
        return metric([value, value * 2]) + metric({"a": value})

    with FakeTensorMode(allow_non_fake_inputs=True):
        outside = {
            "fake": lambda: [step(torch.ones(())) for _ in range(3)],
            "make_fx": lambda: make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(torch.ones(())),
        }
        if mode in outside:
            outside[mode]()
    transforms = {"functionalize": torch.func.functionalize, "grad": torch.func.grad, "vmap": torch.vmap}
    if mode in transforms:
        with pytest.raises(RuntimeError):  # torch refuses to write into the sums there
            transforms[mode](step)(torch.ones(3) if mode == "vmap" else torch.ones(()))
    if reset:
        metric.reset()
    for _ in range(3):
        total = metric(tensors(1.0, 2.0))
        assert type(total) is torch.Tensor
        assert total.item() == 5.0
    assert metric({"a": torch.tensor(1.0)}).item() == 1.0
    assert floats(metric.compute()) == {"loss": 5.0, "a": 1.0, "b": 2.0}


class Holder(torch.nn.Module):
    """A module whose forward is the weighted total."""

    def __init__(self, nan):
        super().__init__()
        self.losses = LossAccumulator(WEIGHTS, nan=nan)
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x):
        y = self.layer(x).mean()
        return self.losses([y, y * 2], n=len(x))


@pytest.mark.parametrize("nan", POLICIES)
def test_a_compiled_step_after_inference_mode(nan):
    """A reset, a load or an update in inference mode leaves sums that a compiled training step can write."""
    model = Holder(nan)
    step = torch.compile(model, backend="aot_eager", fullgraph=True)
    model.losses.persistent(True)
    state = model.losses.state_dict()
    for spoil in (
        model.losses.reset,
        lambda: model.losses.load_state_dict(state),
        lambda: model.losses.update(tensors(1.0, 2.0)),
        lambda: model.losses.to("cpu"),
    ):
        step(torch.ones(2, 1)).backward()
        with torch.inference_mode():
            spoil()
        step(torch.ones(2, 1)).backward()
    assert not model.losses.packed.is_inference()


class Deployed(torch.nn.Module):
    """A module whose forward does not use the accumulator that it holds."""

    def __init__(self):
        super().__init__()
        self.losses = LossAccumulator(WEIGHTS)
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore:This property will be removed")
def test_a_module_that_only_holds_one_is_scripted(tmp_path):
    """It is scripted, saved and loaded as with a MeanMetric in its place."""
    module = Deployed()
    module.losses(tensors(1.0, 2.0))
    scripted = torch.jit.script(module)
    torch.jit.save(scripted, tmp_path / "module.pt")
    x = torch.ones(1, 1)
    assert torch.equal(torch.jit.load(tmp_path / "module.pt")(x), module(x))
