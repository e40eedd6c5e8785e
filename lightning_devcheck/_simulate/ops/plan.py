"""What is known of an operator before it is called.

What is special stands in the table of operators. The rest is in the installed torch:
``native_functions.yaml``, which ships in its wheel, says which operators have a CUDA kernel, and
marks with ``device_check: NoCheck`` those that look after devices themselves (most go through
TensorIterator); for every other one the generated CUDA wrapper demands exactly one device.
Operators without a CUDA kernel are composed of others, which are judged one by one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
import torchgen

from lightning_devcheck._simulate.compat import (
    DispatchKey,
    Operator,
    composing_key,
    sparse_mm_reduce,
)
from lightning_devcheck._simulate.ops.table import TABLE, Devices, Instead, Row

Returns = Literal["new", "written", "view", "reshaped"]


def _keep_positions(sparse: torch.Tensor, dense: torch.Tensor, reduce: str) -> Any:
    """Run with the positions that backward reads."""
    sparse = sparse.detach().requires_grad_()
    return sparse_mm_reduce(sparse, dense, reduce)


INSTEAD: dict[Instead, Callable[..., Any]] = {}
INSTEAD["real zeros"] = torch.ops.aten.zeros.default
INSTEAD["positions kept"] = _keep_positions


class Plan:
    """What is known of an operator before it is called.

    Attributes:
        operator: The operator.
        row: What is special about it.
        inner: What runs on the values of simulated tensors: mostly the operator itself.
        names: Its arguments' names, in order.
        written: Names of the arguments that it writes into.
        devices: How its arguments' devices go together; see `Row`.
        unchecked: Names of the arguments that may be on the CPU, or anywhere.
        host: Names of the arguments that belong on the CPU, or may be there.
        host_results: Positions of the results that stay on the CPU.
        waits: What the host waits for on a real device.
        random: Whether it takes a generator.
        draws: Whether it draws random numbers.
        composed: The dispatch key of the kernel that composes it; None where CUDA has its own.
        is_composed: Whether torch takes it apart above autograd, before it looks for kernels.
        returns: How its results relate to its arguments.
        quick: Whether one device for all tensors is all there is to check.
    """

    def __init__(self, operator: Operator) -> None:
        arguments = operator._schema.arguments
        row = TABLE.get(operator.name(), Row())
        self.operator = operator
        self.row = row
        self.inner: Callable[..., Any] = operator
        if "instead" in row:
            self.inner = INSTEAD[row["instead"]]
        self.names = tuple(argument.name for argument in arguments)
        self.written = {argument.name for argument in filter(is_written, arguments)}
        self.devices = _devices_of(operator, row)
        self.host = row.get("host", ())
        self.unchecked = self.host + row.get("read", ())
        self.host_results = row.get("host_results", ())
        self.waits = row.get("waits")
        self.random = "generator" in self.names
        self.draws = torch.Tag.nondeterministic_seeded in operator.tags
        self.composed = self._composing_key()
        self.is_composed = self.composed == DispatchKey.CompositeImplicitAutograd
        self.returns = _returns_of(operator)
        has_one_device = self.devices in ("one", "iterator", "choosing")
        is_special = self.random or self.host_results or "instead" in row
        self.quick = has_one_device and not is_special

    def _composing_key(self) -> DispatchKey | None:
        if self.host or self.host_results:
            return None
        if self.devices not in ("one", "iterator"):
            return None
        if _has_kernel(self.operator):
            return None
        return composing_key(self.operator)


class _Plans(dict[Operator, Plan]):
    """The plan of each operator, made when it is first asked for."""

    def __missing__(self, operator: Operator) -> Plan:
        plan = self[operator] = Plan(operator)
        return plan


PLANS = _Plans()


@functools.cache
def _native_functions() -> dict[str, str]:
    """Read what torch's table says of each operator, as text."""
    table = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    text = table.read_text(encoding="utf-8")
    entries = re.split(r"^- func: ", text, flags=re.MULTILINE)
    return {entry.partition("(")[0]: entry for entry in entries}


def _entry_of(operator: Operator) -> str:
    """Look an operator up; one that is not there was generated, as a composition."""
    name = operator.name().removeprefix("aten::")
    return _native_functions().get(name, "")


def _devices_of(operator: Operator, row: Row) -> Devices:
    if "devices" in row:
        return row["devices"]
    if operator.namespace == "c10d":
        return "any"
    if operator._schema.name.startswith("aten::_foreach"):
        return "lists"
    if operator.namespace != "aten":
        return "one"
    if "device_check: NoCheck" in _entry_of(operator):
        return "iterator"
    return "one"


def _has_kernel(operator: Operator) -> bool:
    """Say whether CUDA has a kernel of an operator; what is not torch's own is run as it is."""
    if operator.namespace != "aten":
        return True
    return re.search(r"\bCUDA\b.*:|structured_delegate:", _entry_of(operator)) is not None


def is_written(part: torch.Argument) -> bool:
    """Say whether an argument is written into, or a result is such an argument.

    Args:
        part: An argument or a return of an operator's schema.
    """
    return part.alias_info is not None and part.alias_info.is_write


def _returns_of(operator: Operator) -> Returns:
    """Say how results relate to arguments; the last is an argument with another shape."""
    if torch.Tag.inplace_view in operator.tags:
        return "reshaped"
    if any(map(is_written, operator._schema.arguments)):
        return "written"
    if any(returned.alias_info for returned in operator._schema.returns):
        return "view"
    return "new"
