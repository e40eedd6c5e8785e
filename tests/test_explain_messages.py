"""The messages of torch, torchmetrics, DDP and FSDP, of several versions: which rule, which devices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import nn

from lightning_devcheck import explain
from lightning_devcheck._explain import explain_text
from lightning_devcheck._explain.messages import CATALOGUE, recognize

SAME = "Expected all tensors to be on the same device, but"
MESSAGES = [
    (f"{SAME} found at least two devices, cuda:0 and cpu!", "mixed-devices", ("cuda:0", "cpu")),
    (
        f"{SAME} found at least two devices, cpu and cuda:1! (when checking argument for argument weight in method "
        "wrapper_CUDA_nll_loss_forward)",
        "mixed-devices",
        ("cpu", "cuda:1"),
    ),
    (f"{SAME} got weight is on cpu, different from other tensors on cuda:0", "mixed-devices", ("cpu", "cuda:0")),
    ("All input tensors must be on the same device. Received cuda:0 and cpu", "mixed-devices", ("cuda:0", "cpu")),
    (
        "Function AddBackward0 returned an invalid gradient at index 1 - expected device cuda:0 but got cpu",
        "gradient-device",
        ("cuda:0", "cpu"),
    ),
    (
        "Function AddBackward0 returned an invalid gradient at index 1 - expected type TensorOptions(dtype=float, "
        "device=cuda:0, layout=Strided) but got TensorOptions(dtype=float, device=cpu, layout=Strided)",
        "gradient-device",
        ("cuda:0", "cpu"),
    ),
    ("invalid gradient at index 0 - expected device cuda:1 but got cpu", "gradient-device", ("cuda:1", "cpu")),
    (
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
        "mixed-devices",
        ("cpu",),
    ),
    ("Trying to pass too many CPU scalars to CUDA kernel!", "mixed-devices", ()),
    (
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
        "mixed-devices",
        ("cuda", "cpu"),
    ),
    (
        "attempting to assign a gradient with device type 'cpu' to a tensor with device type 'cuda'. Please ensure",
        "gradient-device",
        ("cuda", "cpu"),
    ),
    ("Encountered different devices in metric calculation (see stacktrace for details).", "metric-device", ()),
    ("No backend type associated with device type cpu", "collective-device", ("cpu",)),
    ("Tensors must be CUDA and dense", "collective-device", ()),
    ("Input tensor is not a lazy tensor: torch.FloatTensor", "mixed-devices", ("floattensor",)),
    ("FakeTensor is wrapped to wrong device, found cpu, expected cuda:0", "mixed-devices", ("cuda:0", "cpu")),
    (
        "Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cuda:0, cpu",
        "mixed-devices",
        ("cuda:0", "cpu"),
    ),
    (
        "DistributedDataParallel's input module must be on the same type of devices, but input module parameters "
        "locate in {'cpu', 'cuda'}.",
        "parameter-device",
        (),
    ),
    (
        "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device "
        "GPU modules or CPU modules",
        "parameter-device",
        (),
    ),
    ("FSDP only supports single device modules but got params on {cpu, cuda:0}", "parameter-device", ()),
    (
        "Module is given device_id argument cuda:1, but is on cpu.",
        "parameter-device",
        ("cuda:1", "cpu"),
    ),
    ("An FSDP-managed module with parameter CPU offloading enabled has parameters on cuda:0", "parameter-device", ()),
    ("Expected a 'cuda' device type for generator but found 'cpu'", "mixed-devices", ("cuda", "cpu")),
    (
        "hook '<lambda>' has changed the type of value (was torch.cuda.FloatTensor got torch.FloatTensor)",
        "gradient-device",
        (),
    ),
    (
        "Tensors of the same index must be on the same device and the same dtype except `step` tensors",
        "optimizer-device",
        (),
    ),
    (
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
        "host-read",
        ("cuda:0",),
    ),
    ("CUDA error: invalid device ordinal", "wrong-rank-device", ()),
    (
        "Input and parameter tensors are not at the same device, found input tensor at cpu and parameter tensor at "
        "cuda:0",
        "mixed-devices",
        ("cpu", "cuda:0"),
    ),
    (
        "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
        "mixed-devices",
        ("cuda:0",),
    ),
    ("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned", "batch-device", ("cuda",)),
    ("expected device cpu but got device cuda:0", "mixed-devices", ("cpu", "cuda:0")),
    (
        "Expected tensor for argument #1 'input' to have the same device as tensor for argument #2 'weight'; but "
        "device 0 does not equal 1 (while checking arguments for cudnn_convolution)",
        "mixed-devices",
        (),
    ),
    (
        "grid_sampler(): expected input and grid to be on same device, but input is on cuda:0 and grid is on cpu",
        "mixed-devices",
        (),
    ),
    (
        "index_copy_(): self, index and source expected to be in the same device, but got (self) cpu",
        "mixed-devices",
        (),
    ),
    ("meshgrid expects all tensors to have the same device", "mixed-devices", ()),
    ("quantile() q tensor must be on the same device as the input tensor", "mixed-devices", ()),
    ("query must be a CUDA tensor", "mixed-devices", ()),
    ("Placeholder storage has not been allocated on MPS device!", "mixed-devices", ()),
    (
        "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of them on "
        "device: cpu",
        "parameter-device",
        ("cuda:0", "cpu"),
    ),
    ("If capturable=False, state_steps should not be CUDA tensors.", "optimizer-device", ()),
    ("Tensor on device cuda:0 is not on the expected device meta!", "meta-parameter", ()),
    ("Cannot copy out of meta tensor; no data!", "meta-parameter", ()),
    (
        "Expected object of type torch.cuda.FloatTensor but found type torch.FloatTensor for argument #2 'mat2'",
        "mixed-devices",
        ("cuda", "cpu"),
    ),
    (
        "Expected tensor to have CPU Backend, but got tensor with CUDA Backend (while checking arguments for "
        "batch_norm_cpu)",
        "mixed-devices",
        ("cpu", "cuda"),
    ),
    (
        "Expected tensor to have cuda DeviceType, but got tensor with cpu DeviceType (while checking arguments for "
        "embedding)",
        "mixed-devices",
        ("cuda", "cpu"),
    ),
    ("expected type torch.cuda.FloatTensor but got torch.FloatTensor", "mixed-devices", ("cuda", "cpu")),
    (
        "Tensor for 'out' is on CPU, Tensor for argument #1 'self' is on CPU, but expected them to be on GPU",
        "mixed-devices",
        ("cuda", "cpu"),
    ),
    ("can't convert CUDA tensor to numpy. Use Tensor.cpu() to copy the tensor", "host-read", ("cuda",)),
    ("[rank1]: Connection closed by peer [127.0.0.1]:1234", "", ()),
    ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", "", ()),
]


# words of torch, Lightning and others that mention devices or tensors, and are about something else
LOOK_ALIKES = [
    RuntimeError("INFO: all models run on the same device"),
    RuntimeError("Expected object of type torch.cuda.LongTensor but found type torch.cuda.FloatTensor"),
    RuntimeError("expected type torch.cuda.FloatTensor but got torch.cuda.HalfTensor"),
    ValueError("device must be one of cpu, cuda"),
    KeyError("cuda"),
    KeyError("Expected all tensors to be on the same device"),
    AttributeError("'Model' object has no attribute 'device'"),
    TypeError("to() received an invalid combination of arguments - got (str, device=torch.device)"),
    TypeError("can't convert np.ndarray of type numpy.object_."),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity)"),
    RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported at some other call"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    RuntimeError("No CUDA GPUs are available"),
    RuntimeError("Found no NVIDIA driver on your system."),
    RuntimeError("Cannot re-initialize CUDA in forked subprocess."),
    RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:1269, internal error"),
    RuntimeError("Default process group has not been initialized"),
    RuntimeError("Expected to have finished reduction in the prior iteration before starting a new one."),
    RuntimeError("HTTPSConnectionPool(host='x', port=443): Connection reset by peer"),
    ConnectionResetError("[Errno 104] Connection reset by peer"),
    RuntimeError("[Errno 104] Connection reset by peer"),
    TimeoutError("Socket Timeout"),
    OSError("No space left on device"),
    RuntimeError("Expected all tensors to be the same size"),
    RuntimeError("stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 1"),
    RuntimeError("The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
    RuntimeError("expected scalar type Float but found Half"),
    RuntimeError("expected m1 and m2 to have the same dtype, but got: float != double"),
    RuntimeError("Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the same"),
    RuntimeError("Input type (double) and bias type (float) should be the same"),
    RuntimeError("Input and hidden tensors are not the same dtype, found input tensor with Float"),
    RuntimeError("'lengths' argument should be a 1D CPU int64 tensor, but got 2D cpu Long tensor"),
    RuntimeError("index out of range in self"),
    IndexError("Target 5 is out of bounds."),
    RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation"),
    RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn"),
    RuntimeError("Function MulBackward0 returned an invalid gradient at index 0 - got [3] but expected shape [4]"),
    RuntimeError("hook '<lambda>' has changed the size of value"),
    RuntimeError("AdamW(fused=True) on 8 GPUs, on CUDA"),
    RuntimeError("Function AddBackward0 returned nan values in its 0th output."),
    RuntimeError("attempting to assign a gradient of size '[3]' to a tensor of size '[4]'."),
    RuntimeError("attempting to assign a gradient with dtype 'float' to a tensor with grad_dtype 'double'"),
    RuntimeError("assigned grad has data of a different type"),
    RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."),
    RuntimeError("cannot pin 'torch.sparse.FloatTensor' only dense CPU tensors can be pinned"),
    RuntimeError("DataLoader worker (pid 123) is killed by signal: Killed."),
    RuntimeError("Error(s) in loading state_dict for Model: size mismatch for net.weight"),
    ValueError("optimizer got an empty parameter list"),
    NotImplementedError("Could not run 'aten::foo' with arguments from the 'CUDA' backend."),
    ValueError("labels should be on the same file system device"),
    ValueError("All inputs must be on the same scale"),
]


@pytest.mark.parametrize("error", LOOK_ALIKES, ids=lambda error: f"{type(error).__name__} {str(error)[:30]}")
def test_look_alike_is_not_explained(error):
    """What only mentions devices gives None, as an exception and in a log."""
    assert explain(error) is None
    if isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError):
        assert explain_text(f"Traceback (most recent call last):\n  ...\nRuntimeError: {error}\n") is None


@pytest.mark.parametrize(("text", "rule", "devices"), MESSAGES, ids=[text[:40] for text, _, _ in MESSAGES])
def test_message_is_known(text, rule, devices):
    """Each wording is recognised, with its rule and the devices it names."""
    match = recognize(f"Traceback (most recent call last):\n  ...\nRuntimeError: {text}\n")
    assert match is not None
    assert match.message.rule == rule
    assert set(match.devices) == set(devices)


@pytest.mark.parametrize(("text", "rule", "devices"), MESSAGES, ids=[text[:40] for text, _, _ in MESSAGES])
def test_message_on_an_exception(text, rule, devices):
    """An exception with the message alone, no tensor in sight, is explained by it."""
    report = explain(RuntimeError(text))
    assert [finding.rule for finding in report.findings] == [rule] * bool(rule)
    assert all(finding.fix and finding.why for finding in report.findings)


def test_secondary_error_points_to_the_other_process():
    """A process that only lost its peers is no finding, and says where to look."""
    report = explain(RuntimeError("Connection closed by peer"))
    assert report.ok
    assert "look at the report of the process that failed first" in str(report)


def test_wrapping_names_the_parameter():
    """A module that DDP refuses is searched for the part that is elsewhere."""
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    error = RuntimeError("DistributedDataParallel's input module must be on the same type of devices")
    finding = explain(error, module).findings[0]
    assert (finding.rule, finding.name, finding.device) == ("meta-parameter", "self[2].weight", "meta")


def test_pasted_traceback():
    """A pasted traceback is explained by its message and its last line of the user's."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 42, in training_step\n'
        "    loss += weight * term\n"
        f"RuntimeError: {SAME} found at least two devices, cpu and cuda:0!\n"
    )
    finding = explain_text(text).findings[0]
    assert (finding.rule, finding.device, finding.expected) == ("mixed-devices", "cpu", "cuda:0")
    assert (finding.used.lineno, finding.used.line) == (42, "loss += weight * term")


def test_other_text_is_not_explained():
    """Text without a device message gives None."""
    assert explain_text("ValueError: shapes (2,) and (3,) not aligned") is None


def test_every_message_is_in_the_catalogue():
    """docs/errors.md has a section for each kind of message."""
    page = (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
    anchors = set(re.findall(r"^\(error-([\w-]+)\)=$", page, flags=re.MULTILINE))
    assert {message.id for message in CATALOGUE} <= anchors


@pytest.mark.parametrize(
    ("text", "name", "device"),
    [
        (f"{SAME} found at least two devices, cpu and cuda:0! (when checking argument for argument mat2", "", "cpu"),
        (f"{SAME} found at least two devices, cuda:0 and cpu! (when checking argument for argument mat2", "m", "cpu"),
        (f"{SAME} got mat2 is on cpu, different from other tensors on cuda:0", "m", "cpu"),
        (f"{SAME} got mat2 is on cuda:0, different from other tensors on cpu", "", "cpu"),
        ("Expected object of backend CUDA but got backend CPU for argument #2 'mat2'", "m", "cpu"),
        ("Expected object of device type cpu but got device type cuda for argument #2 'mat2' in call to", "m", "cuda"),
    ],
)
def test_argument_that_is_named_is_not_blamed_for_another(text, name, device):
    """The argument that a message names is the culprit only where it is the one on the culprit's device."""
    finding = explain_text(text).findings[0]
    assert finding.name == ("argument mat2" if name else "a tensor beside argument mat2")
    assert finding.device == device


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "indices should be either on cpu or on the same device as the indexed tensor (cuda:0)",
            "a tensor is on another device, what it met is on cuda:0",
        ),
        (
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
            "a tensor is on cpu, what it met is on the model's device",
        ),
        (f"{SAME} found at least two devices, cuda:0 and cuda:1!", "a tensor is on cuda:0, what it met is on cuda:1"),
        (
            "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
            "argument weight is on cpu, what it met is on cuda",
        ),
        (
            "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
            "a tensor beside argument weight is on cpu, what it met is on cuda",
        ),
        (
            "Expected a 'cpu' device type for generator but found 'cuda'",
            "argument generator is on cuda, what it met is on cpu",
        ),
    ],
)
def test_side_that_a_message_tells(text, what):
    """The culprit is what the message puts there: a CPU index is no mistake, a weight is told from its input."""
    assert explain_text(text).findings[0].what == what


def test_argument_is_not_blamed_for_another_in_an_exception():
    """An exception without a traceback names the argument only where that is the culprit."""
    told = "found at least two devices, cpu and cuda:0! (when checking argument for argument mat1 in method"
    finding = explain(RuntimeError(f"{SAME} {told} wrapper_addmm)")).findings[0]
    assert finding.what == "a tensor beside argument mat1 is on cpu, what it met is on cuda:0"
