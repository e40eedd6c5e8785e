"""The culprit among the tensors that an exception left behind."""

from __future__ import annotations

from dataclasses import replace

import torch

from lightning_devcheck._explain.backward import blame_backward, forward_line
from lightning_devcheck._explain.locate import Named, locate
from lightning_devcheck._explain.logged import logged_value
from lightning_devcheck._explain.made import made_in_place
from lightning_devcheck._explain.mentions import mentions
from lightning_devcheck._explain.messages import Match
from lightning_devcheck._explain.names import ENGINE
from lightning_devcheck._explain.nodes import (
    BACKWARD_FIX,
    GIVEN_FIX,
    GIVEN_WHY,
    INVALID_GRADIENT,
    Blame,
    blame_node,
    is_handed_in,
    is_torchs,
)
from lightning_devcheck._explain.optimizer import owner_of_state
from lightning_devcheck._explain.scene import Pair, Scene, is_own
from lightning_devcheck._explain.special import SPECIAL
from lightning_devcheck._judge.culprit import Culprit
from lightning_devcheck._observe.devices import device_of
from lightning_devcheck._observe.inert import dims, inside, is_metric, is_module, read
from lightning_devcheck._observe.module_tree import tensors_of
from lightning_devcheck._report.records import Operator, Origin
from lightning_devcheck._report.rules import RULES
from lightning_devcheck._source.path import base_of


def find_culprit(scene: Scene) -> Culprit:
    """Name the culprit, and write down all that is known of it."""
    special = SPECIAL.get(scene.match.message.id) or SPECIAL.get(scene.match.message.rule)
    found = special(scene) if special is not None else None
    if found is not None:
        return found
    if scene.match.message.rule == "gradient-device":
        return _gradient(scene)
    if _inside_engine(scene) and (blamed := blame_backward(scene.match, scene.frames, scene.root)) is not None:
        return _blamed(scene, *blamed)
    if scene.match.message.rule == "collective-device":
        return logged_value(scene) or _unmet(scene)
    return _mixed(scene)


def _mixed(scene: Scene) -> Culprit:
    met = _met(scene)
    tensor = scene.stray if met is None else met[1][1]
    others = [] if met is None else met[2]
    state = None if tensor is None else owner_of_state(scene, tensor)
    if tensor is not None and state is not None:
        what = f"{state[1]} is on {device_of(tensor)}, its parameter is on {scene.expected}" if state[1] else ""
        return scene.culprit(state[0], tensor, others, rule="optimizer-device", what=what)
    if met is None:
        return _unmet(scene)
    index, (name, tensor), others = met
    named = scene.search(tensor, device_of(tensor)).name(index) or _metric(scene) or Named(name, None, "local")
    return scene.culprit(named, tensor, _right(scene) or others)


def _metric(scene: Scene) -> Named | None:
    """The metric that the user's line calls and whose own code failed."""
    if scene.match.message.rule != "metric-device":
        return None
    for index, frame in scene.user_frames[:1]:
        for mention in mentions(frame.failing(), frame):
            for name, held in inside(mention.value, mention.text):
                tensors = list(tensors_of(held, name)) if is_module(held) and is_metric(held) else []
                for _, state in tensors[:1]:
                    found = scene.search(state, device_of(state)).locate(state) or locate(held, state, name)
                    line = scene.search(state, None).follow(index, mention.text).origin
                    return None if found is None else replace(found, origin=found.origin or line)
    return None


def _right(scene: Scene) -> list[Pair]:
    """What the user's own line mentions that is where it should be."""
    frames = [frame for _, frame in scene.user_frames[:1]]
    return [pair for frame in frames for pair in scene.mentioned(frame) if device_of(pair[1]) == scene.expected]


def _met(scene: Scene) -> tuple[int, Pair, list[Pair]] | None:
    """The innermost frame whose failing expression mentions tensors on two devices, and the odd one there."""
    if scene.stray is not None:
        return _met_by(scene, scene.stray)
    passed = False
    for index in range(len(scene.frames) - 1, -1, -1):
        frame = scene.frames[index]
        if is_own(frame) or (passed and not frame.is_user):
            continue  # what a framework holds outside of the user's line did not meet in it
        passed = passed or frame.is_user
        # after a failed fit Lightning moves modules to the CPU: what they hold now was not there then
        held = sorted(mentions(frame.failing(), frame), key=lambda m: frame.is_user and is_module(m.value))
        pairs = [pair for mention in held for pair in mention.tensors()]
        if not frame.is_user:  # torch hands arguments on by these names, which say nothing
            pairs = [pair for pair in pairs if base_of(pair[0]) not in ("args", "kwargs")]
        scene.counted += len(pairs)
        if not frame.is_user:
            pairs.sort(key=lambda pair: -dims(pair[1]))  # a layer's weight says more than its bias
        found = _odd(scene, pairs)
        if found is not None:
            return index, *found
        if frame.is_user and made_in_place(frame, torch.device("cpu")) is not None:
            return None
    return None


def _met_by(scene: Scene, stray: torch.Tensor) -> tuple[int, Pair, list[Pair]] | None:
    """The user's innermost frame, and what it mentions of a tensor: itself, else what goes back to the same place."""
    for index, frame in scene.user_frames[:1]:
        held = scene.mentioned(frame)
        near = [pair for pair in held if device_of(pair[1]) == device_of(stray) and scene.is_decided_alike(pair[1])]
        exact = [pair for pair in near if pair[1] is stray]
        unnamed = (anonymous(scene.match, str(device_of(stray))), stray)
        others = [pair for pair in held if device_of(pair[1]) == scene.expected]
        return index, next(iter(exact or near), unnamed), others
    return None


def _odd(scene: Scene, pairs: list[Pair]) -> tuple[Pair, list[Pair]] | None:
    named = scene.named_devices
    placed = [(pair, device_of(pair[1])) for pair in pairs]
    devices = {device for _, device in placed}
    if len(devices) < 2 or (named and not named <= devices and None not in named):
        return None
    expected = scene.expected if scene.expected in devices else next(d for d in devices if d.type != "cpu")
    wrong = [pair for pair, device in placed if device != expected and (not named or device in named)]
    culprits = [pair for pair in wrong if dims(pair[1])] or wrong
    right = [pair for pair, device in placed if device == expected]
    return (culprits[0], right) if culprits else None


def _unmet(scene: Scene) -> Culprit:
    """No frame shows both: the expression makes the culprit itself, or mentions it alone."""
    wrong = scene.wrong or torch.device("cpu")
    for index, frame in scene.user_frames:
        made = scene.search(None, wrong).made_here(index)
        if made is not None:
            return scene.culprit(made, None, device=wrong)
        for tree in (frame.failing(), frame.statement()):
            mentioned = sorted(mentions(tree, frame), key=lambda mention: is_module(mention.value))
            held = [pair for m in mentioned for pair in m.tensors() if device_of(pair[1]) == wrong]
            for name, tensor in [pair for pair in held if dims(pair[1])] or held:
                named = scene.search(tensor, wrong).name(index) or Named(name, None, "local")
                return scene.culprit(named, tensor)
    given = Named(anonymous(scene.match, str(wrong)), None, "local")
    return scene.culprit(given, None, device=wrong)


def _inside_engine(scene: Scene) -> bool:
    """Whether torch's own backward failed, with no line of the user's running in it."""
    names = [frame.code.co_name for frame in scene.frames]
    if ENGINE not in names:
        return False
    inner = scene.frames[len(names) - names[::-1].index(ENGINE) :]
    return not any(frame.is_user for frame in inner)


def _gradient(scene: Scene) -> Culprit:
    """A gradient on the wrong device: handed in by the user's line, or returned by a backward or a hook."""
    match = scene.match
    given = _handed_in(scene) if is_handed_in(match) else None
    if given is not None:
        return given
    summed = _summed(scene) if is_torchs(match.node) else None
    if summed is not None:
        return summed
    blamed = blame_backward(match, scene.frames, scene.root)
    if blamed is not None:
        return _blamed(scene, *blamed)
    if match.message.id == INVALID_GRADIENT:
        used = forward_line(match.node, scene.frames) or scene.used
        return blamed_by_message(match, blame_node(match), used, scene.operators())
    wrong = scene.wrong or torch.device("cpu")
    culprit = Named(anonymous(match, str(wrong)), None, "local")
    return scene.culprit(culprit, None, device=wrong)


def _summed(scene: Scene) -> Culprit | None:
    """Find the result that the user calls backward on, where it is elsewhere: a running sum."""
    for index, frame in scene.user_frames[:1]:
        for name, tensor in scene.mentioned(frame):
            if device_of(tensor) != scene.wrong or read(tensor, "grad_fn") is None:
                continue
            named = scene.search(tensor, scene.wrong).name(index) or Named(name, None, "local")
            blame = blame_node(scene.match)
            used = forward_line(scene.match.node, scene.frames)
            what = f"{named.name} is on {scene.wrong}, what it was made of is on {scene.expected}"
            default = ("", "") if scene.match.message.cause else (blame.why, blame.fix)
            return scene.culprit(named, tensor, what=what, used=used, default=default)
    return None


def _handed_in(scene: Scene) -> Culprit | None:
    """``loss.backward(gradient)``, ``parameter.grad = gradient``."""
    wrong = next((d for d in map(scene.device, scene.match.devices) if d != scene.expected), None)
    for index, frame in scene.user_frames[:1]:
        held = [
            pair
            for pair in scene.mentioned(frame)
            if device_of(pair[1]) == wrong and not read(pair[1], "requires_grad")
        ]
        search = scene.search(held[0][1] if held else None, wrong)
        named = (search.name(index) or Named(held[0][0], None, "local")) if held else search.made_here(index)
        if named is not None:
            what = f"{named.name} is on {wrong}, what it is the gradient of is on {scene.expected}"
            tensor = held[0][1] if held else None
            default = (GIVEN_WHY, "" if scene.match.message.cause else GIVEN_FIX)
            return scene.culprit(named, tensor, what=what, device=wrong, default=default)
    return None


def _blamed(scene: Scene, named: Named, used: Origin | None) -> Culprit:
    devices = [device for device in scene.match.devices if device != scene.match.expected]
    device, expected = (devices or ["cpu"])[0], scene.match.expected or scene.expected or ""
    what = ""
    if expected:
        what = f"{named.name} returned a gradient on {device}, the gradient belongs on {expected}"
    culprit = scene.culprit(named, None, rule="gradient-device", device=device, stated=str(expected), what=what)
    # where no forward was recorded, the line that failed is torch's
    culprit = replace(culprit, used=used, writing=None)
    if named.kind == "backward":
        return replace(culprit, why=RULES["gradient-device"].why, fix=BACKWARD_FIX)
    return replace(culprit, why=scene.match.message.cause)


def blamed_by_message(match: Match, blame: Blame, used: Origin | None, operators: tuple[Operator, ...] = ()) -> Culprit:
    """Write down what a gradient error says by itself."""
    return Culprit(
        match.message.rule,
        blame.name,
        "",
        blame.device,
        stated=blame.expected,
        used=used,
        operators=operators,
        what=blame.what,
        why=blame.why,
        fix=blame.fix,
    )


def anonymous(match: Match, device: str) -> str:
    """Call a tensor by what the message says of it, where only that and its device are known."""
    if match.node:
        return match.node
    if not match.argument:
        return "a tensor"
    name = f"argument {match.argument}"
    # a message may say cuda of what is on cuda:0
    is_elsewhere = match.own and not f"{device}:".startswith(f"{match.own}:")
    return f"a tensor beside {name}" if is_elsewhere else name
