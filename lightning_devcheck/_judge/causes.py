"""Why a tensor is where it is, and what to write instead, read off the source line that made it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

from lightning_devcheck._judge.case import Case, Cure, makes_object
from lightning_devcheck._judge.moves import (
    discarded_move,
    early_move,
    elsewhere,
    from_setting,
    loaded,
    moved_part,
    to_host,
    written_out,
)
from lightning_devcheck._judge.places import (
    constant,
    container,
    default_value,
    held_outside,
    in_plain_class,
    late_layer,
    local_layer,
    put_into,
    taken_from_loader,
)
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.class_edits import moved_into
from lightning_devcheck._source.edits import NONE, Edits
from lightning_devcheck._source.files import line_of, statement_at
from lightning_devcheck._source.path import base_of
from lightning_devcheck._source.queries import is_building
from lightning_devcheck._source.statements import (
    BUILDERS,
    HERE,
    calls_in,
    calls_torch,
    has_factory,
    is_factory,
    receiver_of,
    spell,
    stacked,
    torch_function,
    with_device_argument,
    without_start,
    word_of,
)


def cause_of(
    rule: str,
    name: str,
    origin: Origin | None,
    used: Origin | None,
    device: str,
    expected: str,
    owner: type | None = None,
) -> Cure:
    """Say why a culprit is where it is and what to write instead, from the line that made it.

    Args:
        rule: The rule it breaks.
        name: As the user typed it.
        origin: The line that made it.
        used: The line where it met the others.
        device: Where it is.
        expected: Where it should be.
        owner: The class of the module that holds it, where that is known.

    Returns:
        Why, fix and edits; empty where the rule's own words are all that can be said.
    """
    made = statement_at(origin, name)
    if origin is None or made is None:
        return Cure()
    function = origin.function
    if is_building(origin, owner) and function not in BUILDERS:
        function = "__init__"
    used_filename = used.filename if used is not None else ""
    case = Case(rule, name, made, statement_at(used), function, device, origin.filename, used_filename)
    cure = next((found for cause in CAUSES if (found := cause(case)) is not None), Cure())
    fix = cure.fix.removesuffix("\n    pass")  # of the head of a block
    if fix.startswith("if ") and line_of(origin.filename, made.lineno).line.startswith("elif "):
        fix = f"el{fix}"
    return replace(cure, fix=fix)


def _own_transfer(case: Case) -> Cure | None:
    """The module's own way to move a batch, which leaves something behind."""
    if case.rule != "batch-device" or case.function != "transfer_batch_to_device":
        return None
    return Cure(
        "The module's own transfer_batch_to_device returns it where it was.",
        "move every part there, or begin with batch = super().transfer_batch_to_device(batch, device, dataloader_idx)",
    )


ON_START = "on_fit_start(self)"
_NOT_MOVED = "A generator draws on its own device only, and Lightning does not move it."
_OF_DEVICE = "A generator draws on its own device only; samplers, loaders and calls without device= draw on the CPU."


def _generator(case: Case) -> Cure | None:
    made = copy.deepcopy(case.made)
    calls = [c for c in calls_in(made) if calls_torch(c, "Generator")]
    if not calls:
        return None
    for call in calls:
        call.args.clear()  # its one argument is the device
    if case.device != "cpu":
        for call in calls:
            call.keywords.clear()
        return Cure(_OF_DEVICE, f"{spell(made)}, or device={case.name}.device in the call that draws")
    line = with_device_argument(made, lambda call: calls_torch(call, "Generator"))
    if not case.name.isupper() and case.function not in BUILDERS:
        return case.instead(_NOT_MOVED, line)
    if case.name.isupper():  # a constant of the file
        line = f"self.{case.name.lower()} = {line.partition(' = ')[2]}"
    if case.name.isupper() or case.function in BUILDERS:  # there self.device is the CPU, or unknown
        line = f"def on_fit_start(self):  # the module has been moved\n    {line}"
    return Cure(_NOT_MOVED, line, _made_on_device(case, made))


def _made_on_device(case: Case, made: ast.stmt) -> Edits:
    """Move a generator of ``__init__`` to where the device is known."""
    if case.name.isupper():
        return NONE
    text = with_device_argument(made, lambda call: calls_torch(call, "Generator"))
    return moved_into(case.filename, case.made, ON_START, text)


def _optimizer(case: Case) -> Cure | None:
    call = case.value
    made = makes_object(call) and "parameters()" in spell(call)
    if not case.attribute or not made or case.rule not in ("optimizer-device", "mixed-devices"):
        return None
    return Cure(
        "It was made before Lightning moved the module, and keeps copies of the parameters from before the move.",
        f"def configure_optimizers(self):\n    return {spell(call)}",  # type: ignore[arg-type]
        moved_into(case.filename, case.made, "configure_optimizers(self)"),
    )


def _other_memory(case: Case) -> Cure | None:
    target = case.made.targets[0] if isinstance(case.made, ast.Assign) else None
    if not isinstance(target, ast.Attribute) or target.attr != "data" or case.value is None:
        return None
    return case.instead(
        "Assigning .data puts the new tensor's memory in, wherever that is.",
        f"{spell(target)}.copy_({spell(case.value)})",
    )


def _copies(case: Case) -> Cure | None:
    """Copies of parameters, taken before the module moved."""
    copied = [spell(source) for source in _modules_copied(case.value)] if case.value is not None else []
    own = all(base_of(source) == "self" for source in copied)  # a variable is gone after __init__
    if not case.attribute or not copied or not own:
        return None
    return Cure(
        f"self.{case.attribute} holds copies that were made before Lightning moved the module; nothing moves them.",
        f"def on_fit_start(self):  # the module has been moved\n    {spell(case.made)}",
        moved_into(case.filename, case.made, ON_START),
    )


def _modules_copied(value: ast.expr) -> Iterator[ast.expr]:
    """The modules that an expression takes copies of, or of their parameters."""
    for call in calls_in(value):
        module = receiver_of(call, ("parameters", "named_parameters", "state_dict"))
        if module is not None:
            yield module
        elif word_of(call.func) == "deepcopy":
            yield from call.args[:1]


def _output(case: Case) -> Cure | None:
    """What a layer returns that was put on another device."""
    if not isinstance(case.value, ast.Call) or spell(case.value.func) != case.name:
        return None
    why = f"{case.name} was put on {case.device}, and what it returns is there too."
    return case.instead(why, f"{spell(case.made)}.to({HERE})")


def _rebuilt(case: Case) -> Cure | None:
    rebuilt = (call for call in calls_in(case.made) if calls_torch(call, "tensor"))
    if not any("requires_grad=True" in spell(call) for call in rebuilt):
        return None
    if case.attribute or case.rule not in ("loss-device", "detached-loss"):
        return None
    why = (
        "torch.tensor copies the numbers into a new CPU leaf; requires_grad=True only hides that nothing is connected."
    )
    code = stacked(case.made)
    if code:
        return case.instead(why, code)
    return Cure(why, "torch.stack([...]).sum() of the terms themselves, or their sum")


def _running_sum(case: Case) -> Cure | None:
    if case.used is None or not has_factory(case.made):
        return None
    why = "A running sum stays on the device of the tensor it starts from; this one starts on the CPU."
    without = without_start(case.used, case.name)
    if without is not None:
        code = spell(without)
        edits = case.edits_to(case.used, code) if case.used_filename == case.filename else ()
        return Cure(why, f"{code}\n(the sum starts from its first term)", edits)
    added = isinstance(case.used, ast.AugAssign) and spell(case.used.target) == case.name
    if not added or (case.attribute and case.function in BUILDERS):
        return None
    code = with_device_argument(case.made, is_factory)
    words = (
        f"start from the first term, or {code},\nor let LossAccumulator add the terms up: total = self.losses(terms)"
    )
    return Cure(why, words, case.edits_to(case.made, code))


def _factory(case: Case) -> Cure | None:
    call = next((call for call in calls_in(case.made) if is_factory(call)), None)
    # a parameter that is not registered would not be trained on the right device either
    if call is None or case.rule == "unregistered-parameter" or case.device.startswith("cuda"):
        return None
    why = f"torch.{torch_function(call)} makes its tensor on the CPU unless it is given a device."
    return case.instead(why, with_device_argument(case.made, is_factory))


CAUSES: tuple[Callable[[Case], Cure | None], ...] = (
    in_plain_class,
    moved_part,
    _own_transfer,
    discarded_move,
    _generator,
    written_out,
    from_setting,
    loaded,
    elsewhere,
    _output,
    _other_memory,
    _optimizer,
    _copies,
    early_move,
    container,
    put_into,
    default_value,
    _rebuilt,
    _running_sum,
    constant,
    held_outside,
    taken_from_loader,
    late_layer,
    local_layer,
    to_host,
    _factory,
)
