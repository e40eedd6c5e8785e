"""The operators that are special, one row each; the others are as torch's own table says.

A new operator is one row here. Its name is torch's, without ``aten::``, with the overload where it
has one; a variant with ``out=`` has a name of its own. Where code is needed, the cell names it, and
one dictionary a column holds it: ``SHAPES``, ``KERNELS`` and ``INSTEAD``. Casts are in `Casts`.
"""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack

Devices = Literal["one", "iterator", "lists", "index", "choosing", "any"]
Waits = Literal["result", "masks"]
Shape = Literal[
    "read",
    "false",
    "positions",
    "masked",
    "indexed",
    "distinct",
    "repeated",
    "counted",
    "finite",
    "unchanged",
    "nothing",
]
Instead = Literal["real zeros", "positions kept"]
Cast = Literal["lower", "full", "dtype", "promote", "banned"]
Kernel = Literal[
    "whole",
    "attention",
    "singular values",
    "eigenvalues",
    "statistics",
    "joined statistics",
    "normalised",
    "gradient sums",
    "input gradient",
]


class Row(TypedDict, total=False):
    """What is special about an operator; a cell that is left out says that nothing is.

    Attributes:
        devices: ``one`` (exactly one device), ``iterator`` (a 0-dim CPU tensor may join), ``lists``
            (each row of its tensor lists by itself), ``index`` (indices may be on the CPU),
            ``choosing`` (0-dim tensors may be anywhere) or ``any``, where torch's table does not
            say it.
        host: Names of the arguments that CUDA wants, or takes, on the CPU.
        read: Names of the arguments that are read wherever they are, also for a CPU tensor.
        host_results: Positions of the results that CUDA leaves on the CPU.
        waits: The host waits for its ``result``, or for the ``masks`` among its indices.
        shape: How its result is made where there are no values.
        copies: It takes a device, and is no factory: it copies values.
        whole: Positions of a collective's tensors that hold a part for each process; the others
            hold one part.
        cast: How autocast casts for it, where torch's header does not say it.
        with_dtype: The overload that takes the result's dtype, which autocast calls instead.
        instead: What runs on the values in its place.
        kernel: The kernel that torch is given for it.
    """

    devices: Devices
    host: tuple[str, ...]
    read: tuple[str, ...]
    host_results: tuple[int, ...]
    waits: Waits
    shape: Shape
    copies: bool
    whole: tuple[int, ...]
    cast: Cast
    with_dtype: str
    instead: Instead
    kernel: Kernel


TABLE: dict[str, Row] = {}


def row(*names: str, **cells: Unpack[Row]) -> None:
    """Add a row, for an operator and its variants."""
    for name in names:
        full = name if "::" in name else f"aten::{name}"
        if full in TABLE:
            raise ValueError(f"{full} has a row")
        TABLE[full] = cells


# copies between devices, and what only looks at one tensor
row("copy_", "copy", "_copy_from", "_copy_from_and_resize", devices="any")
row("_foreach_copy_", devices="any")
row("_to_copy", devices="any", copies=True)
row("_pin_memory", copies=True)
row("set_.source_Tensor", "record_stream", devices="any")
row("_has_compatible_shallow_copy_type", "is_same_size", "is_set_to", "_backward", devices="any")

# an indexed device tensor takes CPU indices and moves them itself
row("index.Tensor", "index.Tensor_out", devices="index", waits="masks", shape="indexed")
row("_unsafe_index.Tensor", devices="index", waits="masks")
row("index_put", "index_put_", "index_put.out", "_unsafe_index_put", devices="index", waits="masks")
row("_index_put_impl", "_index_put_impl_", "_index_put_impl.out", devices="index", waits="masks")

# 0-dim tensors go to the first device among the arguments
row("where.self", "where.self_out", devices="choosing")

# torch's table has no check for these, and yet all are on one device: the kernel compares, or is no
# binary one of TensorIterator
row("masked_fill_.Scalar", "index_fill_.int_Scalar", "binomial", devices="one")
row("masked_fill_.Tensor", devices="one", host=("value",))  # read on the host
row("index_fill_.int_Tensor", devices="one", read=("value",))
row("binary_cross_entropy", devices="one", cast="banned")
row("binary_cross_entropy.out", devices="one")

# some arguments, or results, belong on the CPU
row("fill_.Tensor", read=("value",))
row("bernoulli_.Tensor", host=("p",))  # copied to the device
# read on the host
row("tensor_split.tensor_indices_or_sections", host=("tensor_indices_or_sections",))
row("_ctc_loss.Tensor", host=("input_lengths", "target_lengths"))
row("_ctc_loss", host=("targets",))  # CUDA's kernel copies them itself; cuDNN wants them on the CPU
row("_pack_padded_sequence", host=("lengths",), host_results=(1,))  # the result is batch_sizes
row("_pack_padded_sequence_backward", host=("batch_sizes",))
row("_pad_packed_sequence", host=("batch_sizes",), host_results=(1,))  # the result is lengths
row("_cudnn_rnn", host=("batch_sizes", "dropout_state"))

# cuDNN's recurrent layers, one operator each, run in the lower precision as a whole
row("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input", cast="lower")
row("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data", host=("batch_sizes",), cast="lower")
# a list of its own in torch's header
row("norm.Scalar", with_dtype="norm.ScalarOpt_dtype")
row("norm.ScalarOpt_dim", with_dtype="norm.ScalarOpt_dim_dtype")

# the host has to know their result, or its shape
row("_local_scalar_dense", waits="result", shape="read")
row("is_nonzero", waits="result")
row("equal", "allclose", waits="result", shape="false")
row("nonzero", "nonzero.out", waits="result", shape="positions")
row("masked_select", "masked_select.out", waits="result", shape="masked")
row("_unique2", "_unique2.out", "unique_dim", "unique_dim.out", waits="result", shape="distinct")
row("unique_consecutive", "unique_consecutive.out", waits="result", shape="distinct")
row("unique_dim_consecutive", "unique_dim_consecutive.out", waits="result", shape="distinct")
# these count on the device what their shape depends on
row("repeat_interleave.Tensor", "repeat_interleave.Tensor_out", shape="repeated")
row("bincount", "bincount.out", shape="counted")
# checks of values, which are taken to be right
row("_amp_foreach_non_finite_check_and_unscale_", shape="finite")
row("_amp_update_scale_", shape="unchanged")
row("_assert_async", "_assert_async.msg", "_linalg_check_errors", shape="nothing")

# collectives: what is gathered or scattered
row("c10d::_allgather_base_", whole=(0,))
row("c10d::_reduce_scatter_base_", whole=(1,))
row("c10d::alltoall_base_", whole=(0, 1))

# autograd's zeros without data: no CPU kernel may be given them, and torch sees to it above our mode
row("_efficientzerotensor", instead="real zeros")
# the kernel keeps the positions that backward reads for a tensor that requires a gradient
row("_sparse_mm_reduce_impl", instead="positions kept")

# composed of others for all devices but CPU and CUDA, with other rounding: our mode gets it whole
row("mish_backward", kernel="whole")
row("scaled_dot_product_attention", kernel="attention")
# torch computes the vectors as well for tensor subclasses
row("linalg_svdvals", kernel="singular values")
row("linalg_eigvalsh", kernel="eigenvalues")
# what SyncBatchNorm is made of: torch has these for CUDA only
row("batch_norm_stats", kernel="statistics")
row("batch_norm_gather_stats_with_counts", kernel="joined statistics")
row("batch_norm_elemt", kernel="normalised")
row("batch_norm_backward_reduce", kernel="gradient sums")
row("batch_norm_backward_elemt", kernel="input gradient")
