"""The device errors that torch, torchmetrics, DDP and FSDP raise: how to know one, what it means, what to write."""

from __future__ import annotations

import re
from dataclasses import dataclass

_D = r"(?:(?:cuda|cpu|meta|mps|xpu|xla|hpu|lazy|npu)(?::\d+)?)"
# devices as old torch wrote them: torch.cuda.FloatTensor, CUDAFloatType, 1, and -1 for the CPU
_TYPE = (
    r"(?:\bDEVICE\b|torch\.(?:cuda\.|sparse\.){0,2}\w{1,40}Tensor|\w{0,20}(?:CPU|CUDA)\w{0,20}Type"
    r"|(?:(?<=expected device )|(?<=but got ))-?\d{1,3}\b)"
)


@dataclass(frozen=True, slots=True)
class Message:
    """One kind of message.

    Attributes:
        id: Its anchor in ``docs/errors.md``.
        clues: Words one of which each of its wordings has: they are found much faster than the pattern.
        pattern: How to know it; groups ``a`` and ``b`` are devices, ``expected`` and ``found`` devices by role,
            ``argument`` the operator's argument, ``own`` its device,
            ``node`` a graph node, ``index`` one of the node's operands,
            ``hook`` a hook. Every gap has a limit: the time to search is proportional to the text.
        rule: The rule that it breaks; empty where another process is the one to look at.
        cause: What it means, where nothing more is known.
        fix: What to write.
    """

    id: str
    clues: tuple[str, ...]
    pattern: re.Pattern[str]
    rule: str
    cause: str
    fix: str


def _message(id: str, clues: str, pattern: str, rule: str, cause: str = "", fix: str = "") -> Message:
    spelled = pattern.replace("TYPE", _TYPE).replace("DEVICE", _D)
    return Message(id, tuple(clues.split("|")), re.compile(spelled), rule, cause, fix)


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
        "invalid gradient at index",
        r"(?:Function (?P<node>\S{1,160}(?: \S{1,160}){0,4}?) returned an )?invalid gradient at index "
        r"(?P<index>\d{1,9}) - expected (?:device|type|\.\.\.|…) (?:(?!but got).){0,300}?(?P<expected>TYPE)"
        r"(?:(?!but got).){0,300}?\bbut got (?:(?!invalid gradient).){0,300}?(?P<found>TYPE)",
        "gradient-device",
    ),
    _message(
        "hook-changed-type",
        "has changed the ",
        r"hook '(?P<hook>[^']{0,200})' has changed the (?:type|device) of value",
        "gradient-device",
        "A tensor hook may change a gradient's values, not its device.",
        "keep the gradient where it is: no .cpu() or .to() in the hook",
    ),
    _message(
        "assign-gradient",
        "attempting to assign a gradient|assigned grad has data located",
        r"attempting to assign a gradient (?:with|of) device(?: type)? '(?P<found>DEVICE)' to a tensor (?:with|of) "
        r"device(?: type)? '(?P<expected>DEVICE)'"
        r"|assigned grad has data located on a different device"
        r"|attempting to assign a gradient located on device with index '\d+' to a tensor located on device with index",
        "gradient-device",
        "A gradient is where its tensor is.",
        "tensor.grad = grad.to(tensor.device)",
    ),
    _message(
        "metric-devices",
        "Encountered different devices",
        r"Encountered different devices in metric calculation",
        "metric-device",
        "",
        "",
    ),
    _message(
        "at-least-two-devices",
        "found at least two devices",
        r"Expected all tensors to be on the same device, but found at least two devices, (?P<a>DEVICE) and "
        r"(?P<own>DEVICE)"
        r"(?:.{0,40}?when checking argument for argument (?P<argument>\w{1,60}))?",
        "mixed-devices",
    ),
    _message(
        "different-from-other-tensors",
        "different from other tensors on",
        r"Expected all tensors to be on the same device, but got (?P<argument>\w{1,60}) is on (?P<own>DEVICE), "
        r"different from other tensors on (?P<b>DEVICE)",
        "mixed-devices",
    ),
    _message(
        "optimizer-state-devices",
        "Tensors of the same index|state_steps|same dtype, device|fused=True|capturable=True",
        r"Tensors of the same index must be on the same device and (?:the same )?dtype|state_steps.{0,80}on CUDA"
        r"|state_steps should not be CUDA tensors|must have same dtype, device, and layout"
        r"|`?(?:fused|capturable)=True`?.{0,80}(?:must be (?:on|CUDA)|supported device)",
        "optimizer-device",
    ),
    _message(
        "index-device",
        "same device as the indexed tensor",
        r"ind(?:ices|ex) should be (?:either )?on \S{1,40} or on the same device as the indexed tensor"
        r"(?: \((?:(?P<found>cpu)|(?P<expected>DEVICE))\))?",
        "mixed-devices",
        "A device tensor may be indexed by CPU indices, a CPU tensor not by device indices.",
    ),
    _message(
        "same-device",
        "same device|same CUDA device|same cuda device|xpected device|different GPUs|CUDA tensor|cuda tensor"
        "|Placeholder storage",
        r"\b(?:must|should|need|[Ee]xpect(?:s|ed)?)\b.{0,100}?\b(?:on|in|have) (?:the )?same (?:(?:CUDA|cuda) )?"
        r"device\b(?:\. Received (?P<a>DEVICE) and (?P<b>DEVICE))?"
        r"|[Ee]xpected device (?P<expected>DEVICE) but got device (?P<found>DEVICE)"
        r"|to have the same device as tensor for argument|(?:arguments|tensors) are located on different GPUs"
        r"|\bmust be (?:a )?(?:CUDA|cuda) tensors?\b|Placeholder storage has not been allocated on MPS device",
        "mixed-devices",
    ),
    _message(
        "host-argument",
        "should be a 1D CPU|must be a CPU tensor|to be on cpu, but|only implemented on CPU",
        r"'(?P<argument>\w{1,60})' argument should be a 1D CPU int64 tensor, but got 1D (?P<found>(?!cpu)DEVICE)"
        r"|must be a CPU tensor; it is currently on device (?P<b>DEVICE)"
        r"|xpected \w{1,60} to be on cpu, but it's on DEVICE|\w{1,60} is only implemented on CPU tensors",
        "mixed-devices",
        "torch reads this argument on the host, whatever device the other arguments are on.",
        "leave it on the CPU, or hand over lengths.cpu()",
    ),
    _message(
        "recurrent-layer-devices",
        "not at the same device",
        r"Input and (?:hidden|parameter) tensors are not at the same device, found input tensor at (?P<a>DEVICE) and "
        r"(?P<argument>\w{1,60}) tensor at (?P<own>DEVICE)",
        "mixed-devices",
    ),
    _message(
        "meta-tensor",
        "expected device meta|out of meta tensor",
        r"Tensor on device DEVICE is not on the expected device meta"
        r"|Cannot copy out of meta tensor; no data",
        "meta-parameter",
        "A tensor on the meta device has a shape and no data.",
    ),
    _message(
        "fake-tensor-devices",
        "FakeTensor",
        r"Unhandled FakeTensor Device Propagation for \S{1,200}, found two different devices (?P<a>DEVICE), "
        r"(?P<b>DEVICE)"
        r"|FakeTensor is wrapped to wrong device, found (?P<found>DEVICE), expected (?P<expected>DEVICE)",
        "mixed-devices",
        "torch.compile met tensors on two devices while it traced the function.",
    ),
    _message(
        "cpu-scalars",
        "too many CPU scalars",
        r"Trying to pass too many CPU scalars to (?:CUDA|\w+) kernel",
        "mixed-devices",
        "One 0-dim CPU tensor may join device tensors; two may not.",
    ),
    _message(
        "input-and-weight-type",
        "should be the same",
        r"Input type \((?P<input>[\w.]{1,60})\) and (?P<argument>weight|bias) type \((?P<weight>[\w.]{1,60})\) "
        r"should be the same",
        "mixed-devices",
        "The layer and its input are on two devices.",
        "keep the layer in the module (nn.ModuleList for several), and make its input with device=self.device",
    ),
    _message(
        "expected-type-backend",
        "xpected object of|xpected tensor to have|xpected type",
        r"[Ee]xpected (?:object of (?:device type|backend|type)|tensor to have|type) (?P<expected>TYPE|CUDA|CPU)"
        r"(?: Backend| Device(?:Type)?)?,? but (?:got|found) (?:(?:tensor with|device type|backend|type) )?"
        r"(?P<found>TYPE|CUDA|CPU)\b(?: for argument #\d{1,3} '(?P<argument>\w{1,60})')?",
        "mixed-devices",
    ),
    _message(
        "expected-on-gpu",
        "to be on GPU",
        r"Tensor for (?:argument #\d{1,3} )?'(?P<argument>\w{1,60})' is on (?P<found>CPU),"
        r"(?:(?!Tensor for).){0,20}? expected (?:it|them) to be on (?P<expected>GPU)",
        "mixed-devices",
    ),
    _message(
        "generator-device",
        "device type for generator",
        r"Expected a '(?P<expected>\w{1,20})' device type for (?P<argument>generator) but found '(?P<found>\w{1,20})'",
        "mixed-devices",
        "A generator draws on its own device only.",
        "torch.Generator(device=self.device), made after Lightning has moved the module, and device= in the\n"
        "call that draws; samplers, data loaders and what is drawn on the CPU need torch.Generator()",
    ),
    _message(
        "set-data",
        "incompatible tensor type|variable.set_data",
        r"incompatible tensor type|Attempted to call `variable\.set_data\(tensor\)`",
        "mixed-devices",
        "Assigning .data puts the new tensor's memory in, wherever that is.",
        "copy the values in place: parameter.data.copy_(values)",
    ),
    _message(
        "collective-cpu-tensor",
        "No backend type|Tensors must be CUDA|only support",
        r"No backend type associated with device type (?P<found>DEVICE)|Tensors must be CUDA and dense"
        r"|(?:ProcessGroup)?NCCL.{0,60}only supports? .{0,20}CUDA",
        "collective-device",
        _NCCL,
        _NCCL_FIX,
    ),
    _message(
        "ddp-several-device-types",
        "DistributedDataParallel|parameters and buffers on device",
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
        "FSDP|given device_id argument",
        r"FSDP only supports single device modules|is given device_id argument (?P<expected>DEVICE), but is on "
        r"(?P<found>DEVICE)|FSDP-managed module with parameter CPU offloading enabled has parameters on"
        r"|FSDP parameters should be (?:materialized|on)",
        "parameter-device",
        _WRAP,
        "make every layer in configure_model, and move none of them by hand",
    ),
    _message(
        "lazy-tensor",
        "not a lazy tensor",
        r"Input tensor is not a lazy tensor: torch\.(?P<found>\w{1,40})",
        "mixed-devices",
    ),
    _message(
        "to-numpy",
        "tensor to numpy",
        r"can't convert (?P<found>DEVICE|CUDA)(?: device type)? tensor to numpy",
        "host-read",
        "NumPy reads host memory; this tensor is on a device.",
        "value.detach().cpu().numpy(), once per logging interval rather than in every step",
    ),
    _message(
        "pin-memory",
        "tensors can be pinned",
        r"cannot pin '(?:torch\.)?(?P<found>cuda|meta|xpu|mps)[\w.]{0,60}' only dense CPU tensors can be pinned",
        "batch-device",
        "A loader pins host memory; this tensor is on a device already: the dataset or collate_fn put it there.",
        "leave moving the batch to Lightning: no .cuda() or .to() in the dataset or collate_fn, or pin_memory=False",
    ),
    _message(
        "no-such-device",
        "invalid device ordinal|Attempting to deserialize|not compiled with CUDA|not linked with support",
        r"CUDA error: invalid device ordinal|Attempting to deserialize object on (?:a )?CUDA device"
        r"|Torch not compiled with CUDA enabled|PyTorch is not linked with support for cuda devices",
        "wrong-rank-device",
        "The code names a device that this machine does not have.",
        "self.device in place of the written-out one; torch.load(..., map_location=self.device)",
    ),
    _message(
        "other-process",
        "by peer|operation timeout|Socket Timeout|wait timeout after|Timed out waiting",
        r"(?:^|Error: |(?<!Errno \d{2})(?<!Errno \d{3})\] ?:? ?)Connection (?:closed|reset) by peer"
        r"|Watchdog caught collective operation timeout|Socket Timeout"
        r"|wait timeout after \d+ms|Timed out waiting \d+ms for|collective operation timeout",
        "",
        OTHER_RANK,
    ),
)
GRAD_SCALER = _message(
    "grad-scaler-cpu-loss",
    "assert outputs.is_cuda",
    r"assert outputs\.is_cuda",
    "loss-device",
    "GradScaler of older torch versions takes CUDA losses only.",
)
