"""Causes that lie in a move, or in a device that a line names."""

from __future__ import annotations

import ast
from dataclasses import replace

from lightning_devcheck._judge.case import Case, Cure
from lightning_devcheck._judge.places import container, held_outside
from lightning_devcheck._source.class_edits import taken_out
from lightning_devcheck._source.path import Path, quoted
from lightning_devcheck._source.statements import (
    HERE,
    calls_in,
    calls_torch,
    is_any,
    is_factory,
    is_move,
    is_setting,
    is_written_out,
    moved_in_place,
    spell,
    text_in,
    with_device_argument,
    with_own_device,
    without_devices,
    without_host_copies,
    word_of,
)


def moved_part(case: Case) -> Cure | None:
    """A line of its own that moves a module, in place."""
    module = moved_in_place(case.made)
    if module is None:
        return None
    owner = Path.of(module)
    inside = owner is not None and case.path != owner and case.path.is_in(owner)
    # what is where the line moves it, although its result is thrown away, is no tensor
    is_there = any(text_in(node) == case.device for node in ast.walk(case.made))
    if not (inside or is_there) and case.rule != "parameter-device":
        return None
    allowed = f"{case.name.removeprefix('self.')}*"
    return Cure(
        "This line moves the module, in place; Lightning had moved it with all the rest, or would have.",
        f"take it out; what is to stay there on purpose: DeviceCheck(allow=[{quoted(allowed)}])",
        taken_out(case.filename, case.made),
    )


def discarded_move(case: Case) -> Cure | None:
    tensor = moved_in_place(case.made)
    if tensor is None:
        return None
    name, move = spell(tensor), word_of(case.made.value.func)  # type: ignore[attr-defined]
    return case.instead(
        f".{move}() returns a new tensor, which this line throws away; {name} stays on {case.device}.",
        f"{name} = {spell(case.made)}",
    )


def written_out(case: Case) -> Cure | None:
    """A device written out in the code."""
    if not case.device.startswith("cuda"):
        return None
    line = with_own_device(case.made, is_written_out)
    if line is None:
        return None
    if case.attribute and case.function == "__init__":  # there self.device is the CPU
        rule = case.rule if case.rule.startswith("unregistered") else "unregistered-tensor"
        plain = replace(case, made=without_devices(case.made), rule=rule)
        registered = container(plain) or held_outside(plain)
        line = registered.fix if registered else line
    return case.instead("The device written out here is right on one process and wrong on every other.", line)


def elsewhere(case: Case) -> Cure | None:
    """A device that a variable names."""
    line = with_own_device(case.made, is_any) if case.device.startswith("cuda") and not case.attribute else None
    if line is None:
        return None
    return case.instead("The device that this line names is not the one of this process.", line)


def from_setting(case: Case) -> Cure | None:
    """A device that a constant or a setting of the program names."""
    line = with_own_device(case.made, is_setting)
    if line is None or case.attribute:
        return None
    why = "The device here is one that the program has chosen itself; Lightning has put this process on another."
    return case.instead(why, line)


def loaded(case: Case) -> Cure | None:
    if not any(calls_torch(call, "load") for call in calls_in(case.made)):
        return None
    return case.instead(
        "torch.load puts a tensor on the device it was saved from, or on map_location; nothing moves it after that.",
        with_device_argument(case.made, lambda call: calls_torch(call, "load"), "map_location"),
    )


def early_move(case: Case) -> Cure | None:
    moved = any(is_move(call) and HERE in spell(call) for call in calls_in(case.made))
    if not moved or not case.attribute or case.device != "cpu":
        return None
    value = spell(case.value) if case.value else "tensor"
    plain = value.removesuffix(f".to({HERE})")
    return case.instead(
        f"While __init__ runs, self.device is still the CPU, so this .to() does nothing; and what is not a parameter\n"
        f"or buffer is not moved later. self.{case.attribute} stays on the CPU.",
        f'self.register_buffer("{case.attribute}", {plain}, persistent=False)',
    )


def to_host(case: Case) -> Cure | None:
    kept = without_host_copies(case.made) if case.device == "cpu" else None
    if kept is None:
        return None
    line = with_device_argument(kept, is_factory)
    target, _, value = line.partition(" = ")
    if target == value:
        line = f"leave this line out; what is logged is {target}.detach()"
    return case.instead("This line copies it to the CPU: a hidden copy and a wait in every step.", line)
