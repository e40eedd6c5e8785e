"""The rules: id, severity, and what a report says by default. The one place for their wording.

A judge that knows more about a cause (the line that made the tensor, the place it is kept in) gives its own ``why`` and
``fix``; the words here are what holds for every case of the rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lightning_devcheck._report.records import Finding, Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        id: Kebab-case, stable for ever: text, JSON, docs anchors and ``ignore=`` use it.
        severity: What a finding of it is by default.
        what: The headline; ``{name}``, ``{device}`` and ``{expected}`` are filled in. So in the next two.
        why: The cause that holds for every case.
        fix: Something to paste.
    """

    id: str
    severity: Severity
    what: str
    why: str
    fix: str


_TABLE = (
    Rule(
        "loss-device",
        "error",
        "the loss is on {device}, the model is on {expected}",
        "A loss that ends on another device costs a hidden copy and a wait in every step, or fails in backward.",
        "start the sum from its first term, or from torch.zeros((), device=self.device),\n"
        "and take .cpu() and .item() out of the way to the loss",
    ),
    Rule(
        "leaf-device",
        "error",
        "{name} wants a gradient and is on {device}, the model is on {expected}",
        "torch moves a 0-dim gradient between devices without a word, a copy and a wait in every step;\n"
        "a larger one fails in backward.",
        "make it a parameter or buffer of the module, or create it with device=self.device",
    ),
    Rule(
        "parameter-device",
        "error",
        "{name} is on {device}, this process trains on {expected}",
        "Lightning moved the module to {expected}; something put this part elsewhere, or made it later.",
        "create it in __init__ or configure_model, and leave moving it to Lightning",
    ),
    Rule(
        "unregistered-parameter",
        "error",
        "{name} is an nn.Parameter in the loss that the module does not register",
        "What the module does not register is never moved, is not in self.parameters() (so the optimizer does not\n"
        "train it), not in the checkpoint, and not synchronised by DDP.",
        "assign it to the module itself, or keep it in nn.ParameterList, nn.ParameterDict or nn.ModuleList",
    ),
    Rule(
        "mixed-devices",
        "error",
        "{name} is on {device}, what it met is on {expected}",
        "torch runs an operator on one device; only a 0-dim CPU tensor may join tensors of another.",
        "create it where the others are: device=self.device, or .to(other.device)",
    ),
    Rule(
        "wrong-rank-device",
        "error",
        "{name} is on {device}, this process trains on {expected}",
        "A device written out in the code is right on one process and wrong on every other.",
        "use self.device (or the device of a tensor that is already right) in place of the written-out one",
    ),
    Rule(
        "gradient-device",
        "error",
        "the gradient of {name} came back on {device}, {name} is on {expected}",
        "A backward or a hook of your own returned its gradient on another device.",
        "return it where the input was: grad.to(x.device)",
    ),
    Rule(
        "batch-device",
        "error",
        "{name} stayed on {device}, the model is on {expected}",
        "Lightning moves tensors, lists, tuples, dicts, dataclasses and whatever has a .to method; this has none.",
        "give its class a .to(device) method, or override transfer_batch_to_device",
    ),
    Rule(
        "metric-device",
        "error",
        "the state of {name} is on {device}, its input is on {expected}",
        "A metric moves with the module only where the module registers it.",
        "assign the metric to the module itself, or keep it in nn.ModuleList, nn.ModuleDict or a MetricCollection",
    ),
    Rule(
        "optimizer-device",
        "error",
        "the optimizer state of {name} is on {device}, {name} is on {expected}",
        "Lightning moves optimizer state once, when it sets the run up; the parameter or the state moved after that.",
        "move the module before the optimizer is made, and load optimizer state with map_location=self.device",
    ),
    Rule(
        "collective-device",
        "error",
        "{name} is on {device}, the process group talks between {expected} tensors",
        "NCCL sends device tensors only.",
        "hand the collective a tensor on self.device",
    ),
    Rule(
        "detached-loss",
        "warning",
        "the loss reaches no parameter of the model: nothing is trained",
        "The way from the parameters to the loss was cut: torch.no_grad(), .detach(), .item(), numpy or torch.tensor.",
        "compute the loss from the model's output with tensor operations only",
    ),
    Rule(
        "unoptimized-parameter",
        "warning",
        "{name} gets a gradient and no optimizer holds it",
        "The optimizer holds the parameters that existed when configure_optimizers ran.",
        "create it in __init__ or configure_model, and hand self.parameters() to the optimizer",
    ),
    Rule(
        "replaced-parameter",
        "warning",
        "the optimizer holds a parameter that the module no longer has: {name}",
        "Assigning a new parameter leaves the optimizer training the old one.",
        "change it in place, under torch.no_grad(): {name}.copy_(new)",
    ),
    Rule(
        "kept-graph",
        "warning",
        "{name} keeps the graph of an earlier batch alive",
        "A tensor that is kept with its graph keeps every activation of its batch.",
        "keep {name}.detach()",
    ),
    Rule(
        "meta-parameter",
        "error",
        "{name} is on meta: it was never materialised",
        "A parameter on the meta device has a shape and no data.",
        "build it in configure_model, or self.to_empty(device=self.device) and initialise it",
    ),
    Rule(
        "device-round-trip",
        "warning",
        "the graph of the loss leaves {expected} for {device} and comes back",
        "Each step copies to {device}, waits for it, and copies back.",
        "keep this part on {expected}: take out the .cpu() or .to() and create its tensors with device=self.device",
    ),
    Rule(
        "unregistered-tensor",
        "note",
        "{name} is a tensor that the module does not register",
        "Lightning moves parameters and buffers; a tensor in a plain attribute, list or dict stays where it is.",
        'self.register_buffer("name", tensor, persistent=False)',
    ),
    Rule(
        "unregistered-module",
        "note",
        "{name} is a module that its owner does not register",
        "What a module does not register is not moved, not trained, not saved, not synchronised with it.",
        "assign it to the module itself, or keep it in nn.ModuleList or nn.ModuleDict",
    ),
    Rule(
        "unregistered-metric",
        "note",
        "{name} is a metric that the module does not register",
        "A metric moves with the module only where the module registers it.",
        "assign it to the module itself, or keep it in nn.ModuleList, nn.ModuleDict or a MetricCollection",
    ),
    Rule(
        "host-read",
        "note",
        "{name} makes the host wait for {device}",
        "Reading a value from a device stops the host until the device has caught up.",
        "keep it as a tensor: .detach(), torch.where, and self.log, which reads it later",
    ),
    Rule(
        "host-copy",
        "note",
        "{name} is copied from the CPU to {device}",
        "The host makes it and sends it; unless its memory is pinned, the host waits until it has been sent.",
        "make it on the device: device=self.device; what stays the same from step to step is a buffer:\n"
        'self.register_buffer("name", tensor, persistent=False)',
    ),
    Rule(
        "made-up-value",
        "note",
        "{name} has no value in this run",
        "Tensors hold no values here (values=False): what is read from them is made up, and the run takes the way\n"
        "that the made-up value leads.",
        "nothing, unless another way of the code is to be checked: run a small model of the same code with values",
    ),
)

RULES: dict[str, Rule] = {rule.id: rule for rule in _TABLE}


def make_finding(rule: str, *, name: str, device: object, expected: object = "", **fields: Any) -> Finding:
    """Build a finding of a rule; ``severity``, ``what``, ``why`` and ``fix`` are the rule's unless given.

    Args:
        rule: The rule's id.
        name: The culprit as the user would type it.
        device: Where it is.
        expected: Where it should be.
        fields: Further fields of `Finding`.
    """
    entry = RULES[rule]
    words: dict[str, Any] = {"name": name, "device": str(device), "expected": str(expected)}
    defaults = {key: getattr(entry, key).format(**words) for key in ("what", "why", "fix")}
    given = {key: value for key, value in fields.items() if value is not None and value != ""}
    return Finding(rule=rule, **{"severity": entry.severity, **defaults, **words, **given})
