"""Private names of torch that the simulation needs.

Seen in torch 2.6 to 2.14. None has a public twin: a missing one stops `simulate_cuda` with an error that names it.
"""

import torch
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
# makes a tensor of a class of ours around no storage
make_wrapper = torch.Tensor._make_wrapper_subclass
run_backward = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

__all__ = [
    "APPLY",
    "ENGINE",
    "FUNCTION_NODE",
    "TorchDispatchMode",
    "WithoutFunctions",
    "disabled_torch_function",
    "make_wrapper",
    "no_dispatch",
    "parse_to",
    "return_and_correct_aliasing",
    "run_backward",
    "set_conj",
    "set_neg",
]
