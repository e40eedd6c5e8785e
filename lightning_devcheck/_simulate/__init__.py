"""CPU tensors that behave as CUDA tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from lightning_devcheck._simulate.api.cuda import cuda_stand_ins
from lightning_devcheck._simulate.api.device_queries import answer_stand_ins
from lightning_devcheck._simulate.api.distributed import distributed_stand_ins
from lightning_devcheck._simulate.api.fake_tensors import fake_stand_ins
from lightning_devcheck._simulate.api.function_mode import FunctionMode
from lightning_devcheck._simulate.api.lazy import lazy_stand_ins
from lightning_devcheck._simulate.api.load import load_stand_ins
from lightning_devcheck._simulate.api.module import module_stand_ins
from lightning_devcheck._simulate.api.nested_tensors import nested_stand_ins
from lightning_devcheck._simulate.api.warning_lines import warnings_at_callers
from lightning_devcheck._simulate.compat import UNVALIDATED, remember_originals
from lightning_devcheck._simulate.kernels.autocast import Casts, note_autocast
from lightning_devcheck._simulate.kernels.engine import backward_stand_ins
from lightning_devcheck._simulate.kernels.install import kernels
from lightning_devcheck._simulate.ops.dispatch import OperatorMode
from lightning_devcheck._simulate.ops.run import run
from lightning_devcheck._simulate.patch import Patches
from lightning_devcheck._simulate.shapes.run import run_without_values
from lightning_devcheck._simulate.state import Simulation, active, start, stop
from lightning_devcheck._simulate.tensor.legacy_types import type_stand_ins
from lightning_devcheck._simulate.tensor.simulated import rebuild
from lightning_devcheck._simulate.watching import watching_stand_ins


@contextmanager
def simulate_cuda(devices: int = 2, *, values: bool = True) -> Iterator[None]:
    """Pretend that this machine has CUDA devices.

    Inside the context, ``cuda:0`` to ``cuda:devices-1`` exist: tensors made there or moved there hold real values on
    the CPU, report the device they are on, and refuse to mix as CUDA tensors do, with CUDA's messages. Autograd,
    optimizers, GradScaler and an unmodified ``Trainer(accelerator="gpu")`` work; values are those of the CPU, bit for
    bit, except in rounding: the gradient of ``prod`` and, before torch 2.7, of ``cumprod``, ``LSTM`` and the gradients
    of ``GRU`` and ``RNN``, and ``GroupNorm`` of a channels-last tensor, whose result is contiguous. Autocast casts as
    CUDA's does. Nested tensors are not simulated. On exit everything is put back, also after an exception. No GPU is
    used, and none is needed. Threads started inside have the devices too. A step takes about 1.1 times as long as on
    the plain CPU where operators are large, and about 3.5 times in a model of a few thousand parameters. Processes talk
    as they do with NCCL, through gloo.

    Args:
        devices: How many devices there are, at least 1.
        values: False keeps shapes and dtypes only, so that a model far larger than memory can be checked: fractions
            have no values on a device, nor have CPU tensors above 1 MiB that are made inside. Small whole numbers and
            masks keep theirs until they depend on what has none. A line that reads a value that is not there gets a
            stand-in, 1 or False, and each element of an unknown mask counts as selected; it is warned of once.

    Raises:
        ValueError: If ``devices`` is not a positive integer.
        TypeError: If ``values`` is not True or False.
        RuntimeError: If a simulation is running already, or this process has used a real GPU.

    Example:
        >>> import torch
        >>> from lightning_devcheck import simulate_cuda
        >>> with simulate_cuda(devices=2):
        ...     weight = torch.ones(3, device="cuda:1", requires_grad=True)
        ...     loss = (2 * weight).sum()
        ...     loss.backward()
        ...     print(loss.device, weight.grad)
        cuda:1 tensor([2., 2., 2.], device='cuda:1')
    """
    if not isinstance(values, bool):
        raise TypeError(f"simulate_cuda(values={values!r}): use True or False.")
    _refuse(devices)
    _start_autograd()
    remember_originals()
    simulation = Simulation(devices, run if values else run_without_values, values)
    conversion = torch.__future__.get_overwrite_module_params_on_conversion()
    functions, casts = FunctionMode(simulation), Casts()
    stand_ins = [*cuda_stand_ins(simulation), *distributed_stand_ins(), *module_stand_ins()]
    stand_ins += [
        *backward_stand_ins(functions),
        *functions.stand_ins(),
        *load_stand_ins(simulation),
        *casts.stand_ins(),
    ]
    stand_ins += [*type_stand_ins(), *lazy_stand_ins(), *answer_stand_ins(), *nested_stand_ins()]
    stand_ins += [*fake_stand_ins(), *watching_stand_ins()]
    if not values:  # there is nothing to validate
        stand_ins += [(torch.distributions.Distribution, *UNVALIDATED)]
    with _eager(), Patches(stand_ins), casts.installed(), kernels(), warnings_at_callers():
        start(simulation)
        note_autocast()
        # Module.to replaces parameters: the other way, swapping, fails on weak references
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            with torch.serialization.safe_globals([rebuild]), OperatorMode(simulation), functions:
                yield
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(conversion)
            stop()


def _eager() -> AbstractContextManager[Any]:
    """A context in which ``torch.compile`` runs eagerly: it does in a mode, but refuses to with ``fullgraph=True``."""
    if torch.__version__ < "2.7":
        return nullcontext()  # torch 2.6 compiles nothing more once a stance was set
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _refuse(devices: int) -> None:
    if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
        raise ValueError(f"simulate_cuda(devices={devices!r}): the number of devices is an integer of at least 1.")
    if active() is not None:
        raise RuntimeError("simulate_cuda is running already: leave that `with` block first, simulations do not nest.")
    if torch.cuda.is_initialized():
        raise RuntimeError("this process has used a real CUDA device: simulate_cuda needs a process that has not.")


def _start_autograd() -> None:
    """Let autograd count the devices while there are none: it does at the first backward, and once.

    torch.compile and fake tensors make a CUDA build without a GPU count one. Autograd would start a thread for it, and
    a process with such a thread cannot fork ranks.
    """
    with torch.enable_grad():
        torch.ones((), requires_grad=True, device="cpu").backward()
