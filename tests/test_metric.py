"""LossAccumulator in one process: values, state, copies, devices, precision, compilation."""

from __future__ import annotations

import copy
import gc
import io
import math
import pickle
import weakref

import pytest
import torch
import torchmetrics
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

import lightning_devcheck._metric._weights as weights_module
from lightning_devcheck import LossAccumulator, scan, simulate_cuda

WEIGHTS = {"full": 0.5, "half": 0.25, "quarter": 0.125}
POLICIES = ("propagate", "skip", "raise")


class Recorder(TorchDispatchMode):
    """Names of all operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def scalars(*values, dtype=torch.float32):
    """0-dim losses with a graph."""
    leaf = torch.tensor(values, dtype=dtype, requires_grad=True)
    return list((leaf * 1).unbind())


def named(*values, **options):
    return dict(zip(WEIGHTS, scalars(*values, **options), strict=True))


def floats(values):
    return {name: value.item() for name, value in values.items()}


@pytest.mark.parametrize(
    "losses",
    [
        named(1, 2, 4),
        dict(reversed(named(1, 2, 4).items())),
        scalars(1, 2, 4),
        tuple(scalars(1, 2, 4)),
        (term for term in scalars(1, 2, 4)),
        torch.stack(scalars(1, 2, 4)),
        named(1, 2, 4).items(),
        zip(WEIGHTS, scalars(1, 2, 4), strict=True),
    ],
    ids=["mapping", "other-order", "list", "tuple", "generator", "stacked", "items", "pairs"],
)
def test_every_form_of_losses_gives_the_same(losses):
    """Mappings, sequences, iterables, pairs and a stacked tensor are all taken."""
    metric = LossAccumulator(WEIGHTS)
    total = metric(losses)
    assert total.item() == 1.5
    assert total.requires_grad
    assert total.shape == ()
    assert floats(metric.compute()) == {"loss": 1.5, "full": 1.0, "half": 2.0, "quarter": 4.0}


@pytest.mark.parametrize(
    ("weights", "names"),
    [({"a": 1, "b": 2.5}, ["a", "b"]), ([0.5, 0.25], ["0", "1"]), ((1.0,), ["0"]), (3, ["0", "1", "2"])],
    ids=["mapping", "list", "tuple", "number"],
)
def test_every_form_of_weights(weights, names):
    """A mapping, a sequence and a number of terms are taken as weights."""
    metric = LossAccumulator(weights)
    metric.update([torch.ones(()) for _ in names])
    assert list(metric.compute()) == ["loss", *names]


def test_the_gradient_is_the_weight():
    """The total's gradient by each term is its weight."""
    terms = [torch.tensor(float(i), requires_grad=True) for i in range(3)]
    LossAccumulator(WEIGHTS)(terms).backward()
    assert [term.grad.item() for term in terms] == [0.5, 0.25, 0.125]


def test_means_count_samples():
    """Means and total are those over all samples, not over steps."""
    metric = LossAccumulator(WEIGHTS)
    metric(scalars(1, 1, 1), n=3)
    metric.update(scalars(5, 1, 9), n=1)
    assert floats(metric.compute()) == {"loss": 0.5 * 2 + 0.25 + 0.125 * 3, "full": 2.0, "half": 1.0, "quarter": 3.0}


@pytest.mark.parametrize("nan", POLICIES)
def test_an_absent_term_counts_for_nothing(nan):
    """A term that is left out changes neither its mean nor the total of the step."""
    metric = LossAccumulator(WEIGHTS, nan=nan)
    terms = named(1, 2, 4)
    del terms["half"]
    assert metric(terms, n=2).item() == 1.0
    metric(named(1, 6, 4), n=2)
    assert floats(metric.compute()) == {"loss": 2.5, "full": 1.0, "half": 6.0, "quarter": 4.0}


@pytest.mark.parametrize("n", [1, 0.1])
def test_a_term_that_nobody_saw_is_nan_and_not_in_the_total(n):
    """A term that never came has no mean, also with a number of samples that is not whole."""
    metric = LossAccumulator(WEIGHTS)
    for _ in range(10):
        metric({"full": torch.tensor(2.0)}, n=n)
    values = floats(metric.compute())
    assert math.isnan(values["half"])
    assert values["loss"] == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_total_has_the_dtype_of_the_losses(dtype):
    """The total is in the losses' dtype, the means in float64."""
    metric = LossAccumulator(WEIGHTS)
    assert metric(named(1, 2, 4, dtype=dtype)).dtype == dtype
    assert metric.compute()["full"].dtype == torch.float64


def test_losses_of_two_dtypes_are_promoted():
    """Terms of two dtypes give the wider one, as adding them does."""
    total = LossAccumulator(2)([torch.ones((), dtype=torch.bfloat16), torch.ones(())])
    assert total.dtype == torch.float32


def test_autocast_changes_nothing():
    """Under bf16 autocast float32 losses give a float32 total."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert LossAccumulator(WEIGHTS)(named(1, 2, 4)).dtype == torch.float32


@pytest.mark.parametrize("nan", POLICIES)
@pytest.mark.parametrize("absent", [False, True], ids=["all", "absent"])
def test_operators_are_few_and_the_host_reads_nothing(nan, absent):
    """A step is at most 8 operators, for 3 terms as for 20, and none of them reads a value."""
    counts = set()
    for size in (3, 6, 20):
        metric = LossAccumulator(size, nan=nan)
        terms = {str(i): term for i, term in enumerate(scalars(*range(size - absent)))}
        with Recorder() as first:
            metric(terms)
        with Recorder() as recorder:
            metric(terms)
        assert not {"aten._local_scalar_dense.default", "aten.is_nonzero.default"} & {*first.names, *recorder.names}
        counts.add(len(recorder.names))
    assert len(counts) == 1
    assert counts.pop() <= 8


def test_nan_propagates():
    """By default a NaN term makes its mean and the total NaN, and no other."""
    metric = LossAccumulator(WEIGHTS)
    assert metric(named(1, math.nan, 4)).isnan()
    values = floats(metric.compute())
    assert math.isnan(values["loss"])
    assert math.isnan(values["half"])
    assert values["quarter"] == 4.0


def test_nan_is_skipped():
    """Under ``skip`` a NaN term counts for neither mean nor total, and its gradient is zero."""
    metric = LossAccumulator(WEIGHTS, nan="skip")
    terms = [torch.tensor(value, requires_grad=True) for value in (1.0, math.nan, 4.0)]
    total = metric(terms, n=2)
    total.backward()
    assert total.item() == 1.0
    assert [term.grad.item() for term in terms] == [0.5, 0.0, 0.125]
    metric(named(1, 2, 4), n=2)
    assert floats(metric.compute()) == {"loss": 1.5, "full": 1.0, "half": 2.0, "quarter": 4.0}


def test_infinity_is_not_skipped():
    """An infinite term is not a NaN."""
    metric = LossAccumulator(WEIGHTS, nan="skip")
    assert metric(named(1, math.inf, 4)).item() == math.inf
    assert metric.compute()["half"].item() == math.inf


def test_nan_is_reported_in_compute():
    """Under ``raise`` the step goes on and ``compute`` names the terms; the sums stay as they were."""
    metric = LossAccumulator(WEIGHTS, nan="raise")
    metric(named(1, math.nan, 4), n=3)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"NaN in 'half' \(3 samples\)"):
            metric.compute()
    metric.reset()
    metric(named(1, 2, 4))
    assert metric.compute()["half"].item() == 2.0


def test_callers_tensor_is_left_alone():
    """Skipping a NaN does not write into the losses."""
    losses = torch.tensor([1.0, math.nan, 4.0])
    LossAccumulator(WEIGHTS, nan="skip").update(losses)
    assert losses[1].isnan()


@pytest.mark.parametrize("nan", POLICIES)
def test_no_graph_is_kept(nan):
    """After a step nothing keeps the losses' graph alive."""
    metric = LossAccumulator(WEIGHTS, nan=nan)
    leaf = torch.ones(3, requires_grad=True)
    hidden = leaf * 2
    token = Recorder()  # a graph node itself takes no weak reference, so something that lives as long
    hidden.grad_fn.metadata["token"] = token
    node = weakref.ref(token)
    total = metric(list(hidden.unbind()))
    metric.update(hidden)
    del total, hidden, token
    gc.collect()
    assert node() is None
    assert not metric.packed.requires_grad


def test_memory_does_not_grow():
    """100,000 updates leave the number of Python objects where it was."""
    metric, terms = LossAccumulator(WEIGHTS), scalars(1, 2, 4)
    for _ in range(100):
        metric.update(terms)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(100_000):
        metric.update(terms)
    gc.collect()
    assert len(gc.get_objects()) - before < 50
    assert metric.packed.shape == (1, 12)


@pytest.mark.parametrize("without", [set(), {"cpu"}], ids=["float64", "two-float32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mean_stays_exact(dtype, without, monkeypatch):
    """The mean over many steps agrees with exact arithmetic to 1e-9, also in two float32."""
    monkeypatch.setattr(weights_module, "WITHOUT_FLOAT64", without)
    metric = LossAccumulator(1)
    values = (torch.rand(20_000, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    for value in values.unbind():
        metric.update([value])
    (sums,) = metric.packed.double().sum(0).view(3, -1)[1:2]
    exact = math.fsum(values.tolist()) / len(values)
    assert (sums[1] / sums[0]).item() == pytest.approx(exact, rel=1e-9)
    assert metric.compute()["0"].item() == pytest.approx(exact, rel=1e-6 if without else 1e-9)


def test_two_float32_take_infinities(monkeypatch):
    """Where there is no float64 an infinite loss stays infinite."""
    monkeypatch.setattr(weights_module, "WITHOUT_FLOAT64", {"cpu"})
    metric = LossAccumulator(2)
    for _ in range(2):
        metric.update([torch.tensor(math.inf), torch.tensor(1.0)])
    assert floats(metric.compute())["0"] == math.inf
    assert floats(metric.compute())["1"] == 1.0


@pytest.mark.parametrize(
    "cast",
    [
        lambda m: m.to(torch.bfloat16),
        lambda m: m.half(),
        lambda m: m.bfloat16(),
        lambda m: m.float(),
        lambda m: m.to("cpu", torch.float16),
        lambda m: m.type(torch.float16),
    ],
    ids=["to", "half", "bfloat16", "float", "to-device-dtype", "type"],
)
def test_no_cast_reaches_the_sums(cast):
    """Casting the module that holds it leaves sums and results in float64."""
    module = nn.Module()
    module.losses = LossAccumulator(WEIGHTS)
    module.losses(named(1, 2, 4))
    module.losses.compute()
    cast(module)
    assert module.losses.packed.dtype == torch.float64
    assert module.losses.compute()["full"].dtype == torch.float64
    module.losses.reset()
    assert module.losses.packed.dtype == torch.float64


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: m.clone()])
@pytest.mark.parametrize("nan", POLICIES)
def test_copies_after_forward(duplicate, nan):
    """Copies made right after a forward go on by themselves, with their own views and weights."""
    metric = LossAccumulator(WEIGHTS, nan=nan)
    metric(named(1, 2, 4))
    copied = duplicate(metric)
    copied(named(3, 2, 4))
    copied.weights["half"] = 0.0
    assert copied.compute()["full"].item() == 2.0
    assert metric.compute()["full"].item() == 1.0
    assert metric.weights["half"] == 0.25
    assert [view.compute().item() for _, view in copied.items()][1] == 2.0


def test_it_can_be_saved_whole():
    """``torch.save`` of a module that holds one works after a forward."""
    metric = LossAccumulator(WEIGHTS)
    metric(named(1, 2, 4))
    buffer = io.BytesIO()
    torch.save(nn.ModuleList([metric]), buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False)[0].compute()["full"].item() == 1.0


def test_weights_are_read_and_set():
    """A weight set during training counts from the next step on; no value is read."""
    metric = LossAccumulator(WEIGHTS)
    metric(named(1, 2, 4))
    with Recorder() as recorder:
        metric.weights["half"] = 0.0
    assert not any("_local_scalar_dense" in name for name in recorder.names)
    assert metric.weights["half"] == 0.0
    assert dict(metric.weights) == {**WEIGHTS, "half": 0.0}
    assert metric(named(1, 2, 4)).item() == 1.0


def test_a_weight_set_between_forward_and_backward():
    """The graph of the step before keeps its own weights."""
    metric = LossAccumulator(1)
    term = torch.tensor(3.0, requires_grad=True)
    total = metric([term])
    metric.weights["0"] = 5.0
    total.backward()
    assert term.grad.item() == 1.0


@pytest.mark.parametrize("persistent", [False, True])
def test_weights_are_on_the_checkpoint(persistent):
    """A changed weight is saved and loaded; sums only where asked for."""
    metric = LossAccumulator(WEIGHTS)
    assert metric.state_dict() == {}
    metric.persistent(persistent)
    metric(named(1, 2, 4), n=2)
    metric.weights["half"] = 0.75
    state = nn.ModuleDict({"losses": metric}).state_dict()
    assert set(state) == {"losses.weights", "losses.terms", *(["losses.packed"] if persistent else [])}
    loaded = nn.ModuleDict({"losses": LossAccumulator(WEIGHTS)})
    loaded.load_state_dict(state)
    assert loaded["losses"].weights["half"] == 0.75
    assert loaded["losses"](named(1, 2, 4)).item() == 2.5
    assert loaded["losses"].update_called


def test_a_weight_set_back_is_on_the_checkpoint_too():
    """A weight that was set back to its first value overwrites another one on loading."""
    metric, other = LossAccumulator(WEIGHTS), LossAccumulator(WEIGHTS)
    metric.weights["half"] = 9.0
    metric.weights["half"] = 0.25
    other.weights["half"] = 9.0
    other.load_state_dict(metric.state_dict())
    assert other.weights["half"] == 0.25


def test_loading_resumes_exactly():
    """Loaded sums go on as if nothing had happened, count as an update, and share no memory with the checkpoint."""
    metric, other = LossAccumulator(WEIGHTS), LossAccumulator(WEIGHTS)
    metric.persistent(True)
    metric(named(1, 2, 4), n=3)
    state = metric.state_dict()
    kept = state["packed"].clone()
    other.load_state_dict(dict(state))
    other(named(5, 2, 4), n=1)
    assert floats(other.compute())["full"] == 2.0
    assert torch.equal(state["packed"], kept)


def test_a_checkpoint_of_other_terms_is_refused():
    """Loading the weights of another number of terms says so."""
    metric = LossAccumulator(2)
    metric.weights["0"] = 3.0
    with pytest.raises(RuntimeError, match="the checkpoint has 2 terms, this has 3"):
        LossAccumulator(WEIGHTS).load_state_dict(metric.state_dict())


@pytest.mark.parametrize("nan", POLICIES)
def test_validation_in_inference_mode_and_training_share_it(nan):
    """Steps, results and a reset in inference mode do not spoil later training steps."""
    metric = LossAccumulator(WEIGHTS, nan=nan)
    for _ in range(2):
        with torch.inference_mode():
            metric({"full": torch.ones(())})
            metric(named(1, 2, 4))
            metric.weights["half"] = 0.5
            metric.compute()
            metric.reset()
            metric(named(1, 2, 4))
        term = torch.ones((), requires_grad=True)
        metric([term, term, term]).backward()
        metric.reset()
        metric({"full": term, "half": term}).backward()


def skip_where_nothing_compiles(counter):
    """Skip on torch 2.6 where the process compiles nothing more, as after code was compiled inside a simulation."""
    if torch.__version__ < "2.7" and not counter.frame_count:
        pytest.skip("torch 2.6 may compile nothing more once code was compiled inside a simulation")


def test_compiled_code_is_compiled_once():
    """A compiled step has no graph break, is compiled once in 100 calls, and follows a changed weight."""
    counter, metric = CompileCounter(), LossAccumulator(WEIGHTS)

    @torch.compile(backend=counter, fullgraph=True)
    def step(x):
        return metric({"full": x.mean(), "half": (x * 2).mean(), "quarter": (x * 4).mean()}, n=4)

    x = torch.ones(3, requires_grad=True)
    for _ in range(100):
        total = step(x)
    assert total.item() == 1.5
    metric.weights["half"] = 0.0
    assert step(x).item() == 1.0
    step(x).backward()
    skip_where_nothing_compiles(counter)
    assert counter.frame_count == 1
    assert metric.compute()["quarter"].item() == 4.0
    metric.reset()
    step(x)
    assert counter.frame_count == 1


@pytest.mark.parametrize("nan", POLICIES)
def test_compiled_code_with_a_policy_and_update(nan):
    """Other policies, absent terms and ``update`` compile once too."""
    counter, metric = CompileCounter(), LossAccumulator(WEIGHTS, nan=nan)

    @torch.compile(backend=counter, fullgraph=True)
    def step(x):
        metric.update([x.mean(), x.sum(), x.max()])
        return metric({"full": x.mean(), "quarter": x.mean()})

    for _ in range(10):
        step(torch.ones(3))
    skip_where_nothing_compiles(counter)
    assert counter.frame_count == 1
    assert floats(metric.compute()) == {"loss": 1.375, "full": 1.0, "half": 3.0, "quarter": 1.0}


def test_on_simulated_devices_everything_stays_there():
    """The total is where the losses are, the sums follow at the first step, and backward works."""
    with simulate_cuda(devices=2):
        metric = LossAccumulator(WEIGHTS)
        terms = [torch.tensor(float(i), device="cuda:1", requires_grad=True) for i in range(3)]
        total = metric(terms)
        assert total.device == torch.device("cuda:1")
        total.backward()
        assert terms[0].grad.device == torch.device("cuda:1")
        assert metric.compute()["half"].device == metric.device == torch.device("cuda:1")
        assert metric.compute()["half"].item() == 1.0


def test_nothing_in_it_alarms_the_scan():
    """Its sums, constants and views are no unregistered tensors or modules of the user's."""
    module = nn.ModuleDict({"losses": LossAccumulator(WEIGHTS)})
    module["losses"](named(1, 2, 4))
    module["losses"].compute()
    assert str(scan(module)).startswith("no findings")


def test_a_meta_module_gets_zeros():
    """Built on ``meta`` and materialised with ``to_empty``, the sums start from zero."""
    with torch.device("meta"):
        module = nn.ModuleDict({"losses": LossAccumulator(WEIGHTS)})
    module.to_empty(device="cpu")
    assert module["losses"](named(1, 2, 4)).item() == 1.5
    assert module["losses"].compute()["full"].item() == 1.0


@pytest.mark.parametrize(
    "constant", ["is_differentiable", "higher_is_better", "full_state_update", "plot_lower_bound", "plot_upper_bound"]
)
def test_constants_cannot_be_assigned(constant):
    """Constants of the class are constants, as in every torchmetrics metric."""
    with pytest.raises(RuntimeError, match="Can't change const"):
        setattr(LossAccumulator(WEIGHTS), constant, True)


def test_forward_equals_update_and_compute():
    """The value of a step equals the total of a fresh metric that saw that step only."""
    metric, fresh = LossAccumulator(WEIGHTS), LossAccumulator(WEIGHTS)
    metric(named(7, 7, 7))
    fresh.update(named(1, 2, 3), n=4)
    assert metric(named(1, 2, 3), n=4).item() == fresh.compute()["loss"].item()


def test_is_differentiable_is_honest():
    """The total wants a gradient exactly where the losses do."""
    assert LossAccumulator.is_differentiable
    assert LossAccumulator(WEIGHTS)(named(1, 2, 4)).requires_grad
    assert not LossAccumulator(WEIGHTS)([torch.ones(()) for _ in WEIGHTS]).requires_grad


def test_hash_tells_two_apart():
    """Two metrics differ in their hash, and one keeps it in a step."""
    one, two = LossAccumulator(WEIGHTS), LossAccumulator(WEIGHTS)
    assert hash(one) != hash(two)
    before = hash(one)
    one(named(1, 2, 4))
    assert hash(one) == before


def test_update_count_and_reset():
    """Steps are counted, and a reset forgets all but the weights."""
    metric = LossAccumulator(WEIGHTS)
    metric.weights["half"] = 1.0
    metric(named(1, 2, 4))
    metric.update(named(1, 2, 4))
    assert metric.update_count == 2
    metric.reset()
    assert metric.update_count == 0
    assert not metric.packed.any()
    assert metric.weights["half"] == 1.0


def test_changing_a_result_changes_nothing_else():
    """What ``compute`` gives belongs to the caller."""
    metric = LossAccumulator(WEIGHTS)
    metric(named(1, 2, 4))
    values = metric.compute()
    values["full"].zero_()
    del values["half"]
    assert floats(metric.compute()) == {"loss": 1.5, "full": 1.0, "half": 2.0, "quarter": 4.0}


@pytest.mark.skipif(not hasattr(torchmetrics.Metric, "merge_state"), reason="torchmetrics has it from 1.5 on")
def test_merge_state_adds():
    """Two accumulators merge as torchmetrics merges sums."""
    one, two = LossAccumulator(WEIGHTS), LossAccumulator(WEIGHTS)
    one(named(1, 2, 4))
    two(named(3, 2, 4))
    one.merge_state(two)
    assert one.compute()["full"].item() == 2.0


@pytest.mark.filterwarnings("ignore:`torch.jit.script`", "ignore:This property will be removed")
def test_a_scripted_one_refuses_to_be_called():
    """Scripted it cannot be used: it takes mappings and generators, which TorchScript has no types for."""
    scripted = torch.jit.script(LossAccumulator(WEIGHTS))
    with pytest.raises(AttributeError, match="RecursiveScriptModule"):
        scripted(torch.ones(3))


def test_it_plots():
    """One result and a list of results are drawn, each term under its name."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    metric = LossAccumulator(WEIGHTS)
    metric(named(1, 2, 4))
    _, axes = metric.plot()
    assert "full" in {text.get_text() for text in axes.get_legend().get_texts()}
    metric.plot([metric.compute(), metric.compute()])
    pyplot.close("all")


def test_a_tracker_takes_it():
    """The library's own MetricTracker keeps a result per epoch."""
    tracker = torchmetrics.wrappers.MetricTracker(LossAccumulator(WEIGHTS), maximize=False)
    for value in (1, 3):
        tracker.increment()
        tracker.update(scalars(value, value, value))
    assert tracker.compute_all()["full"].tolist() == [1.0, 3.0]


def _copied(metric):
    return copy.deepcopy(metric)


def _pickled(metric):
    return pickle.loads(pickle.dumps(metric))


def _weighted(metric):
    metric.weights["half"] = 0.125
    return metric


def _cast(metric):
    return metric.double().half()


def _restored(metric):
    metric.persistent(True)
    other = LossAccumulator({"full": 9.0, "half": 9.0})
    other.load_state_dict(metric.state_dict())
    return other


@pytest.mark.parametrize("between", [_copied, _pickled, _weighted, _cast, _restored])
@pytest.mark.parametrize("form", ["list", "mapping", "reordered mapping", "tuple"])
def test_steps_alike_and_what_comes_between(between, form):
    """Steps like the one before, which go a shorter way, add up as the first one does, whatever comes between them."""
    terms = {"full": torch.tensor(1.5), "half": torch.tensor(2.0)}
    losses = {
        "list": [*terms.values()],
        "mapping": terms,
        "reordered mapping": dict(reversed(terms.items())),
        "tuple": tuple(terms.values()),
    }[form]
    metric = LossAccumulator({"full": 0.5, "half": 0.25})
    for _ in range(3):
        assert metric(losses, n=2) == 0.5 * 1.5 + 0.25 * 2
    original, metric = metric, between(metric)
    for _ in range(3):
        assert metric(losses, n=2) == sum(metric.weights[name] * term for name, term in terms.items())
    found = metric.compute()
    assert (found["full"], found["half"]) == (1.5, 2.0)
    assert metric.packed.sum(0).view(3, -1)[1].tolist() == [12.0, 18.0, 24.0]
    if metric is not original:
        assert original.packed.sum(0).view(3, -1)[1].tolist() == [6.0, 9.0, 12.0]


def test_terms_of_another_kind_after_steps_alike():
    """A term that is absent, in another dtype, NaN, or with another number of samples still counts as it should."""
    metric = LossAccumulator([1.0, 1.0])
    pair = [torch.tensor(1.0), torch.tensor(2.0)]
    for losses, n in [
        (pair, 1),
        (pair, 1),
        ([pair[0].double(), pair[1]], 2),
        ({"1": pair[1]}, 1),
        (pair, 0.5),
        (pair, 3),
    ]:
        metric(losses, n=n)
    assert metric.compute()["0"] == 1.0
    assert metric.compute()["1"] == 2.0
    assert metric.packed.sum(0).view(3, -1)[:2].tolist() == [[0.0, 1.0, 0.0], [8.5, 7.5, 17.0]]
    assert metric([torch.tensor(torch.nan), pair[1]]).isnan()
    assert metric.compute()["0"].isnan()
