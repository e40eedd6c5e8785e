"""Private names of torch that the simulation needs.

Seen in torch 2.6 to 2.14. None has a public twin: a missing one stops `simulate_cuda` with an error that names it.
"""

import warnings
from typing import Any

import torch
import torch.utils._device
from torch._C import DisableTorchFunction as WithoutFunctions
from torch._C import _disabled_torch_function_impl as disabled_torch_function
from torch._C import _set_conj as set_conj
from torch._C import _set_neg as set_neg
from torch._C._nn import _parse_to as parse_to
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

# where `torch.autograd.backward` and `grad` enter the engine: owner and name
ENGINE = (torch.autograd, "_engine_run_backward")
# C++ calls `apply` of a custom Function's node in backward; `Function.apply` makes that node
FUNCTION_NODE = torch.autograd.function.BackwardCFunction
# what `Module.to`, `cuda`, `float` and their like go through
APPLY = (torch.nn.Module, "_apply")
# the kernels that compose an operator of others
COMPOSING = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# what `register_hook` and `register_post_accumulate_grad_hook` keep on a tensor
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
# what `Module.to` parses its arguments with, and what groups tensors for optimizers and gradient clipping
PARSING = (torch._C._nn, "_parse_to")
GROUPING = (torch._C, "_group_tensors_by_device_and_dtype")
# the autocast of CUDA, as torch's dispatcher calls it
AUTOCAST_KEY = "AutocastCUDA"
# where torch composes an operator of others for tensors that are `meta` in C++
AUTOGRAD_KEY = "AutogradMeta"
# whose Python frame is below each operator that is called as `torch.ops` names it
OPERATORS = torch._ops
# what Python calls with a warning that passed its filters (3.6 to 3.14); without it warnings stay where they are
SHOW_WARNING = (warnings, "_showwarnmsg")
# which attention kernel torch would take: a value of `torch.nn.attention.SDPBackend`
sdp_choice = torch._fused_sdp_choice
# operators that only torch calls: the CPU's fused attention, autograd's zeros without data, reading a
# scalar, a sparse product
fused_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
zeros_without_data = torch.ops.aten._efficientzerotensor.default
scalar_read = torch.ops.aten._local_scalar_dense.default
sparse_mm_reduce = torch.ops.aten._sparse_mm_reduce_impl.default
AUTOCAST_KEYS = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, AUTOCAST_KEY))
# makes a tensor of a class of ours around no storage
make_wrapper = torch.Tensor._make_wrapper_subclass
run_backward = torch.autograd._engine_run_backward


def remember_originals() -> None:
    """Let torch make its lists of functions now, which it keeps: those made later would hold stand-ins.

    ``_device_constructors`` names what ``with torch.device(...)`` concerns; without it there is nothing to remember.
    """
    for listing in (getattr(torch.utils._device, "_device_constructors", dict), torch.overrides.get_ignored_functions):
        listing()


def default_below() -> torch.device | None:
    """The default device whose mode lies below the running function mode; None without one.

    `torch.get_default_device` may make a tensor to tell, on that device. The stack of modes is private (seen in torch
    2.5 to 2.14), as is what ``torch.set_default_device`` puts there; without them there is no default.
    """
    stack: list[Any] = getattr(torch.overrides, "_get_current_function_mode_stack", list)()
    devices = [mode.device for mode in stack if isinstance(mode, torch.utils._device.DeviceContext)]
    return devices[-1] if devices else None


def default_is_meta() -> bool:
    """Whether ``torch.set_default_device`` was given torch's own ``meta``.

    ``CURRENT_DEVICE`` is what it keeps (`torch.get_default_device` makes a tensor to tell); without it none was given.
    """
    current = getattr(torch.utils._device, "CURRENT_DEVICE", None)
    return current is not None and current.type == "meta"


def kernels_for(key: str) -> list[str]:
    """Names of the operators of torch that have a kernel for a dispatch key, without ``aten::``."""
    names: list[str] = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return [name.removeprefix("aten::") for name in names if name.startswith("aten::")]


def below_autocast() -> Any:
    """A context in which CUDA's autocast kernels are passed by."""
    return torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEYS)


def with_autocast() -> Any:
    """A context in which they are not, though they were when the operator that runs was handed over."""
    return torch._C._SetExcludeDispatchKeyGuard(getattr(torch._C.DispatchKey, AUTOCAST_KEY), False)


def scoped_library() -> Any:
    """A context that gives a library for kernels of torch's operators, and takes them out again."""
    return torch.library._scoped_library("aten", "IMPL")


def box_work(future: Any) -> Any:
    """A collective's work, as its operator returns it, that is done when a future is."""
    from torch._C import _distributed_c10d as c10d  # a build without torch.distributed lacks it

    make: Any = vars(c10d)["_create_work_from_future"]
    return make(future).boxed()


def unbox_work(work: Any) -> Any:
    """The work that a collective's operator returned."""
    from torch._C import _distributed_c10d as c10d

    return c10d.Work.unbox(work)


PROPERTIES = [
    "shape",
    "dtype",
    "layout",
    "ndim",
    "requires_grad",
    "is_leaf",
    "grad_fn",
    "is_sparse",
    "is_nested",
    "is_quantized",
    "_version",
    "output_nr",
]
METHODS = [
    "size",
    "dim",
    "stride",
    "numel",
    "nelement",
    "ndimension",
    "is_floating_point",
    "is_complex",
    "is_contiguous",
    "element_size",
]
METHODS += ["storage_offset", "is_signed"]
SET_DATA: Any = vars(torch.Tensor.__mro__[1])["data"].__set__
SET_GRAD: Any = vars(torch.Tensor.__mro__[1])["grad"].__set__
# what only asks, and runs no operator: answered without a look at the arguments
QUESTIONS: frozenset[Any] = frozenset(
    [vars(torch.Tensor.__mro__[1])[name].__get__ for name in PROPERTIES]
    + [getattr(torch.Tensor, name) for name in METHODS]
)


def composing_key(func: Any) -> Any:
    """The dispatch key of the kernel that composes an operator of others, or None."""
    name = func.name()
    if not torch._C._dispatch_has_kernel(name):  # ``aten.dim`` and its like are no operators to the dispatcher
        return None
    found = (key for key in COMPOSING if torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
    return next((getattr(torch._C.DispatchKey, key) for key in found), None)


def run_composed(func: Any, key: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the kernel that composes an operator of others."""
    return func._op_dk(key, *args, **kwargs)


__all__ = [
    "APPLY",
    "AUTOCAST_KEY",
    "AUTOCAST_KEYS",
    "AUTOGRAD_KEY",
    "ENGINE",
    "FUNCTION_NODE",
    "GROUPING",
    "HOOKS",
    "OPERATORS",
    "PARSING",
    "QUESTIONS",
    "SET_DATA",
    "SET_GRAD",
    "SHOW_WARNING",
    "TorchDispatchMode",
    "WithoutFunctions",
    "below_autocast",
    "box_work",
    "composing_key",
    "default_below",
    "default_is_meta",
    "disabled_torch_function",
    "fused_attention",
    "kernels_for",
    "make_wrapper",
    "no_dispatch",
    "parse_to",
    "remember_originals",
    "return_and_correct_aliasing",
    "run_backward",
    "run_composed",
    "scalar_read",
    "scoped_library",
    "sdp_choice",
    "set_conj",
    "set_neg",
    "sparse_mm_reduce",
    "unbox_work",
    "with_autocast",
    "zeros_without_data",
]
