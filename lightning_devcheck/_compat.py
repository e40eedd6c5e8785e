"""Private names of torch and Lightning, each with a probe and what happens without it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch


def _probe(root: Any, path: str) -> Any:
    """Follow a dotted path, or None where a part of it is missing."""
    for part in path.split("."):
        root = getattr(root, part, None)
        if root is None:
            return None
    return root


# torch 2.0 and newer: the number of the thread's next graph node. Without it every step looks unchanged.
sequence_number: Callable[[], int] = _probe(torch, "_C._autograd._get_sequence_nr") or (lambda: 0)

# the type of a leaf's graph node has no public name
AccumulateGrad: Any = type(torch.autograd.graph.get_gradient_edge(torch.zeros((), requires_grad=True)).node)


def node_number(node: Any) -> int:
    """When a graph node was made, as `sequence_number` counts; leaves have the largest number there is.

    ``Node._sequence_nr`` is private (seen in torch 1.10 to 2.14); without it every node is as new as can be.
    """
    number = getattr(node, "_sequence_nr", None)
    return sys.maxsize if number is None else int(number())


def is_node_of_torch(name: str) -> bool:
    """Tell whether torch has a graph node of that name for an operator of its own, or numbers it.

    ``torch._C._functions`` is private (seen in torch 0.4 to 2.14); without it only names with a
    number are taken for torch's.
    """
    nodes = _probe(torch, "_C._functions")
    return hasattr(nodes, name) or hasattr(nodes, f"{name}0")


# keeps ``__torch_function__`` of other people's tensor classes from running; documented for authors of such classes
no_torch_function: Any = _probe(torch, "_C.DisableTorchFunctionSubclass") or contextlib.nullcontext


def node_device(node: Any) -> torch.device | None:
    """The device of what a graph node gave in forward, or None where torch does not tell.

    ``Node._input_metadata`` is private (seen in torch 2.0 to 2.14); without it only moves made by
    `torch.autograd.Function`s that name their devices are seen.
    """
    metadata = getattr(node, "_input_metadata", None)
    return metadata[0].device if metadata else None


# torch 2.6 to 2.14: tensors of torch.func's transforms are of plain type; without these all are taken for plain
_is_functional = _probe(torch, "_is_functional_tensor") or (lambda tensor: False)
_is_in_transform = _probe(torch, "_C._functorch.is_functorch_wrapped_tensor") or (lambda tensor: False)


def is_transformed(tensor: torch.Tensor) -> bool:
    """Whether a tensor belongs to a running transform of `torch.func` and means nothing after it."""
    return bool(_is_functional(tensor) or _is_in_transform(tensor))


def default_device() -> torch.device:
    """The device of tensors that are made without a word about devices.

    `torch.get_default_device` of torch 2.6 fails in a thread where the default was set and taken back.
    """
    try:
        return torch.get_default_device()
    except AttributeError:
        return torch.device("cpu")


def owned_tensors(module: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The parameters and the buffers of a module and all its parts; one that is shared as often as it is registered.

    NOTE [The fast listing]
    Every check lists all tensors of the module. For 401 modules with 600 tensors this takes 0.19 ms, ``parameters()``
    and ``buffers()`` take 0.98 ms, with or without names, and a `ModuleTree` alone 0.26 ms.
    ``Module._modules``, ``_parameters`` and ``_buffers`` are private by name (in every torch, and what a pickled module
    consists of).
    """
    parts, seen = [module], {id(module), id(None)}
    parameters: list[Any] = []
    buffers: list[Any] = []
    for part in parts:
        # most parts have one kind only: asking first halves the time
        if part._parameters:
            parameters += part._parameters.values()
        if part._buffers:
            buffers += part._buffers.values()
        for child in part._modules.values() if part._modules else ():
            if id(child) not in seen:  # a metric's own hash and comparison are slow
                seen.add(id(child))
                parts.append(child)  # type: ignore[arg-type]
    return [t for t in parameters if t is not None], [t for t in buffers if t is not None]


def tensors_of_part(part: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module without its parts, by name; private as above."""
    held = {**part._parameters, **part._buffers}
    return {name: tensor for name, tensor in held.items() if tensor is not None}


def is_joining(model: Any) -> bool:
    """Whether a DDP-wrapped model runs under `torch.distributed.algorithms.Join`, so with uneven data.

    ``_join_config`` is private (seen in torch 1.10 to 2.14); without it every process is taken to have as much data.
    """
    return bool(getattr(getattr(model, "_join_config", None), "enable", False))


def has_comm_hook(model: Any) -> bool:
    """Whether a DDP-wrapped model exchanges gradients in a way of its own, which may be none at all.

    ``_comm_hooks`` is private (seen in torch 1.13 to 2.14); without it a model is taken to have none.
    """
    return bool(getattr(model, "_comm_hooks", ()))


def default_store() -> Any:
    """The store through which the processes of a run have found each other; None where there is none.

    ``distributed_c10d._get_default_store`` is private (seen in torch 1.7 to 2.14).
    """
    get = _probe(torch, "distributed.distributed_c10d._get_default_store")
    return None if get is None else get()


def namespaces() -> list[Any]:
    """The Lightning namespaces that are installed.

    Each namespace's CLI and Trainer accept only their own base classes; a class with both bases works in both.
    Importing a second namespace sends the first one's messages to its own logger: that is put back.
    """
    names = ("lightning.pytorch", "pytorch_lightning")
    found = [name for name in names if importlib.util.find_spec(name.partition(".")[0]) is not None]
    messages = sys.modules.get("lightning_utilities.core.rank_zero")
    logger = getattr(messages, "log", None)
    modules = [importlib.import_module(name) for name in found]
    if messages is not None:
        messages.__dict__["log"] = logger
    return modules


def fork_processes(strategy: Any) -> bool:
    """Let a strategy object start its processes by forking; False where it is none that starts processes so.

    ``DDPStrategy._start_method`` is private (seen in Lightning 2.0 to 2.6); without it such an object is refused.
    """
    if not hasattr(strategy, "_start_method"):
        return False
    strategy._start_method = "fork"
    return True


def shows_notes() -> bool:
    """Whether an exception that nobody catches is shown with its notes.

    ``pretty_errors``, which torchmetrics 1.4.0 imports, replaces ``sys.excepthook`` by one that leaves them out (seen
    in 1.2.25).
    """
    return getattr(sys.excepthook, "__module__", "") != "pretty_errors"


def isolate_rng() -> Any:
    """A context that puts back the state of the random generators of Python, NumPy and torch's CPU.

    It is in ``utilities.seed`` of either Lightning namespace, without a name at the top.
    """
    name = namespaces()[0].__name__
    return importlib.import_module(f"{name}.utilities.seed").isolate_rng(include_cuda=False)


def state_keys(module: torch.nn.Module) -> list[str]:
    """The keys of a module's ``state_dict``, without running what the user may have put into that; private as above.

    ``_non_persistent_buffers_set`` is private too (torch 1.5 to 2.14); without it every buffer counts as saved.
    """
    keys = []
    for path, part in module.named_modules():
        left_out = getattr(part, "_non_persistent_buffers_set", ())
        prefix = f"{path}." if path else ""
        keys += [f"{prefix}{name}" for name in tensors_of_part(part) if name not in left_out]
    return keys
