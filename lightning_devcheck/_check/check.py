"""Look at one loss and its module, and judge: for plain loops, Fabric, and the callback."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter  # by name: a program that counts calls of time.perf_counter does not count ours
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from lightning_devcheck._judge.backward import Evidence, diagnose
from lightning_devcheck._judge.training import Seen, judge_training
from lightning_devcheck._observe.devices import device_of, devices_of
from lightning_devcheck._observe.expectation import Expectation, declared, learned_from
from lightning_devcheck._observe.graph import plain_graph, record_graph, record_tensor
from lightning_devcheck._observe.module_tree import OwnTensors, tensors_of
from lightning_devcheck._observe.training import (
    kept_graphs,
    moved_states,
    replaced_parameters,
)
from lightning_devcheck._observe.unregistered import unregistered
from lightning_devcheck._report.records import Finding, Origin, TensorRecord
from lightning_devcheck._report.report import Report
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.queries import attribute_origin, leaf_line, method_line, move_line

# what needs a look at all of the module or all optimizer state is done up to this batch
MAX_BATCH = 8

if TYPE_CHECKING:
    from lightning_devcheck._explain.live import Caller
    from lightning_devcheck._explain.locate import Named


def check_devices(
    loss: torch.Tensor,
    module: torch.nn.Module,
    *,
    expected: torch.device | str | Iterable[torch.device | str] | None = None,
) -> Report:
    """Check that a loss, the leaves of its graph and a module's parameters share a device.

    Call it before ``loss.backward()`` in a plain torch or Fabric loop; in a Trainer, `DeviceCheck` does. It walks the
    graph (10,000 nodes at most) in about 1 µs a node on the CPU, reads no value, waits for no device and keeps nothing
    alive. Processes do not talk: each gets the report of its own. Where something is wrong, names and lines are looked
    up in the variables of the function that calls it.

    Args:
        loss: The tensor you call ``.backward()`` on; any shape and dtype, on any device.
        module: The module that is trained, or the largest part of it.
        expected: The device or devices where everything belongs; None takes those of the module's parameters. More than
            one means model parallel: each of them is right.

    Returns:
        The report; ``report.ok`` where nothing is wrong.

    Raises:
        TypeError: If ``loss`` is not a tensor, ``module`` not a `torch.nn.Module`, or ``expected`` nothing that names
            devices.
        ValueError: If ``expected`` is empty.
        RuntimeError: If ``expected`` is not a device, in torch's words.

    Example:
        >>> import torch
        >>> from lightning_devcheck import check_devices, simulate_cuda
        >>> with simulate_cuda(devices=1):
        ...     model = torch.nn.Linear(2, 1).to("cuda")
        ...     loss = model(torch.ones(4, 2, device="cuda")).mean().cpu()
        ...     print([finding.rule for finding in check_devices(loss, model).findings])
        ['loss-device']
    """
    if not isinstance(loss, torch.Tensor):
        raise TypeError(
            f"check_devices(loss={loss!r}): loss is a {type(loss).__name__}; pass the tensor you call .backward() on."
        )
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"check_devices(module={module!r}): module is a {type(module).__name__}; a torch.nn.Module is needed."
        )
    expectation = None if expected is None else _expectation(expected)
    frame = sys._getframe(1)
    own = OwnTensors(module)
    report = inspect(loss, own, expectation, strict=False, frame=frame)
    if report.ok:
        return report
    here = min(devices_of(own.parameters), key=str, default=None)
    caller = _caller(frame, module)
    findings = [caller.in_its_words(finding, here) for finding in report.findings]
    return replace(report, findings=tuple(findings))


def _expectation(expected: Any) -> Expectation:
    """The devices that the caller names."""
    devices = [expected]
    if isinstance(expected, Iterable) and not isinstance(expected, str):
        devices = list(expected)
    if not devices:
        raise ValueError(f"check_devices(expected={expected!r}): name a device, or None for the parameters' own.")
    if not all(isinstance(device, (str, torch.device)) for device in devices):
        raise TypeError(f"check_devices(expected={expected!r}): use a device such as 'cuda:0', several, or None.")
    try:
        return declared(devices)
    except RuntimeError as error:
        raise RuntimeError(f"check_devices(expected={expected!r}): {error}") from None


def _caller(frame: FrameType, module: torch.nn.Module) -> Caller:
    """The program that asked, which is not looked at where nothing is wrong."""
    from lightning_devcheck._explain.live import Caller

    return Caller(frame, module)


def inspect(
    loss: torch.Tensor,
    own: OwnTensors,
    expectation: Expectation | None,
    *,
    optimized: frozenset[int] | None = None,
    before: Mapping[int, str] | None = None,
    strict: bool = True,
    allowed: Iterable[str] = (),
    frame: FrameType | None = None,
) -> Report:
    """Make the full check of one loss.

    Args:
        loss: The loss.
        own: The tensors of the module that is trained.
        expectation: Where things belong; None: where the parameters are.
        optimized: The ids of the parameters that an optimizer holds, where that is known.
        before: The parameters' names when the optimizers were made, by id.
        strict: Whether a parameter from outside the module is a mistake wherever it is kept.
        allowed: Patterns of the names and devices that may be where they are.
        frame: The frame that asks, whose variables may hold what the module does not.
    """
    start = perf_counter()
    parameters, buffers = own.parameters, own.buffers
    devices = devices_of(parameters)
    if expectation is None:
        expectation = learned_from(parameters, devices)
    if devices | devices_of([loss, *buffers]) <= expectation.devices:
        num_nodes, leaves = plain_graph(loss)
        if leaves and leaves <= set(map(id, parameters)) and (not optimized or leaves <= optimized):
            tensors = len(parameters) + len(buffers) + len(leaves) + 1
            return _report((), tensors, num_nodes, start, expectation.not_checked)
    names = _Names(own, expectation, optimized, frame)
    evidence = _observe(loss, names, before, strict, frozenset(allowed))
    graph = evidence.graph
    tensors = len(evidence.parameters) + len(graph.leaves) + 1
    not_checked = (*graph.not_checked, *expectation.not_checked)
    return _report(diagnose(evidence), tensors, graph.num_nodes, start, not_checked)


def inspect_training(
    trainer: Any,
    own: OwnTensors,
    expectation: Expectation,
    *,
    optimized: frozenset[int],
    before: Mapping[int, str],
    batch: int,
    first_node: int,
) -> list[Finding]:
    """Check what holds wherever things are.

    Args:
        trainer: The Trainer, whose optimizers are looked at.
        own: The tensors of the LightningModule.
        expectation: Where things belong; nothing is judged where parameters are sharded.
        optimized: The ids of the parameters that an optimizer holds.
        before: The parameters' names when the optimizers were made, by id.
        batch: The batch of this fit, counted from 1.
        first_node: The number of the first graph node of this batch.
    """
    if expectation.sharded:
        return []
    seen: list[Seen] = [*replaced_parameters(before, own, optimized)]
    if batch <= MAX_BATCH:
        seen += moved_states(trainer.optimizers, own)
    # with manual optimization the losses of several batches may be kept for one backward
    if 1 < batch <= MAX_BATCH and trainer.lightning_module.automatic_optimization:
        seen += kept_graphs(own, first_node)
    return judge_training(seen, expectation)


@dataclass
class _Names:
    """What tensors are called; what is not the module's own is looked for when it is met.

    Attributes:
        own: The tensors of the module that is trained.
        expectation: Where things belong.
        optimized: The ids of the parameters that an optimizer holds, where that is known.
        frame: The frame that asks.
        foreign: The names and lines of other tensors, by id.
        trained: The names of leaves from outside the module that an optimizer holds.
    """

    own: OwnTensors
    expectation: Expectation
    optimized: frozenset[int] | None
    frame: FrameType | None
    foreign: dict[int, tuple[str, Origin | None]] = field(default_factory=dict)
    trained: set[str] = field(default_factory=set)

    def of_leaf(self, leaf: torch.Tensor) -> tuple[str, bool]:
        """Name a leaf, and tell whether it is the module's own."""
        key = id(leaf)
        if key in self.own.names:
            return self.own.names[key], True
        if not self.foreign:
            self.foreign.update(_foreign_names(self.own.module))
        if key not in self.foreign and device_of(leaf) not in self.expectation.devices:
            known = self.history(leaf)
            self.foreign.update({key: (known.name, known.origin)} if known else {})
        name, _ = self.foreign.get(key, ("a leaf tensor", None))
        if self.optimized and key in self.optimized:
            self.trained.add(name)
        return name, False

    def history(self, tensor: torch.Tensor) -> Named | None:
        """Find the name and the line of a tensor that the caller's variables hold."""
        if self.frame is None:
            return None
        here = min(self.expectation.devices, key=str, default=None)
        return _caller(self.frame, self.own.module).history(tensor, here)

    def line_of_loss(self, loss: torch.Tensor) -> Origin | None:
        """Find the line that makes a loss which no recorded line made."""
        known = self.history(loss)
        if known is not None:
            return known.origin
        return leaf_line(type(self.own.module), "training_step")


def _observe(
    loss: torch.Tensor,
    names: _Names,
    before: Mapping[int, str] | None,
    strict: bool,
    allowed: frozenset[str],
) -> Evidence:
    """Fill in all that the judge may ask for."""
    own = names.own
    graph = record_graph(loss, names.of_leaf)
    records = _owned(own)
    before = before or own.names
    optimized = None
    if names.optimized:
        # a parameter that took another's place has a rule of its own
        known = {**before, **own.names}
        optimized = frozenset(known.get(key, "") for key in names.optimized)
    late = frozenset(name for key, name in own.names.items() if key not in before)
    loss_line = None
    # no rule asks for it elsewhere, and reading a caller's variables takes its time
    reaches = any(leaf.registered for leaf in graph.leaves)
    if graph.loss.device not in names.expectation.devices or not reaches:
        loss_line = names.line_of_loss(loss)
    return Evidence(
        graph,
        records,
        names.expectation,
        origins=_origins(own.module, names.foreign, records),
        optimized=optimized,
        late=late,
        strict=strict,
        trained=frozenset(names.trained),
        allowed=allowed,
        optimizer_line=method_line(type(own.module), "configure_optimizers") if optimized else None,
        loss_line=loss_line,
    )


def _report(
    findings: Iterable[Finding], tensors: int, num_nodes: int, start: float, not_checked: tuple[str, ...]
) -> Report:
    checked = {"tensors": tensors, "graph_nodes": num_nodes, "seconds": perf_counter() - start}
    return Report(tuple(findings), checked, not_checked)


def _origins(
    module: torch.nn.Module, foreign: Mapping[int, tuple[str, Origin | None]], owned: Iterable[TensorRecord]
) -> dict[str, Origin]:
    """The assignments of plain attributes that met the graph, and of the module's own attributes."""
    found = {name: origin for name, origin in foreign.values() if origin is not None}
    children = {name for name, _ in module.named_children()}
    for attribute in dict.fromkeys(Path.parse(record.name).attribute for record in owned):
        moved = move_line(type(module), attribute) if attribute in children else None
        origin = moved or attribute_origin(type(module), attribute)
        if origin is not None:
            found[f"self.{attribute}"] = origin
    return found


def _owned(own: OwnTensors) -> list[TensorRecord]:
    """The module's parameters and buffers, but not those of a part that is wholly frozen (a teacher kept elsewhere)."""
    records = []
    for part in own.parts:
        trained = [tensor.requires_grad for tensor in part.values() if isinstance(tensor, torch.nn.Parameter)]
        if any(trained) or not trained:
            records += [record_tensor(tensor, name, registered=True) for name, tensor in part.items()]
    return records


def _foreign_names(module: torch.nn.Module) -> dict[int, tuple[str, Origin | None]]:
    """Names of tensors in plain attributes, and of the parameters of modules there."""
    found: dict[int, tuple[str, Origin | None]] = {}
    for place in unregistered(module):
        held: Iterable[tuple[str, torch.Tensor]] = [(place.name, place.value)]
        if not isinstance(place.value, torch.Tensor):
            held = tensors_of(place.value, place.name)
        for name, tensor in held:
            found[id(tensor)] = (name, place.made)
    return found
