"""The device errors that torch, torchmetrics, DDP and FSDP raise: how to know one, what it means, what to write."""

from __future__ import annotations

import re
from dataclasses import dataclass

_D = r"(?:(?:cuda|cpu|meta|mps|xpu|xla|hpu|lazy|npu)(?::\d+)?)"
# the wrapper that checks devices is named for its operator: wrapper_CUDA_addmm, wrapper_CUDA__index_select
_OPERATOR = re.compile(r"in method wrapper_(?:CUDA_)?_?(?P<name>\w+)")
MAX_TEXT = 50_000  # characters of a message or log that are searched


@dataclass(frozen=True, slots=True)
class Message:
    """One kind of message.

    Attributes:
        id: Its anchor in ``docs/errors.md``.
        pattern: How to know it; groups ``a`` and ``b`` are devices, ``expected`` and ``found`` devices by role,
            ``argument`` the operator's argument, ``node`` a graph node, ``hook`` a hook.
        rule: The rule that it breaks; empty where another process is the one to look at.
        cause: What it means, where nothing more is known.
        fix: What to write.
    """

    id: str
    pattern: re.Pattern[str]
    rule: str
    cause: str
    fix: str


def _message(id: str, pattern: str, rule: str, cause: str = "", fix: str = "") -> Message:
    return Message(id, re.compile(pattern.replace("DEVICE", _D), re.DOTALL), rule, cause, fix)


OTHER_RANK = (
    "This process only saw that another one left or did not come. A device error on one process leaves the others "
    "waiting in their next collective: look at the report of the process that failed first."
)
_NCCL = "NCCL sends device tensors only; this one is on the CPU."
_NCCL_FIX = "hand over a tensor on self.device: self.log(name, value.detach()) without .cpu()"
_WRAP = "Distributed training wraps the module once, and wants all of its parameters on this process's device by then."

CATALOGUE: tuple[Message, ...] = (
    _message(
        "invalid-gradient",
        r"(?:Function (?P<node>\w+) returned an )?invalid gradient at index \d+ - expected "
        r"(?:device (?P<expected>DEVICE) but got (?P<found>DEVICE)|type TensorOptions\([^)]*device=(?P<a>DEVICE)[^)]*\)"
        r" but got TensorOptions\([^)]*device=(?P<b>DEVICE))",
        "gradient-device",
    ),
    _message(
        "hook-changed-type",
        r"hook '(?P<hook>[^']*)' has changed the (?:type|device) of value",
        "gradient-device",
        "A tensor hook may change a gradient's values, not its device.",
        "keep the gradient where it is: no .cpu() or .to() in the hook",
    ),
    _message(
        "assign-gradient",
        r"attempting to assign a gradient (?:with|of) device(?: type)? '(?P<found>DEVICE)' to a tensor (?:with|of) "
        r"device(?: type)? '(?P<expected>DEVICE)'"
        r"|assigned grad has data located on a different device"
        r"|attempting to assign a gradient located on device with index '\d+' to a tensor located on device with index",
        "gradient-device",
        "A gradient is where its tensor is.",
        "tensor.grad = grad.to(tensor.device)",
    ),
    _message("metric-devices", r"Encountered different devices in metric calculation", "metric-device", "", ""),
    _message(
        "at-least-two-devices",
        r"Expected all tensors to be on the same device, but found at least two devices, (?P<a>DEVICE) and "
        r"(?P<b>DEVICE)"
        r"(?:.*?when checking argument for argument (?P<argument>\w+))?",
        "mixed-devices",
    ),
    _message(
        "different-from-other-tensors",
        r"Expected all tensors to be on the same device, but got (?P<argument>\w+) is on (?P<a>DEVICE), "
        r"different from other tensors on (?P<b>DEVICE)",
        "mixed-devices",
    ),
    _message(
        "optimizer-state-devices",
        r"Tensors of the same index must be on the same device and (?:the same )?dtype|state_steps.{0,80}on CUDA"
        r"|state_steps should not be CUDA tensors|must have same dtype, device, and layout"
        r"|`?(?:fused|capturable)=True`?.{0,80}(?:on|CUDA|supported device)",
        "optimizer-device",
    ),
    _message(
        "index-device",
        r"ind(?:ices|ex) should be (?:either )?on (?P<a>DEVICE) or on the same device as the indexed tensor "
        r"\((?P<b>DEVICE)\)|indices should be either on \S+ or on the same device as the indexed tensor",
        "mixed-devices",
        "A device tensor may be indexed by CPU indices, a CPU tensor not by device indices.",
    ),
    _message(
        "same-device",
        r"\b(?:must|should|need|[Ee]xpect(?:s|ed)?|[Aa]ll)\b.{0,100}?\b(?:on|in|have) (?:the )?same (?:(?:CUDA|cuda) )?"
        r"device\b(?:\. Received (?P<a>DEVICE) and (?P<b>DEVICE))?"
        r"|[Ee]xpected device (?P<expected>DEVICE) but got device (?P<found>DEVICE)"
        r"|to have the same device as tensor for argument|(?:arguments|tensors) are located on different GPUs"
        r"|\bmust be (?:a )?(?:CUDA|cuda) tensors?\b|Placeholder storage has not been allocated on MPS device",
        "mixed-devices",
    ),
    _message(
        "host-argument",
        r"'(?P<argument>\w+)' argument should be a 1D CPU int64 tensor, but got 1D (?P<found>(?!cpu)DEVICE)"
        r"|must be a CPU tensor; it is currently on device (?P<b>DEVICE)",
        "mixed-devices",
        "torch reads this argument on the host, whatever device the other arguments are on.",
        "leave it on the CPU, or hand over lengths.cpu()",
    ),
    _message(
        "recurrent-layer-devices",
        r"Input and (?:hidden|parameter) tensors are not at the same device, found input tensor at (?P<a>DEVICE) and "
        r"(?P<argument>\w+) tensor at (?P<b>DEVICE)",
        "mixed-devices",
    ),
    _message(
        "meta-tensor",
        r"Tensor on device DEVICE is not on the expected device meta"
        r"|Cannot copy out of meta tensor; no data",
        "meta-parameter",
        "A tensor on the meta device has a shape and no data.",
    ),
    _message(
        "fake-tensor-devices",
        r"Unhandled FakeTensor Device Propagation for \S+, found two different devices (?P<a>DEVICE), (?P<b>DEVICE)"
        r"|FakeTensor is wrapped to wrong device, found (?P<found>DEVICE), expected (?P<expected>DEVICE)",
        "mixed-devices",
        "torch.compile met tensors on two devices while it traced the function.",
    ),
    _message(
        "cpu-scalars",
        r"Trying to pass too many CPU scalars to (?:CUDA|\w+) kernel",
        "mixed-devices",
        "One 0-dim CPU tensor may join device tensors; two may not.",
    ),
    _message(
        "input-and-weight-type",
        r"Input type \((?P<input>[\w.]+)\) and (?:weight|bias) type \((?P<weight>[\w.]+)\) should be the same",
        "mixed-devices",
        "The layer and its input are on two devices.",
        "keep the layer in the module (nn.ModuleList for several), and make its input with device=self.device",
    ),
    _message(
        "expected-type-backend",
        r"Expected (?:object of|a) (?:device type|backend|type)\s+'?(?P<expected>cuda|CUDA|cpu|CPU)'? (?:but got|"
        r"device type for generator but found)[^.]*?'?(?P<found>cpu|CPU|cuda|CUDA)'?",
        "mixed-devices",
    ),
    _message(
        "generator-device",
        r"Expected a '(?P<expected>\w+)' device type for generator but found '(?P<found>\w+)'",
        "mixed-devices",
        "A generator draws on its own device only.",
        "torch.Generator(device=self.device), made after Lightning has moved the module",
    ),
    _message(
        "set-data",
        r"incompatible tensor type|Attempted to call `variable\.set_data\(tensor\)`",
        "mixed-devices",
        "Assigning .data puts the new tensor's memory in, wherever that is.",
        "copy the values in place: parameter.data.copy_(values)",
    ),
    _message(
        "collective-cpu-tensor",
        r"No backend type associated with device type (?P<found>DEVICE)|Tensors must be CUDA and dense"
        r"|(?:ProcessGroup)?NCCL.{0,60}only supports? .{0,20}CUDA",
        "collective-device",
        _NCCL,
        _NCCL_FIX,
    ),
    _message(
        "ddp-several-device-types",
        r"DistributedDataParallel's input module must be on the same type of devices|"
        r"DistributedDataParallel device_ids and output_device arguments only work with "
        r"single-device/multiple-device GPU modules"
        r"|module must have its parameters and buffers on device (?P<expected>DEVICE) \(device_ids\[0\]\) but found "
        r"one of them on device: (?P<found>DEVICE)",
        "parameter-device",
        _WRAP,
        "make every layer in __init__ or configure_model, and move none of them by hand",
    ),
    _message(
        "fsdp-one-device",
        r"FSDP only supports single device modules|is given device_id argument (?P<expected>DEVICE), but is on "
        r"(?P<found>DEVICE)|FSDP-managed module with parameter CPU offloading enabled has parameters on"
        r"|FSDP parameters should be (?:materialized|on)",
        "parameter-device",
        _WRAP,
        "make every layer in configure_model, and move none of them by hand",
    ),
    _message("lazy-tensor", r"Input tensor is not a lazy tensor: torch\.(?P<found>\w+)", "mixed-devices"),
    _message(
        "to-numpy",
        r"can't convert (?P<found>DEVICE) device type tensor to numpy",
        "host-read",
        "NumPy reads host memory; this tensor is on a device.",
        "value.detach().cpu().numpy(), once per logging interval rather than in every step",
    ),
    _message(
        "pin-memory",
        r"cannot pin '(?:torch\.)?(?P<found>cuda|meta|xpu|mps)[\w.]*' only dense CPU tensors can be pinned",
        "batch-device",
        "A loader pins host memory; this tensor is on a device already: the dataset or collate_fn put it there.",
        "leave moving the batch to Lightning: no .cuda() or .to() in the dataset or collate_fn, or pin_memory=False",
    ),
    _message(
        "no-such-device",
        r"CUDA error: invalid device ordinal|Attempting to deserialize object on (?:a )?CUDA device"
        r"|Torch not compiled with CUDA enabled|PyTorch is not linked with support for cuda devices",
        "wrong-rank-device",
        "The code names a device that this machine does not have.",
        "self.device in place of the written-out one; torch.load(..., map_location=self.device)",
    ),
    _message(
        "other-process",
        r"(?:^|Error: |(?<!Errno \d{2})(?<!Errno \d{3})\] ?:? ?)Connection (?:closed|reset) by peer"
        r"|Watchdog caught collective operation timeout|Socket Timeout"
        r"|wait timeout after \d+ms|Timed out waiting \d+ms for|collective operation timeout",
        "",
        OTHER_RANK,
    ),
)
GRAD_SCALER = _message(
    "grad-scaler-cpu-loss",
    r"assert outputs\.is_cuda",
    "loss-device",
    "GradScaler of older torch versions takes CUDA losses only.",
)


@dataclass(frozen=True, slots=True)
class Match:
    """A message that was recognised.

    Attributes:
        message: Which one.
        devices: The devices it names.
        expected: The device it says is right, or nothing.
        argument: The operator's argument that it names, or nothing.
        node: The graph node that it names, or nothing.
        hook: The hook that it names, or nothing.
        operator: torch's operator that it names, or nothing.
    """

    message: Message
    devices: tuple[str, ...] = ()
    expected: str = ""
    argument: str = ""
    node: str = ""
    hook: str | None = None
    operator: str = ""


def recognize(text: str) -> Match | None:
    """Find the first kind of message that a text holds; None for texts that are not about devices."""
    text = text[:MAX_TEXT]
    for message in (*CATALOGUE, GRAD_SCALER):
        found = message.pattern.search(text)
        groups = {} if found is None else {key: value for key, value in found.groupdict().items() if value}
        if found is not None and not _is_about_dtypes(groups):
            operator = _OPERATOR.search(text)
            return _match(message, {**groups, "operator": operator["name"] if operator else ""})
    return None


def _is_about_dtypes(groups: dict[str, str]) -> bool:
    """Whether the two tensor types of a message differ in their dtypes only."""
    return "input" in groups and _device_of_type(groups["input"]) == _device_of_type(groups["weight"])


def _match(message: Message, groups: dict[str, str]) -> Match:
    if "input" in groups:
        groups["a"], groups["b"] = (_device_of_type(groups[key]) for key in ("input", "weight"))
    named = [groups.get(key, "").lower() for key in ("expected", "found", "a", "b")]
    return Match(
        message,
        devices=tuple(dict.fromkeys(device for device in named if device)),
        expected=named[0],
        argument=groups.get("argument", ""),
        node=groups.get("node", ""),
        hook=groups.get("hook"),
        operator=groups.get("operator", ""),
    )


def _device_of_type(name: str) -> str:
    """The device of ``torch.cuda.FloatTensor`` or ``CUDABFloat16Type``; ``cpu`` for ``torch.FloatTensor``."""
    return "cuda" if "cuda" in name.lower() else "cpu"
