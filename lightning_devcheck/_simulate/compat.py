"""Private names of torch that the simulation needs.

Seen in torch 2.6 to 2.14. None has a public twin: a missing one stops `simulate_cuda` with an error that names it.
"""

import ctypes
import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils._device
from torch._C import DisableTorchFunction as WithoutFunctions
from torch._C import DispatchKey, DispatchKeySet
from torch._C import _disabled_torch_function_impl as disabled_torch_function
from torch._C import _functorch as functorch
from torch._C import _set_conj as set_conj
from torch._C import _set_neg as set_neg
from torch._C._nn import _parse_to as parse_to
from torch._ops import OpOverload as Operator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor
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
# of OpenMP 5.0: what a pause may lose is nothing that torch keeps
OMP_PAUSE_SOFT = 1
# where torch marks views as such, in inference mode too
VIEW_KEY = "ADInplaceOrView"
# which attention kernel torch would take: a value of `torch.nn.attention.SDPBackend`
sdp_choice = torch._fused_sdp_choice
# what makes a fake tensor of a real one: owner and name
FAKING = (FakeTensorMode, "from_tensor")
# whether distributions validate the values of their arguments by default: name and value
UNVALIDATED = ("_validate_args", False)
# operators that only torch calls: the CPU's fused attention, decompositions with or without vectors,
# reading a scalar, a copy, a sparse product
fused_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
singular_decomposition = torch.ops.aten._linalg_svd.default
eigendecomposition = torch.ops.aten._linalg_eigh.default
scalar_read = torch.ops.aten._local_scalar_dense.default
to_copy = torch.ops.aten._to_copy.default
of_data = torch.ops.aten.lift_fresh.default
sparse_mm_reduce = torch.ops.aten._sparse_mm_reduce_impl.default
AUTOCAST_KEYS = DispatchKeySet(getattr(DispatchKey, AUTOCAST_KEY))
# makes a tensor of a class of ours around no storage
make_wrapper = torch.Tensor._make_wrapper_subclass
# makes a tensor object of a class of the user's around another one, a parameter too: owner and name
MAKE_SUBCLASS = (torch.Tensor, "_make_subclass")
# the classes of the tensors that `make_fx` records as they are: owner and name
RECORDED = (proxy_tensor, "HANDLED_TYPES")
run_backward = torch.autograd._engine_run_backward
# what packs sequences, and reads their lengths on the host
pack_padded = torch._VF._pack_padded_sequence
# what the parametrization of that name calls
weight_norm = torch._weight_norm
# checkpointing saves a device's random state only where this says that CUDA is in use
IN_USE = (torch.cuda, "_initialized")
# the slot of the mode by which `make_fx` records operators
PROXY = torch._C._TorchDispatchModeKey.PROXY


class UnguardedMode(TorchDispatchMode):
    """A dispatch mode whose operators are not guarded from Dynamo, one by one, which takes 1 us each.

    Nothing is compiled while such a mode is on. To a torch that does not ask, 2.6 for one, this says nothing.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def gives_leaves_gradients(options: Mapping[str, Any]) -> bool:
    """Whether the engine is asked to put gradients on leaves, as `backward` asks it to; `grad` returns them.

    ``accumulate_grad`` is given by name in torch 2.6 to 2.14; without it a call is taken for one of `grad`.
    """
    return bool(options.get("accumulate_grad"))


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


def with_views() -> Any:
    """A context in which views are marked as such, though that was passed by when the operator was handed over."""
    return torch._C._SetExcludeDispatchKeyGuard(getattr(torch._C.DispatchKey, VIEW_KEY), False)


@functools.cache
def marks_views(func: Any) -> bool:
    """Whether torch itself marks an operator's results as views, those of ``chunk`` though it is composed."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), VIEW_KEY))


def end_openmp_threads() -> bool:
    """End the threads of the OpenMP in torch's wheels, before a fork; OpenMP makes new ones when it needs some.

    Returns:
        Whether that was done: GCC's library does it from version 9 on (torch 2.6's is older), and other libraries look
        after forks themselves.
    """
    ended = False
    for library in _openmp():
        pause = getattr(library, "omp_pause_resource_all", None)
        ended = ended or (pause is not None and pause(OMP_PAUSE_SOFT) == 0)
    return ended


def keep_one_thread() -> None:
    """Have OpenMP run everything in the thread that asks, for the rest of this process, however many it asks for."""
    for library in _openmp():
        library.omp_set_max_active_levels(0)


def _openmp() -> list[ctypes.CDLL]:
    return [ctypes.CDLL(str(path)) for path in Path(torch.__file__).parent.glob("lib/libgomp*")]


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


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a transform of ``torch.func``, or a batched gradient, has wrapped a tensor."""
    return functorch.is_functorch_wrapped_tensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor below every transform of ``torch.func`` and below batched gradients, which have their own wrapper."""
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    if not functorch.is_legacy_batchedtensor(tensor):
        return tensor
    level = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    with torch.no_grad():
        for inside in range(level, 0, -1):
            tensor = torch._remove_batch_dim(tensor, inside, 1, 0)
    return tensor


def tracer() -> Any:
    """The mode by which ``make_fx`` records operators, or None."""
    return torch._C._get_dispatch_mode(PROXY)


def run_traced(mode: TorchDispatchMode, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Let ``make_fx`` record an operator first, then run it in a mode; torch has the recording come last."""
    recording: Any = torch._C._unset_dispatch_mode(PROXY)
    try:
        with mode:
            return recording.__torch_dispatch__(func, types, args, kwargs)
    finally:
        torch._C._set_dispatch_mode(recording)


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
# what asks for a tensor's device, by name: a wrapper of `torch.func` hides a simulated one
DEVICE_QUESTIONS: dict[Any, str] = {
    vars(torch.Tensor.__mro__[1])[name].__get__: name for name in ("device", "is_cuda", "is_cpu", "is_meta")
}
SET_DATA: Any = vars(torch.Tensor.__mro__[1])["data"].__set__
SET_GRAD: Any = vars(torch.Tensor.__mro__[1])["grad"].__set__
# what only asks, and runs no operator: answered without a look at the arguments
QUESTIONS: frozenset[Any] = frozenset(
    [vars(torch.Tensor.__mro__[1])[name].__get__ for name in PROPERTIES]
    + [getattr(torch.Tensor, name) for name in METHODS]
)


def composing_key(func: Operator) -> DispatchKey | None:
    """The dispatch key of the kernel that composes an operator of others, or None."""
    name = func.name()
    if not torch._C._dispatch_has_kernel(name):  # ``aten.dim`` and its like are no operators to the dispatcher
        return None
    found = (key for key in COMPOSING if torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
    return next((getattr(DispatchKey, key) for key in found), None)


def run_composed(func: Operator, key: DispatchKey | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run the kernel that composes an operator of others."""
    return func._op_dk(key, *args, **kwargs)  # type: ignore[arg-type]  # there is one: the caller asked


__all__ = [
    "APPLY",
    "AUTOCAST_KEY",
    "AUTOCAST_KEYS",
    "AUTOGRAD_KEY",
    "DEVICE_QUESTIONS",
    "ENGINE",
    "FAKING",
    "FUNCTION_NODE",
    "GROUPING",
    "HOOKS",
    "IN_USE",
    "MAKE_SUBCLASS",
    "OPERATORS",
    "PARSING",
    "QUESTIONS",
    "RECORDED",
    "SET_DATA",
    "SET_GRAD",
    "SHOW_WARNING",
    "UNVALIDATED",
    "DispatchKey",
    "DispatchKeySet",
    "Operator",
    "TorchDispatchMode",
    "UnguardedMode",
    "WithoutFunctions",
    "below_autocast",
    "box_work",
    "composing_key",
    "default_below",
    "default_is_meta",
    "disabled_torch_function",
    "eigendecomposition",
    "end_openmp_threads",
    "fused_attention",
    "gives_leaves_gradients",
    "is_wrapped",
    "keep_one_thread",
    "kernels_for",
    "make_wrapper",
    "marks_views",
    "no_dispatch",
    "of_data",
    "pack_padded",
    "parse_to",
    "remember_originals",
    "return_and_correct_aliasing",
    "run_backward",
    "run_composed",
    "run_traced",
    "scalar_read",
    "scoped_library",
    "sdp_choice",
    "set_conj",
    "set_neg",
    "singular_decomposition",
    "sparse_mm_reduce",
    "to_copy",
    "tracer",
    "unbox_work",
    "unwrapped",
    "weight_norm",
    "with_autocast",
    "with_views",
]
