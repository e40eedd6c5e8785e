"""Notes about tensors, modules and metrics in places that ``Module.to`` does not reach."""

from __future__ import annotations

from typing import Any

import torch

from lightning_devcheck._compat import no_torch_function
from lightning_devcheck._judge.causes import cause_of
from lightning_devcheck._observe.inert import is_module
from lightning_devcheck._observe.unregistered import Unregistered, record, unregistered
from lightning_devcheck._report.records import Finding
from lightning_devcheck._report.report import Report
from lightning_devcheck._report.rules import RULES, make_finding


def scan(module: torch.nn.Module) -> Report:
    """List the tensors, modules and metrics that Lightning will not move with a module.

    Looks into plain attributes, lists, tuples, dicts, dataclasses, your own plain objects,
    `functools.partial`s and closures of the module and of all its sub-modules. It reads what is
    stored and runs no code of yours: no property, ``__getattr__`` or ``__getitem__``. Nothing is on
    a device, nothing is copied, and processes do not talk. The cost grows with the number of
    modules, about 5 µs each.

    Args:
        module: The module that will be moved.

    Returns:
        A report of notes: each is harmless until the thing meets a tensor on a device.

    Raises:
        TypeError: If ``module`` is not a `torch.nn.Module`.

    Example:
        >>> import torch
        >>> from lightning_devcheck import scan
        >>> class Model(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.class_weights = torch.tensor([1.0, 2.0])
        >>> [(finding.rule, finding.name) for finding in scan(Model()).findings]
        [('unregistered-tensor', 'self.class_weights')]
    """
    if not is_module(module):
        kind = type(module).__name__
        raise TypeError(f"scan(module=...): a torch.nn.Module is needed, this is a {kind}.")
    with no_torch_function():
        seen = list(map(record, unregistered(module)))
    findings = tuple(map(_finding, seen))
    checked = {"tensors": len(findings)}
    return Report(findings, checked)


def _finding(seen: Unregistered) -> Finding:
    name, origin, devices = seen.name, seen.origin, seen.devices
    words = f"unregistered-{seen.kind}"
    cure = cause_of(words, name, origin, None, devices, "", seen.owner)
    fields: dict[str, Any] = {"origin": origin}
    fields["shape"] = seen.shape
    fields["dtype"] = seen.dtype
    fields["why"] = cure.why or RULES[words].why
    fields["fix"] = cure.fix or RULES[words].fix
    fields["edits"] = cure.edits
    rule = words
    # the rule for parameters is about those in the loss
    if seen.kind == "parameter":
        rule = "unregistered-tensor"
    return make_finding(rule, name=name, device=devices, **fields)
