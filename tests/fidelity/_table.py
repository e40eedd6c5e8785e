"""The outcome that the installed torch's operator table gives.

No CUDA kernel runs. torch's own generator says what each CUDA wrapper checks (``ExactSame``: all tensor arguments
on one device); operators composed of others are followed into the kernel that composes them; for kernels that look
after devices themselves the rule is TensorIterator's, or stands in `BY_HAND`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torchgen
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchgen.gen import parse_native_yaml
from torchgen.model import DeviceCheckType
from torchgen.model import DispatchKey as Backend

from tests.fidelity._outcome import ANYWHERE, Outcome, failure
from tests.fidelity._samples import is_tensor
from tests.fidelity._trials import Placement, Trial

CPU = "cpu"
KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
Named = Sequence[tuple[str, torch.Tensor, str]]  # argument, tensor, device


class RefusedError(Exception):
    """The table does not let these devices meet on the same device."""


def expected(trial: Trial, placement: Placement) -> Outcome:
    """What the table says of a call."""
    copies = [tensor.detach().clone() for tensor in trial.tensors]
    for tensor, index in zip(copies, placement, strict=True):
        tensor.place = CPU if index is None else f"cuda:{index}"
    try:
        with Table(trial.names_device):
            results = trial.call(copies)
    except RefusedError as error:
        return Outcome("refused", text=str(error))
    except Exception as error:
        return failure(error)
    return Outcome("accepted", tuple(place_of(result) for result in results))


def place_of(tensor: torch.Tensor) -> str:
    """Where a tensor pretends to be; a tensor that torch made inside may be anywhere."""
    return getattr(tensor, "place", ANYWHERE)


class Table(TorchDispatchMode):
    """Follows the pretended places of plain CPU tensors through operators."""

    def __init__(self, names_device: bool) -> None:
        super().__init__()
        self._names_device = names_device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and say where its results are."""
        kwargs = kwargs or {}
        named = list(_named(func, args, kwargs))
        places = {place for _, _, place in named} - {ANYWHERE}
        if len(places) > 1:
            kernel = _composing_key(func)
            if kernel is not None:
                with self:
                    return func._op_dk(kernel, *args, **kwargs)
            place = _rule(func)(func, named)
        else:
            place = next(iter(places), ANYWHERE)
        if self._names_device and kwargs.get("device") is not None:
            place = str(kwargs["device"])
        out = func(*args, **kwargs)
        for value in tree_leaves(out):
            if is_tensor(value) and not (_writes(func) and hasattr(value, "place")):
                value.place = place
        return out


def _named(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, torch.Tensor, str]]:
    names = [argument.name for argument in func._schema.arguments]
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        yield from ((name, t, place_of(t)) for t in tree_leaves(value) if is_tensor(t))


@functools.cache
def _writes(func: Any) -> frozenset[str]:
    return frozenset(a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)


@functools.cache
def _native() -> tuple[dict[str, Any], Any]:
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    return {str(f.func.name): f for f in parsed.native_functions}, parsed.backend_indices[Backend.CUDA]


def _name(func: Any) -> str:
    return str(
        func._schema.name.partition("::")[2] + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
    )


@functools.cache
def _composing_key(func: Any) -> Any:
    """The kernel that composes an operator of others, None where CUDA has its own."""
    functions, cuda = _native()
    native = functions.get(_name(func))
    if _name(func) in BY_HAND or native is None:
        return None
    owner = functions[str(native.structured_delegate)] if native.structured_delegate else native
    if cuda.has_kernel(owner):
        return None
    has = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, func.name())
    return next((getattr(torch._C.DispatchKey, key) for key in KEYS if has(key)), None)


def _rule(func: Any) -> Callable[[Any, Named], str]:
    if _name(func) in BY_HAND:
        return BY_HAND[_name(func)]
    native = _native()[0].get(_name(func))
    if native is None or native.device_check is DeviceCheckType.ExactSame:
        return _one
    return _foreach if _name(func).startswith("_foreach") else _iterator


def _one(func: Any, named: Named) -> str:
    """The generated wrapper's check."""
    return _same(func, [place for _, _, place in named])


def _same(func: Any, places: Sequence[str]) -> str:
    known = [place for place in places if place != ANYWHERE]
    if len(set(known)) > 1:
        raise RefusedError(f"{_name(func)}: not on the same device: {known}")
    return known[0] if known else ANYWHERE


def _iterator(func: Any, named: Named) -> str:
    """TensorIterator: the first device that is not the CPU; one 0-dim CPU tensor may join two or more inputs."""
    common = next((place for _, _, place in named if place not in (CPU, ANYWHERE)), CPU)
    inputs = [name for name, _, _ in named if name not in _writes(func) or name == "self"]
    allowed = 1 if len(inputs) > 1 else 0
    for name, tensor, place in named:
        if place in (common, ANYWHERE):
            continue
        allowed -= 1
        if place != CPU or tensor.dim() or name in _writes(func) or allowed < 0:
            raise RefusedError(f"{_name(func)}: {name} on {place} is not on the same device, {common}")
    return common


def _foreach(func: Any, named: Named) -> str:
    return ANYWHERE


def _goes_to(target: str, *firm: str) -> Callable[[Any, Named], str]:
    """A kernel that reads or copies its other arguments wherever they are."""

    def rule(func: Any, named: Named) -> str:
        return _same(func, [place for name, _, place in named if name in (target, *firm)])

    return rule


def _masked_fill(func: Any, named: Named) -> str:
    place = _goes_to("self", "mask")(func, named)
    if place == CPU:
        raise RefusedError("masked_fill_: inputs not on the same device")
    return place


def _where(func: Any, named: Named) -> str:
    """0-dim tensors go to the first device that is not the CPU."""
    common = next((place for _, _, place in named if place not in (CPU, ANYWHERE)), CPU)
    for name, tensor, place in named:
        if place not in (common, ANYWHERE) and (tensor.dim() or name == "out"):
            raise RefusedError(f"where: {name} on {place} is not on the same device, {common}")
    return common


def _index(func: Any, named: Named) -> str:
    """Indices may be on the CPU; a 0-dim value goes to where the tensor is."""
    home = next(place for name, _, place in named if name == "self")
    for name, tensor, place in named:
        free = place == CPU if name == "indices" else name == "values" and tensor.dim() == 0
        if place not in (home, ANYWHERE) and not free:
            raise RefusedError(f"{_name(func)}: {name} on {place} is not on the same device, {home}")
    return home


# kernels that look after devices in their own way
BY_HAND: dict[str, Callable[[Any, Named], str]] = {
    "copy_": _goes_to("self"),
    "_to_copy": _goes_to("self"),
    "fill_.Tensor": _goes_to("self"),
    "bernoulli_.Tensor": _goes_to("self"),
    "set_.source_Tensor": _goes_to("source"),
    "masked_fill_.Scalar": _one,
    "masked_fill_.Tensor": _masked_fill,
    "index_fill_.int_Scalar": _one,
    "index_fill_.int_Tensor": _goes_to("self", "index"),
    "where.self": _where,
    "where.self_out": _where,
    "index.Tensor": _index,
    "index.Tensor_out": _index,
    "_index_put_impl_": _index,
    "binary_cross_entropy": _one,
    "binary_cross_entropy.out": _one,
    "binomial": _one,
}
