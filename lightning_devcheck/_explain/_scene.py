"""What an exception left behind, searched for the tensor that is on the wrong device."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from lightning_devcheck._causes import cause_of
from lightning_devcheck._devices import device_of, normalize
from lightning_devcheck._explain._backward import blame_backward
from lightning_devcheck._explain._frames import Frame, evaluate, mentions
from lightning_devcheck._explain._messages import Match
from lightning_devcheck._explain._names import Named, Search, ast_base, locate, made_in_place
from lightning_devcheck._records import Finding, Operand, Operator, Origin, describe
from lightning_devcheck._rules import make_finding
from lightning_devcheck._statements import parse_line
from lightning_devcheck._values import is_a, tensors_of

Pair = tuple[str, torch.Tensor]


@dataclasses.dataclass
class Scene:
    """What an exception left behind.

    Attributes:
        match: Its message.
        frames: Its frames, outermost first.
        root: The module that is trained, where there is one.
        counted: How many tensors were looked at.
    """

    match: Match
    frames: tuple[Frame, ...]
    root: torch.nn.Module | None
    counted: int = 0

    def finding(self) -> Finding:
        """Name the culprit and judge it."""
        self.expected = self._expected_device()
        if self.match.message.id == "generator-device":
            return self._generator()
        if self.match.message.rule == "parameter-device" and self.root is not None:
            return self._parameter()
        if self.match.message.id == "set-data" and (assigned := self._assigned_data()) is not None:
            return assigned
        if self.match.message.rule == "gradient-device" or self._inside_engine():
            blamed = blame_backward(self.match, self.frames, self.root)
            if blamed is not None:
                return self._gradient(*blamed)
        met = self._met()
        if met is None:
            return self._unmet()
        index, culprit, others = met
        others = self._others() or others
        search = Search(self.frames, self.root, culprit[1], device_of(culprit[1]), self.expected)
        return self._finding(search.name(index) or Named(culprit[0], None, "local"), culprit[1], others)

    def _others(self) -> list[Pair]:
        """What the user's own line mentions that is where it should be."""
        frame = next((frame for frame in reversed(self.frames) if frame.is_user), None)
        if frame is None:
            return []
        held = [pair for m in mentions(frame.failing(), frame) for pair in m.tensors()]
        return [pair for pair in held if device_of(pair[1]) == self.expected]

    def _expected_device(self) -> torch.device | None:
        """Where things belong: where the message says, else where most parameters are."""
        if self.match.expected and self.match.message.rule != "gradient-device":
            return _device(self.match.expected)
        named = [device for text in self.match.devices if (device := _device(text)) is not None]
        away = [device for device in named if device.type != "cpu"]
        if len(named) > len(away) == 1:
            return away[0]  # Lightning moves the module back to the CPU when a fit fails: its parameters tell nothing
        held = Counter(device_of(t) for _, t in tensors_of(self.root)) if self.root is not None else Counter()
        common = [device for device, _ in held.most_common() if device in away or not away]
        if common and common[0].type != "cpu":
            return common[0]
        current = _device("cuda") if any(device.type == "cuda" for device in away) or not named else None
        return current if current in away or not away else None

    def _met(self) -> tuple[int, Pair, list[Pair]] | None:
        """The innermost frame whose failing expression mentions tensors on two devices, and the odd one there."""
        passed = False
        for index in range(len(self.frames) - 1, -1, -1):
            frame = self.frames[index]
            if not frame.is_user and (passed or "lightning_devcheck" in frame.filename):
                continue  # what a framework holds outside of the user's line did not meet in it
            passed = passed or frame.is_user
            # after a failed fit Lightning moves modules to the CPU: what they hold now was not there then
            held = sorted(mentions(frame.failing(), frame), key=lambda m: frame.is_user and _is_module(m.value))
            pairs = [pair for mention in held for pair in mention.tensors()]
            if not frame.is_user:  # torch hands arguments on by these names, which say nothing
                pairs = [pair for pair in pairs if ast_base(pair[0]) not in ("args", "kwargs")]
            self.counted += len(pairs)
            if not frame.is_user:
                pairs.sort(key=lambda pair: -pair[1].dim())  # a layer's weight says more than its bias
            found = self._odd(pairs)
            if found is not None:
                return index, *found
            if frame.is_user and made_in_place(frame, torch.device("cpu")) is not None:
                return None
        return None

    def _odd(self, pairs: list[Pair]) -> tuple[Pair, list[Pair]] | None:
        named = {_device(device) for device in self.match.devices} if len(set(self.match.devices)) > 1 else set()
        placed = [(pair, device_of(pair[1])) for pair in pairs]
        devices = {device for _, device in placed}
        if len(devices) < 2 or (named and not named <= devices and None not in named):
            return None
        expected = self.expected if self.expected in devices else next(d for d in devices if d.type != "cpu")
        wrong = [pair for pair, device in placed if device != expected and (not named or device in named)]
        culprits = [pair for pair in wrong if pair[1].dim()] or wrong
        right = [pair for pair, device in placed if device == expected]
        return (culprits[0], right) if culprits else None

    def _unmet(self) -> Finding:
        """No frame shows both: the expression makes the culprit itself, or mentions it alone."""
        wrong = next((d for d in map(_device, self.match.devices) if d is not None and d != self.expected), None)
        wrong = wrong or torch.device("cpu")
        for index in range(len(self.frames) - 1, -1, -1):
            frame = self.frames[index]
            if not frame.is_user:
                continue
            made = made_in_place(frame, wrong)
            if made is not None:
                return self._finding(made, None, [], device=wrong)
            for tree in (frame.failing(), frame.statement()):
                mentioned = sorted(mentions(tree, frame), key=lambda mention: _is_module(mention.value))
                held = [pair for m in mentioned for pair in m.tensors() if device_of(pair[1]) == wrong]
                held = [pair for pair in held if pair[1].dim()] or held
                if held and self.match.message.rule != "gradient-device":
                    search = Search(self.frames, self.root, held[0][1], wrong, self.expected)
                    return self._finding(search.name(index) or Named(held[0][0], None, "local"), held[0][1], [])
        return self._finding(Named(anonymous(self.match), None, "local"), None, [], device=wrong)

    def _inside_engine(self) -> bool:
        """Whether torch's own backward failed, with no line of the user's running in it."""
        names = [frame.code.co_name for frame in self.frames]
        if "_engine_run_backward" not in names:
            return False
        inner = self.frames[len(names) - names[::-1].index("_engine_run_backward") :]
        return not any(frame.is_user for frame in inner) and self.match.message.rule == "mixed-devices"

    def _assigned_data(self) -> Finding | None:
        """``parameter.data = tensor``: the parameter is what goes wrong, on this line."""
        frame = next((frame for frame in reversed(self.frames) if frame.is_user), None)
        for node in ast.walk(tree) if frame and (tree := frame.statement()) else ():
            if frame and isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Store):
                text, value = evaluate(node.value, frame)
                device = next((d for d in map(_device, ("cpu",)) if d != self.expected), None)
                if is_a(value, torch.Tensor):
                    found = self._finding(Named(text, frame.origin, "local"), None, [(text, value)], device=device)
                    statement = parse_line(frame.origin.line)
                    if isinstance(statement, ast.Assign):
                        copied = f"{text}.data.copy_({ast.unparse(statement.value)})"
                        return dataclasses.replace(found, fix=copied)
                    return found
        return None

    def _generator(self) -> Finding:
        wrong = next((d for d in map(_device, self.match.devices) if d != self.expected), None)
        for index in range(len(self.frames) - 1, -1, -1):
            frame = self.frames[index]
            for mention in mentions(frame.failing(), frame):
                if frame.is_user and is_a(mention.value, torch.Generator):
                    search = Search(self.frames, self.root, mention.value, wrong, self.expected)
                    named = locate(self.root, mention.value) or search.follow(index, mention.text, frame.lineno)
                    return self._finding(named, None, [], device=wrong)
        return self._unmet()

    def _parameter(self) -> Finding:
        """Distributed training refused the module: name a part that is not where most are."""
        held = list(tensors_of(self.root, "self")) if self.root is not None else []
        counts = Counter(device_of(t) for _, t in held)
        common = self.expected if self.expected in counts else next(iter(counts.most_common(1)), (None, 0))[0]
        odd = next((pair for pair in held if device_of(pair[1]) != common), None)
        if odd is None:
            return self._unmet()
        named = locate(self.root, odd[1]) or Named(odd[0], None, "registered")
        return self._finding(named, odd[1], [pair for pair in held if device_of(pair[1]) == common][:1])

    def _gradient(self, named: Named, used: Origin | None) -> Finding:
        devices = [device for device in self.match.devices if device != self.match.expected]
        why, fix = self._words("gradient-device", named, used, devices[0] if devices else "cpu")
        return make_finding(
            "gradient-device",
            name=named.name,
            device=devices[0] if devices else "cpu",
            expected=self.match.expected or self.expected or "",
            origin=named.origin,
            used=used,
            operators=self._operators(),
            why="" if named.kind == "backward" else self.match.message.cause or why,
            fix=_gradient_fix(named, fix),
        )

    def _finding(
        self, named: Named, tensor: torch.Tensor | None, others: list[Pair], device: torch.device | None = None
    ) -> Finding:
        where = device if tensor is None else device_of(tensor)
        rule = self._rule(named, tensor, where)
        used = self._used()
        why, fix = self._words(rule, named, used, str(where))
        unknown = "device" if rule == "collective-device" else "the model's device"
        lazy = tensor is None or torch.nn.parameter.is_lazy(tensor)
        return make_finding(
            rule,
            name=named.name,
            device=where or "another device",
            expected=self.expected or next((str(device_of(t)) for _, t in others), unknown),
            severity="error",
            shape=None if lazy or tensor is None else tuple(tensor.shape),
            dtype=None if tensor is None else str(tensor.dtype).removeprefix("torch."),
            origin=named.origin,
            used=used,
            operators=self._operators(),
            others=tuple(
                Operand(name, str(device_of(t)), describe(t.dtype, tuple(t.shape)))
                for name, t in _few(others, named.name)
            ),
            why=why,
            fix=fix,
        )

    def _words(self, rule: str, named: Named, used: Origin | None, device: str) -> tuple[str, str]:
        """Why and fix: by the line that made it, else by the message."""
        word = {"module": "unregistered-module", "metric": "unregistered-metric"}.get(named.kind, rule)
        if rule == "unregistered-parameter":
            word = rule
        why, fix = cause_of(word, named.name, named.origin, used, device, str(self.expected or ""))
        return why or self.match.message.cause, fix or self.match.message.fix

    def _operators(self) -> tuple[Operator, ...]:
        name = self.match.operator or self.match.node.removesuffix("Backward")
        return (Operator(name),) if name else ()

    def _used(self) -> Origin | None:
        lines = [frame.origin for frame in self.frames if frame.is_user]
        own = [line for line in lines if f"site-packages{'/'}" not in line.filename]
        return (own or lines)[-1] if lines else None

    def _rule(self, named: Named, tensor: torch.Tensor | None, where: torch.device | None) -> str:
        """The rule that says most about where the culprit is kept."""
        default = self.match.message.rule
        if default != "mixed-devices":
            return default
        here = self.expected
        if where is not None and here is not None and where.type == here.type and where.index != here.index:
            return "wrong-rank-device"
        if self._in_optimizer(tensor):
            return "optimizer-device"
        kinds = {"metric": "metric-device", "batch": "batch-device", "registered": "parameter-device"}
        if named.kind in ("attribute", "module") and tensor is not None and is_a(tensor, torch.nn.Parameter):
            return "unregistered-parameter"
        return kinds.get(named.kind, default)

    def _in_optimizer(self, tensor: torch.Tensor | None) -> bool:
        """Whether a tensor is in the state of an optimizer whose step failed."""
        for frame in self.frames:
            owner = frame.names.get("self")
            if tensor is not None and is_a(owner, torch.optim.Optimizer):
                state: Any = vars(owner).get("state")
                held = [value for value in dict.values(state) if is_a(value, dict)] if is_a(state, dict) else []
                if any(value is tensor for one in held for value in dict.values(one)):
                    return True
        return False


def _is_module(value: Any) -> bool:
    return is_a(value, torch.nn.Module)


def _gradient_fix(named: Named, fix: str) -> str:
    if named.kind == "backward":
        return (
            "return the gradient where grad_output is: torch.ones_like(grad), grad.new_zeros(shape), .to(grad.device)"
        )
    return fix


def _few(pairs: Iterable[Pair], name: str) -> list[Pair]:
    """The first three others, each name once."""
    unique: dict[str, Any] = {text: tensor for text, tensor in pairs if text != name}
    return list(unique.items())[:3]


def _device(text: str) -> torch.device | None:
    try:
        return normalize(text)
    except RuntimeError:  # a device type of another torch
        return None


def anonymous(match: Match) -> str:
    """What to call a tensor that only the message knows."""
    if match.node:
        return match.node
    return f"argument {match.argument}" if match.argument else "a tensor"
