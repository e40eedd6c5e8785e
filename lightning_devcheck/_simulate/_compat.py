"""Private names of torch that the simulation needs.

Seen in torch 2.6 to 2.14. None has a public twin: a missing one stops `simulate_cuda` with an ImportError that names it.
"""

from torch._C import _disabled_torch_function_impl as disabled_torch_function
from torch._C._nn import _parse_to as parse_to
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

__all__ = ["TorchDispatchMode", "disabled_torch_function", "no_dispatch", "parse_to", "return_and_correct_aliasing"]
