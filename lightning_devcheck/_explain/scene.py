"""What an exception left behind: its message, its frames, the module; and how a finding is made of them."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._explain.bindings import base_of
from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.mentions import mentions
from lightning_devcheck._explain.messages import Match
from lightning_devcheck._explain.names import Search
from lightning_devcheck._explain.nodes import operator_of
from lightning_devcheck._explain.paste import device_before, pasteable
from lightning_devcheck._explain.transfer import added_later, own_transfer
from lightning_devcheck._judge.causes import cause_of
from lightning_devcheck._observe.devices import device_of, normalize, to_device
from lightning_devcheck._observe.inert import dtype_of, is_a, read, registered, shape_of
from lightning_devcheck._observe.module_tree import ModuleTree
from lightning_devcheck._report.records import Finding, Operand, Operator, Origin, describe
from lightning_devcheck._report.rules import make_finding
from lightning_devcheck._source.files import is_host, is_installed, statement_at
from lightning_devcheck._source.statements import spell

Pair = tuple[str, torch.Tensor]


@dataclass
class Scene:
    """What an exception left behind.

    Attributes:
        match: Its message.
        frames: Its frames, outermost first.
        root: The module that is trained, where there is one.
        root_name: What the user calls it.
        counted: How many tensors were looked at.
    """

    match: Match
    frames: tuple[Frame, ...]
    root: torch.nn.Module | None
    root_name: str = "self"
    counted: int = 0

    @functools.cached_property
    def user_frames(self) -> list[tuple[int, Frame]]:
        """The user's frames with their positions, innermost first."""
        return [(index, frame) for index, frame in enumerate(self.frames) if frame.is_user][::-1]

    @functools.cached_property
    def used(self) -> Origin | None:
        """The user's innermost line; one of another library's where there is none."""
        lines = [frame.origin for _, frame in self.user_frames]
        return next((line for line in lines if not is_installed(line.filename)), lines[0] if lines else None)

    @functools.cached_property
    def expected(self) -> torch.device | None:
        """Where things belong: where the message says, else where most parameters are."""
        if self.match.expected and self.match.message.rule != "gradient-device":
            return self.device(self.match.expected)
        named = [device for text in self.match.devices if (device := self.device(text)) is not None]
        away = [device for device in named if device.type != "cpu"]
        if len(named) > len(away) == 1:
            return away[0]  # Lightning moves the module back to the CPU when a fit fails: its parameters tell nothing
        current = self.device("cuda") if any(device.type == "cuda" for device in away) or not named else None
        counts = {d: n for d, n in self._held.items() if d.type not in ("meta", "cpu") and (d in away or not away)}
        if counts:  # of two devices with as many parameters, the one that this process has chosen
            return max(counts, key=lambda device: (counts[device], device == normalize("cuda")))
        return current if current in away or not away else None

    @functools.cached_property
    def _held(self) -> Counter[torch.device]:
        """How many parameters and buffers of the module are on each device."""
        modules = ModuleTree(self.root).modules if self.root is not None else []
        kinds = ("_parameters", "_buffers")
        return Counter(device_of(t) for m in modules for kind in kinds for t in registered(m, kind).values())

    @functools.cached_property
    def _seen(self) -> Counter[torch.device]:
        """How many tensors on each device the failing expressions mention."""
        frames = [frame for frame in self.frames if not is_own(frame)]
        found = (t for frame in frames for m in mentions(frame.failing(), frame) for _, t in m.tensors())
        return Counter(map(device_of, found))

    def device(self, text: str) -> torch.device | None:
        """The device that a message names; ``cuda`` alone is the one that was seen."""
        kind, _, index = text.partition(":")
        if not kind or index or kind == "cpu":
            return to_device(text)
        if kind == "meta":  # what stands for a simulated device in messages from inside torch
            seen = [device for device, _ in self._seen.most_common() if device.type in ("meta", "cuda")]
            return seen[0] if seen else to_device(text)
        seen = [device for held in (self._seen, self._held) for device, _ in held.most_common() if device.type == kind]
        return seen[0] if seen else to_device(text)

    @functools.cached_property
    def named_devices(self) -> set[torch.device | None]:
        """The devices that the message names, where it names two."""
        return {self.device(text) for text in self.match.devices} if len(set(self.match.devices)) > 1 else set()

    @functools.cached_property
    def wrong(self) -> torch.device | None:
        """The device that the message names and that is not the expected one."""
        return next((d for d in map(self.device, self.match.devices) if d is not None and d != self.expected), None)

    def search(self, wanted: Any, device: torch.device | None) -> Search:
        """A search for the name and history of a tensor."""
        return Search(self.frames, self.root, wanted, device, self.expected, self.root_name)

    def mentioned(self, frame: Frame) -> list[Pair]:
        """The tensors that the failing expression of a frame mentions."""
        return [pair for mention in mentions(frame.failing(), frame) for pair in mention.tensors()]

    def make(self, named: Named, tensor: torch.Tensor | None, others: Iterable[Pair] = (), **given: Any) -> Finding:
        """Judge a culprit.

        Args:
            named: Its name and history.
            tensor: The tensor itself, where it is at hand.
            others: What it met.
            given: Fields of the finding that are known better; ``device`` where there is no tensor.
        """
        where = device_of(tensor) if tensor is not None else given.pop("device", None) or self.wrong
        given.pop("device", None)
        rule = given.pop("rule", "") or self._rule(named, tensor, where)
        others = list(others)
        if rule == "batch-device" and named.origin is None:
            later = added_later(self.root, named.name)
            rule = "mixed-devices" if later else rule
            named = replace(named, origin=later or own_transfer(self.root))
        spread = rule == "mixed-devices" and self._is_spread(named, where)
        named = _as_assigned(named) if spread else named
        why, fix = self._moved_on(named, where, others) if spread else self._cure(rule, named, str(where))
        unknown = "device" if rule == "collective-device" else "the model's device"
        fields = {
            "severity": "error",
            "shape": None if tensor is None else shape_of(tensor),
            "dtype": None if tensor is None else dtype_of(tensor),
            "expected": self.expected or next((str(device_of(t)) for _, t in others), unknown),
            "origin": named.origin,
            "used": self.used,
            "operators": self.operators(),
            "others": tuple(Operand(n, str(device_of(t)), _detail(t)) for n, t in _few(others, named.name)),
            "why": why,
            "fix": fix,
        }
        known = {key: value for key, value in given.items() if value}
        return make_finding(rule, name=named.name, device=where or "another device", **{**fields, **known})

    def _moved_on(self, named: Named, where: torch.device | None, others: list[Pair]) -> tuple[str, str]:
        """Why and fix for what a part of a model that is spread over devices returned."""
        return (
            f"The model is spread over {where} and {self.expected}: what a part returns moves on by hand.",
            f"{named.name}.to({others[0][0] if others else 'other'}.device), where it meets the others",
        )

    def _cure(self, rule: str, named: Named, device: str) -> tuple[str, str]:
        """Why and fix, in words that fit the user's code."""
        why, fix = self.words(rule, named, device)
        frames = [frame for _, frame in self.user_frames]
        plain = frames and not any(is_host(frame.filename) for frame in self.frames)
        if rule != "parameter-device" or self.match.message.rule == rule or not plain:
            return why, pasteable(fix, named, frames, self.expected)
        known = device_before(frames[0], self.used, self.expected) if self.used else ""
        return (
            "Where no Trainer moves a module, the program has to.",
            f"{base_of(named.name)}.to({known or 'device'})",
        )

    def words(self, rule: str, named: Named, device: str) -> tuple[str, str]:
        """Why and fix: by the line that made it, else by the message."""
        word = {"module": "unregistered-module", "metric": "unregistered-metric"}.get(named.kind, rule)
        if rule == "unregistered-parameter":
            word = rule
        owner, expected = type(self.root) if self.root is not None else None, str(self.expected or "")
        why, fix = cause_of(word, named.name, named.origin, self.used, device, expected, owner)
        return why or self.match.message.cause, fix or self.match.message.fix

    def operators(self) -> tuple[Operator, ...]:
        """Torch's operator that the message names."""
        name = self.match.operator or operator_of(self.match.node)
        return (Operator(name),) if name else ()

    def _is_spread(self, named: Named, where: torch.device | None) -> bool:
        """Whether one process trains parts of the model on both devices, and this is what one of them computed."""
        if _as_assigned(named).kind not in ("local", "call") or (dist.is_available() and dist.is_initialized()):
            return False
        modules = ModuleTree(self.root).modules if self.root is not None else []
        held = [p for m in modules for p in registered(m, "_parameters").values() if read(p, "requires_grad")]
        here, there = where, self.expected
        siblings = here is not None and there is not None and here.type == there.type and here != there
        return siblings and {here, there} <= {device_of(p) for p in held}

    def _rule(self, named: Named, tensor: torch.Tensor | None, where: torch.device | None) -> str:
        """The rule that says most about where the culprit is kept."""
        default = self.match.message.rule
        known = tensor is not None and named.kind in ("local", "global", "batch")
        if default == "metric-device" and (known or named.kind == "call"):
            default = "mixed-devices"  # an input of the metric, not its state
        if default != "mixed-devices":
            return default
        here = self.expected
        if where is not None and here is not None and where.type == here.type and where.index != here.index:
            return "mixed-devices" if self._is_spread(named, where) else "wrong-rank-device"
        kinds = {"metric": "metric-device", "batch": "batch-device", "registered": "parameter-device"}
        if named.kind in ("attribute", "module") and tensor is not None and is_a(tensor, torch.nn.Parameter):
            return "unregistered-parameter"
        return kinds.get(named.kind, default)


def _as_assigned(named: Named) -> Named:
    """What a line assigns, where a culprit is called by the module that computed it."""
    made = statement_at(named.origin) if named.kind == "registered" else None
    if isinstance(made, ast.Assign) and isinstance(made.value, ast.Call) and spell(made.value.func) == named.name:
        return replace(named, name=spell(made.targets[0]), kind="local")
    return named


def is_own(frame: Frame) -> bool:
    """Whether a frame is the simulation's."""
    return "lightning_devcheck" in frame.filename and not frame.is_user


def _detail(tensor: torch.Tensor) -> str:
    return describe(dtype_of(tensor), shape_of(tensor))


def _few(pairs: Iterable[Pair], name: str) -> list[Pair]:
    """The first three others, each name once."""
    unique: dict[str, Any] = {text: tensor for text, tensor in pairs if text != name}
    return list(unique.items())[:3]
