"""An invalid gradient of torch's own node, in every wording that torch has had: which operand, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lightning_devcheck import explain, simulate_cuda
from lightning_devcheck._explain import explain_text
from lightning_devcheck._explain.messages import recognize
from lightning_devcheck._explain.nodes import is_torchs, operator_of
from lightning_devcheck._simulate.compat import ENGINE

SEEDS = Path(__file__).parents[2] / "shared" / "seeds"
OPTIONS = "TensorOptions(dtype=float, device={}, layout=Strided, requires_grad=false)"
DEFAULTS = (
    "TensorOptions(dtype=float (default), device={} (default), layout=Strided (default), "
    "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt) (default))"
)
TRACE = (
    " (validate_outputs at /pytorch/torch/csrc/autograd/engine.cpp:484)\n"
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string const&) + 0x46 (0x7f42 in /x/libc10.so)\n"
)
CURES = ("start from the first term", "torch.zeros((), device=self.device)", "LossAccumulator")
WORDINGS = {
    "2.x": "expected device cuda:0 but got cpu",
    "1.5": f"expected type {OPTIONS.format('cuda:0')} but got {OPTIONS.format('cpu')}{TRACE}",
    "1.6": f"expected type {DEFAULTS.format('cuda:0')} but got {DEFAULTS.format('cpu')}",
    "1.2": "expected device 0 but got -1",
    "1.1": "expected type torch.cuda.FloatTensor but got torch.FloatTensor",
    "0.4": "expected type CUDAFloatType but got CPUFloatType",
    "0.4 variable": "expected type Variable[CUDAFloatType] but got Variable[CPUFloatType]",
    "cut": "expected ... device=cuda:0 but got ... device=cpu",
    "broken lines": "expected type TensorOptions(dtype=float,\ndevice=cuda:0, ...) but\n got TensorOptions(device=cpu)",
}
NODES = {
    "AddBackward0": ("what stands left of +", "what stands right of +"),
    "AddBackward": ("what stands left of +", "what stands right of +"),
    "ThAddBackward": ("what stands left of +", "what stands right of +"),
    "SthAddBackward": ("what stands left of +", "what stands right of +"),
    "torch::autograd::generated::AddBackward0": ("what stands left of +", "what stands right of +"),
    "SubBackward0": ("what stands left of -", "what stands right of -"),
    "MulBackward0": ("what stands left of *", "what stands right of *"),
    "DivBackward0": ("what stands left of /", "what stands right of /"),
    "MmBackward": ("what stands left of @", "what stands right of @"),
    "StackBackward0": ("another tensor of the list for stack", "tensor 1 of the list for stack"),
    "StackBackward": ("another tensor of the list for stack", "tensor 1 of the list for stack"),
    "CatBackward": ("another tensor of the list for cat", "tensor 1 of the list for cat"),
    "MseLossBackward0": ("the input of mse_loss", "the target of mse_loss"),
    "WhereBackward0": ("the input of where", "the other of where"),
    "IndexPutBackward0": ("the input of index_put", "the values of index_put"),
    "torch::autograd::CopySlices": ("the input of copy_slices", "the values of copy_slices"),
    "struct torch::autograd::CopySlices": ("the input of copy_slices", "the values of copy_slices"),
    "CudnnConvolutionBackward": ("the input or bias of cudnn_convolution", "the weight of cudnn_convolution"),
    "SumBackward0": ("what sum or its result met", "operand 1 of sum"),
    "ToCopyBackward0": ("what to_copy or its result met", "operand 1 of to_copy"),
    "BroadcastBackward": ("what broadcast or its result met", "operand 1 of broadcast"),
    "torch::jit::(anonymous namespace)::DifferentiableGraphBackward": (
        "what differentiable_graph or its result met",
        "operand 1 of differentiable_graph",
    ),
}


def blamed(text):
    """The one finding of a text, which an exception without a traceback gives as well."""
    (finding,) = explain_text(f"Traceback (most recent call last):\n  ...\nRuntimeError: {text}\n").findings
    (live,) = explain(RuntimeError(text)).findings
    assert (live.rule, live.name, live.what, live.why) == (finding.rule, finding.name, finding.what, finding.why)
    return finding


@pytest.mark.parametrize("wording", WORDINGS.values(), ids=WORDINGS)
@pytest.mark.parametrize("node", NODES)
def test_own_node_names_the_operand(node, wording):
    """Each operator in each wording: the operand on the CPU is named, its cures, and no backward of the user's."""
    finding = blamed(f"Function {node} returned an invalid gradient at index 1 - {wording}")
    culprit, partner = NODES[node]
    device = "cuda:0" if "cuda:0" in wording or "-1" in wording else "cuda"
    assert finding.rule == "gradient-device"
    assert finding.what == f"{culprit} is on cpu, {partner} is on {device}"
    assert "torch's own backward" in finding.why
    assert "Usually a running sum starts on the CPU" in finding.why
    assert "of your own returned" not in finding.why
    assert all(cure in finding.fix for cure in CURES)


def test_text_of_the_report():
    """The whole text: what, evidence, why, fix, rule."""
    text = f"Function AddBackward0 returned an invalid gradient at index 1 - {WORDINGS['1.5']}"
    assert str(explain_text(text)).splitlines() == [
        "what stands left of + is on cpu, what stands right of + is on cuda:0",
        "",
        "  what stands left of +  cpu",
        "",
        "  AddBackward0 is torch's own backward of +, not one of yours: tensors of two devices met there.",
        "  Index 1 is what stands right of +.",
        "  Usually a running sum starts on the CPU: loss = torch.zeros(1), then loss += term.",
        "  Hint: start from the first term, or loss = torch.zeros((), device=self.device),",
        "        or let LossAccumulator add the terms up: total = self.losses(terms)",
        "  Rule: gradient-device (docs/rules.md#gradient-device)",
    ]


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(("expected", "got"), [("cuda:0", "cpu"), ("cpu", "cuda:0"), ("cuda:0", "cuda:1")])
def test_index_tells_the_operand(index, expected, got):
    """The operand of the index is where its gradient is expected, the other one where the result is."""
    words = f"expected device {expected} but got {got}"
    finding = blamed(f"Function AddBackward0 returned an invalid gradient at index {index} - {words}")
    sides = ["left", "right"]
    culprit = sides[index] if expected == "cpu" else sides[1 - index]
    assert finding.name == f"what stands {culprit} of +"
    assert (finding.device, finding.expected) == ((expected, got) if expected == "cpu" else (got, expected))
    assert f"Index {index} is what stands {sides[index]} of +." in finding.why


SEED_TEXTS = sorted(SEEDS.glob("*.txt")) if SEEDS.is_dir() else []


@pytest.mark.skipif(not SEED_TEXTS, reason="the reports are beside the checkout")
@pytest.mark.parametrize("path", SEED_TEXTS, ids=lambda path: path.stem)
def test_original_reports(path):
    """The texts that this began with, pasted whole: a running sum that starts on the CPU."""
    finding = blamed(path.read_text(encoding="utf-8"))
    assert finding.what == "what stands left of + is on cpu, what stands right of + is on cuda:0"
    assert all(cure in finding.fix for cure in CURES)


CUSTOM = {
    "ClipBackward": "Clip.backward",
    "MyFnBackward": "MyFn.backward",
    "Round2Backward": "Round2.backward",
    "OldStyle": "OldStyle.backward",
    "torch::autograd::CppNode<my::Fused<float> >": "Fused.backward",
}


@pytest.mark.parametrize("wording", [WORDINGS["2.x"], WORDINGS["1.5"], WORDINGS["1.1"]])
@pytest.mark.parametrize("node", CUSTOM)
def test_function_of_the_users(node, wording):
    """A node without a number that torch has none of is a Function of the user's: its backward is named."""
    finding = blamed(f"Function {node} returned an invalid gradient at index 0 - {wording}")
    assert finding.name == CUSTOM[node]
    assert finding.what.startswith(f"{CUSTOM[node]} returned a gradient on cpu, the gradient belongs on cuda")
    assert finding.why == "A backward or a hook of your own returned its gradient on another device."
    assert "torch.ones_like(grad)" in finding.fix
    assert "LossAccumulator" not in finding.fix


def test_function_of_the_users_with_a_name_of_torchs():
    """A Function called as torch called one of its nodes: the line that applies it tells, else both are named."""
    error = f"RuntimeError: Function RoundBackward returned an invalid gradient at index 0 - {WORDINGS['2.x']}"
    lines = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 5, in forward\n    {}\n' + error
    assert "(Where a Function of your own is called Round, look at its backward.)" in str(explain_text(error))
    assert explain_text(lines.format("return Round.apply(x)")).findings[0].name == "Round.backward"
    assert explain_text(lines.format("return round_ste(x)")).findings[0].name != "Round.backward"


def test_line_of_the_forward_pass():
    """Where anomaly mode told the line that made the node, that line is shown."""
    text = (
        "/x/site-packages/torch/autograd/graph.py:825: UserWarning: Error detected in AddBackward0. "
        "Traceback of forward call that caused the error:\n"
        '  File "/home/me/train.py", line 7, in step\n'
        "    loss += term\n"
        " (Triggered internally at /pytorch/torch/csrc/autograd/python_anomaly_mode.cpp:122.)\n"
        "  return Variable._execution_engine.run_backward(\n"
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 9, in <module>\n'
        "    loss.backward()\n"
        f"RuntimeError: Function AddBackward0 returned an invalid gradient at index 1 - {WORDINGS['2.x']}\n"
    )
    (finding,) = explain_text(text).findings
    assert (finding.used.lineno, finding.used.line) == (7, "loss += term")


def test_gradient_that_was_handed_in():
    """Without a node it is the gradient that the caller of backward gave."""
    for who in ("", "Function torch::autograd::GraphRoot returned an "):
        finding = blamed(f"{who}invalid gradient at index 0 - expected device cuda:1 but got cpu")
        assert finding.name == "the gradient that was handed in"
        assert "loss.backward(gradient.to(loss.device))" in finding.fix
        assert "of your own" not in finding.why


LOOK_ALIKES = [
    "got [3] but expected shape compatible with [4]",
    "got [3, 4] but expected shape compatible with [4] on cuda:0, see device cpu",
    "expected type torch.cuda.FloatTensor but got torch.cuda.HalfTensor",
    "expected type torch.FloatTensor but got torch.DoubleTensor",
    "expected type UndefinedType but got CUDAFloatType",
    "expected device 1 but got 1",
    "expected type torch.cuda.FloatTensor but got torch.cuda.sparse.FloatTensor",
    "expected type CUDAFloatType but got CUDAHalfType",
    f"expected type {OPTIONS.format('cuda:0')} but got {OPTIONS.format('cuda:0').replace('Strided', 'Sparse')}",
    f"expected type {DEFAULTS.format('cpu')} but got {DEFAULTS.format('cpu').replace('float', 'double')}",
    "expected dtype Float but got Double",
    "expected layout Strided but got Sparse",
    "expected 3 dimensions but got 4",
]


@pytest.mark.parametrize("node", ["AddBackward0", "ClipBackward", "CopySlices"])
@pytest.mark.parametrize("words", LOOK_ALIKES, ids=lambda words: words[:40])
def test_gradient_of_another_shape_or_type(words, node):
    """Shapes, dtypes and layouts on one device are no device error."""
    text = f"Function {node} returned an invalid gradient at index 0 - {words}"
    assert recognize(text) is None
    assert explain_text(f"RuntimeError: {text}\n") is explain(RuntimeError(text)) is None


def test_type_error_behind_a_device_error():
    """An error about a dtype does not hide the device error before it."""
    first = f"Function AddBackward0 returned an invalid gradient at index 1 - {WORDINGS['2.x']}\n"
    second = f"Function MulBackward0 returned an invalid gradient at index 0 - {LOOK_ALIKES[2]}\n"
    assert recognize(first + second).node == "AddBackward0"


@pytest.mark.parametrize(
    ("node", "operator"),
    [
        ("MaxPool2DWithIndicesBackward0", "max_pool2d_with_indices"),
        ("LogSoftmaxBackward0", "log_softmax"),
        ("ThnnConv2DBackward", "conv2d"),
        ("AsStridedBackward0_copy", "as_strided"),
        ("TBackward0", "t"),
        ("SumBackwardAutogradNestedTensor0", "sum"),
    ],
)
def test_operator_of_a_node(node, operator):
    """A node's name gives torch's operator."""
    assert is_torchs(node)
    assert operator_of(node) == operator


def _failing(message):
    """Raise as torch's engine does, below ``backward``."""
    source = f"def run_backward(*args, **kwargs):\n    raise RuntimeError({message!r})\n"
    names = {}
    exec(compile(source, f"{torch.__path__[0]}/autograd/engine.py", "exec"), names)
    return names["run_backward"]


def test_running_sum_of_a_live_error(monkeypatch):
    """With the exception at hand the sum itself is named, with the line that starts it."""
    message = f"Function AddBackward0 returned an invalid gradient at index 1 - {WORDINGS['2.x']}"
    with simulate_cuda(devices=1):
        x = torch.ones(3, device="cuda", requires_grad=True)
        loss = torch.zeros(1)  # the culprit
        loss += (2 * x).sum().cpu()
        with monkeypatch.context() as patch:  # ends before the simulation puts back what it replaced
            patch.setattr(*ENGINE, _failing(message))
            with pytest.raises(RuntimeError, match="AddBackward0") as caught:
                loss.backward()
    (finding,) = explain(caught.value).findings
    assert (finding.rule, finding.name, finding.device) == ("gradient-device", "loss", "cpu")
    assert finding.origin.line.startswith("loss = torch.zeros(1)")
    assert finding.fix.startswith("loss = torch.zeros(1, device=")
    assert "of your own" not in finding.why
