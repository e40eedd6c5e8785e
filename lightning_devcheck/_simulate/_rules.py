"""Which devices an operator accepts.

The answer is in the installed torch: ``native_functions.yaml``, which ships in its wheel, says which operators have a
CUDA kernel, and marks with ``device_check: NoCheck`` those that look after devices themselves (most go through
TensorIterator); for every other one the generated CUDA wrapper demands exactly one device. Operators without a CUDA
kernel are composed of others, which are judged one by one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torchgen

from lightning_devcheck._simulate._compat import composing_key

# arguments that CUDA wants, or takes, on the CPU; positions in the operator's schema
CPU_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "_ctc_loss.Tensor": ("input_lengths", "target_lengths"),  # read on the host
    "_ctc_loss": ("targets",),  # CUDA's kernel copies targets itself; cuDNN wants them on the CPU
    "_pack_padded_sequence": ("lengths",),  # "'lengths' argument should be a 1D CPU int64 tensor"
    "_pack_padded_sequence_backward": ("batch_sizes",),
    "_pad_packed_sequence": ("batch_sizes",),
    "_cudnn_rnn": ("batch_sizes", "dropout_state"),
    "lstm.data": ("batch_sizes",),
    "gru.data": ("batch_sizes",),
    "rnn_tanh.data": ("batch_sizes",),
    "rnn_relu.data": ("batch_sizes",),
    "masked_fill_.Tensor": ("value",),  # read on the host
    "bernoulli_.Tensor": ("p",),  # copied to the device
    "tensor_split.tensor_indices_or_sections": ("tensor_indices_or_sections",),  # read on the host
}
# arguments that are read wherever they are, also for a CPU tensor
READ_ARGUMENTS: dict[str, tuple[str, ...]] = {"fill_.Tensor": ("value",), "index_fill_.int_Tensor": ("value",)}
# results that CUDA leaves on the CPU; positions in what the operator returns
CPU_RESULTS: dict[str, tuple[int, ...]] = {
    "_pack_padded_sequence": (1,),  # batch_sizes
    "_pad_packed_sequence": (1,),  # lengths
}
# operators that copy between devices, and those that only look at one tensor
MOVERS = {"copy_", "_to_copy", "_copy_from", "_copy_from_and_resize", "copy", "set_.source_Tensor", "record_stream"}
MOVERS |= {"_foreach_copy_", "_has_compatible_shallow_copy_type", "is_same_size", "is_set_to", "_backward"}
# an indexed device tensor takes CPU indices and moves them itself
INDEXING = {"index.Tensor", "index.Tensor_out", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index.Tensor"}
INDEXING |= {"_index_put_impl", "_unsafe_index_put", "index_put.out", "_index_put_impl.out"}
# 0-dim tensors go to the first device among the arguments
CHOOSING = {"where.self", "where.self_out"}
# marked NoCheck, and yet all on one device: the kernel compares, or is no binary one of TensorIterator
STRICT = {"masked_fill_.Scalar", "masked_fill_.Tensor", "index_fill_.int_Scalar", "index_fill_.int_Tensor"}
STRICT |= {"binary_cross_entropy", "binary_cross_entropy.out", "binomial"}


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """How an operator treats devices.

    Attributes:
        kind: ``one`` (exactly one device), ``iterator`` (a 0-dim CPU tensor may join), ``lists`` (each row of its
            tensor lists by itself), ``index`` (indices may be on the CPU), ``choosing`` (0-dim tensors may be
            anywhere) or ``any``.
        written: Names of the arguments it writes into.
        host: Names of the arguments that belong on the CPU, or may be there.
        read: Names of the arguments that may be anywhere.
        host_results: Positions of the results that stay on the CPU.
        random: Whether it takes a generator.
        composed: The dispatch key of the kernel that composes it of other operators; None where CUDA has its own.
    """

    kind: str
    written: frozenset[str]
    host: tuple[str, ...]
    read: tuple[str, ...]
    host_results: tuple[int, ...]
    random: bool
    composed: Any


@functools.cache
def _table() -> dict[str, str]:
    """What torch's table says of each operator, as text."""
    table = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    entries = re.split(r"^- func: ", table.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {entry.partition("(")[0]: entry for entry in entries}


@functools.cache
def rule_of(func: Any) -> DeviceRule:
    """The device rule of an operator."""
    schema = func._schema
    name = schema.name.partition("::")[2] + (f".{schema.overload_name}" if schema.overload_name else "")
    kind = _kind(func, name)
    return DeviceRule(
        kind=kind,
        written=frozenset(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write),
        host=CPU_ARGUMENTS.get(name, ()),
        read=READ_ARGUMENTS.get(name, ()),
        host_results=CPU_RESULTS.get(name, ()),
        random=any(argument.name == "generator" for argument in schema.arguments),
        composed=composing_key(func) if kind in ("one", "iterator") and _is_composed(func, name) else None,
    )


def is_composed(func: Any) -> bool:
    """Whether torch takes an operator apart above autograd, before it looks for kernels."""
    key = rule_of(func).composed
    return key is not None and key.name == "CompositeImplicitAutograd"


def _kind(func: Any, name: str) -> str:
    if name in MOVERS or func.namespace == "c10d":
        return "any"
    if name in INDEXING:
        return "index"
    if name in CHOOSING:
        return "choosing"
    if name.startswith("_foreach"):
        return "lists"
    unchecked = "device_check: NoCheck" in _table().get(name, "") and name not in STRICT
    return "iterator" if func.namespace == "aten" and unchecked else "one"


def _is_composed(func: Any, name: str) -> bool:
    """Whether CUDA has no kernel of an operator; one that is not in the table was generated, as a composition."""
    own = (
        name in CPU_ARGUMENTS
        or name in CPU_RESULTS
        or re.search(r"\bCUDA\b.*:|structured_delegate:", _table().get(name, ""))
    )
    return func.namespace == "aten" and not own


def argument_names(func: Any) -> Sequence[str]:
    """The operator's argument names, in order."""
    return [argument.name for argument in func._schema.arguments]
