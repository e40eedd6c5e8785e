"""Kinds of messages that are not about two tensors that met: each finds its culprit in its own way."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from lightning_devcheck._explain.bindings import find_binding
from lightning_devcheck._explain.locate import Named, locate
from lightning_devcheck._explain.mentions import evaluate, mentions
from lightning_devcheck._explain.scene import Scene, as_decided
from lightning_devcheck._judge.culprit import Culprit
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import GENERATOR, is_a, is_module
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._report.records import Origin
from lightning_devcheck._simulate.tensor.generators import made_line
from lightning_devcheck._source.files import statement_at
from lightning_devcheck._source.statements import calls_in, names_device, receiver_of, spell, text_in


def _generator(scene: Scene) -> Culprit | None:
    """A generator that draws on another device than the tensor it is for."""
    for index, frame in reversed(list(enumerate(scene.frames))):
        for mention in mentions(frame.failing(), frame) if frame.is_user else ():
            if is_a(mention.value, GENERATOR):
                search = scene.search(mention.value, scene.wrong)
                named = search.locate(mention.value) or search.follow(index, mention.text)
                line = made_line(mention.value)
                if line is not None:
                    named = as_decided(named, line)
                return scene.culprit(named, None)
    return None


def _assigned_data(scene: Scene) -> Culprit | None:
    """``parameter.data = tensor``: the parameter is what goes wrong, on this line."""
    for _, frame in scene.user_frames[:1]:
        tree = frame.statement()
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Store):
                text, value = evaluate(node.value, frame)
                if is_a(value, torch.Tensor):
                    device = next((d for d in (torch.device("cpu"),) if d != scene.expected), None)
                    named, fix = Named(text, frame.origin, "local"), _in_place(text, frame.origin)
                    return scene.culprit(named, None, [(text, value)], device=device, fix=fix)
    return None


def _in_place(text: str, line: Origin) -> str:
    statement = statement_at(line)
    return f"{text}.data.copy_({spell(statement.value)})" if isinstance(statement, ast.Assign) else ""


def _host_memory(scene: Scene) -> Culprit | None:
    """A device tensor where only host memory will do: NumPy, or a loader that pins."""
    found = scene.device(scene.match.devices[0]) if scene.match.devices else None
    numpy = scene.match.message.id == "to-numpy"
    reader = "NumPy reads" if numpy else "pin_memory takes"
    for _, frame in scene.user_frames:
        held = [(name, tensor) for name, tensor in scene.mentioned(frame) if device_of(tensor) == found]
        for name, tensor in held[:1]:
            binding = find_binding(frame, name)
            made = None if binding is None else binding.origin
            located = scene.search(tensor, found).locate(tensor)
            called = located or Named(name, made if binding and binding.kind != "argument" else None, "local")
            fix = f"{called.name}.detach().cpu().numpy(), once per logging interval rather than in every step"
            return scene.culprit(
                called,
                tensor,
                what=f"{called.name} is on {found}, {reader} host memory",
                stated="cpu",
                why=scene.match.message.cause,
                fix=fix if numpy else scene.match.message.fix,
            )
    what = f"a tensor is on {found}, {reader} host memory"
    return scene.culprit(Named("a tensor", None, "local"), None, device=found, stated="cpu", what=what)


def _no_such_device(scene: Scene) -> Culprit | None:
    """A call that names a device which this machine does not have."""
    for _, frame in scene.user_frames:
        tree = frame.failing()
        calls = [call for call in calls_in(tree) if _names_device(call)] if tree is not None else []
        for call in calls[:1]:
            device = next(_written(call), next(iter(scene.match.devices), "cuda"))
            named = Named(spell(call), frame.origin, "call")
            what = f"{named.name} asks for {device}, which this machine does not have"
            culprit = scene.culprit(named, None, device=device, what=what, stated="self.device")
            # the call itself is what the fix is for, wherever it stands
            return replace(culprit, why=scene.match.message.cause, writing=None)
    return None


def _names_device(call: ast.Call) -> bool:
    loading = receiver_of(call, ("load", "load_from_checkpoint"))
    return loading is not None or names_device(call) or any(_written(call))


def _written(call: ast.Call) -> Iterator[str]:
    """The devices that are written out in a call."""
    for node in ast.walk(call):
        if text_in(node).startswith("cuda"):
            yield text_in(node)
    if receiver_of(call, ("cuda",)) is not None:
        first = call.args[0] if call.args else None
        yield f"cuda:{first.value}" if isinstance(first, ast.Constant) and type(first.value) is int else "cuda"


def _wrapped(scene: Scene) -> Culprit | None:
    """Distributed training refused the module: name a part that is not where most are."""
    index, name, module = _refused(scene)
    held = list(tensors_of(module, name)) if module is not None else []
    counts = Counter(device_of(t) for _, t in held)
    common = _belongs(scene, counts)
    odd = [pair for pair in held if device_of(pair[1]) != common]
    if not odd:
        return None
    some = len(odd) < len(held)
    located = locate(module, odd[0][1], name) or Named(odd[0][0], None, "registered")
    named = Named(located.name if some else name, located.origin or _made(scene, index, name), "registered")
    rule = "meta-parameter" if device_of(odd[0][1]).type == "meta" else scene.match.message.rule
    others = [pair for pair in held if device_of(pair[1]) == common][:1]
    return scene.culprit(named, odd[0][1], others, rule=rule, stated=str(common))


def _belongs(scene: Scene, counts: Counter[torch.device]) -> torch.device | None:
    """Where a module belongs: where the message says, else where most of it is that is on a real device."""
    if scene.expected in counts or scene.match.expected or len(counts) == 1:
        return scene.expected
    real = [device for device, _ in counts.most_common() if device.type != "meta"]
    return next((device for device in real if device.type != "cpu"), real[0] if real else scene.expected)


def _refused(scene: Scene) -> tuple[int, str, torch.nn.Module | None]:
    """The module that the user's line hands to the wrapper, else the one that is trained."""
    for index, frame in scene.user_frames[:1]:
        for mention in mentions(frame.failing(), frame):
            if is_module(mention.value) and mention.text != "self":
                return index, mention.text, mention.value
    index = next((i for i, frame in scene.user_frames if frame.names.get(scene.root_name) is scene.root), -1)
    return index, scene.root_name, scene.root


def _made(scene: Scene, index: int, name: str) -> Origin | None:
    if index < 0:
        return None
    return scene.search(None, None).follow(index, name).origin


Special = Callable[[Scene], Culprit | None]
# by the message, else by its rule
SPECIAL: dict[str, Special] = {
    "generator-device": _generator,
    "set-data": _assigned_data,
    "to-numpy": _host_memory,
    "pin-memory": _host_memory,
    "no-such-device": _no_such_device,
    "parameter-device": _wrapped,
    "meta-parameter": _wrapped,
}
