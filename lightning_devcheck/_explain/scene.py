"""What an exception left behind: its message, its frames, the module."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.mentions import tensors_in
from lightning_devcheck._explain.messages import Match
from lightning_devcheck._explain.names import Search
from lightning_devcheck._explain.nodes import operator_of
from lightning_devcheck._explain.paste import device_before, writing_at
from lightning_devcheck._explain.transfer import added_later, own_transfer
from lightning_devcheck._judge.culprit import Culprit
from lightning_devcheck._observe.devices import device_of, normalize, to_device
from lightning_devcheck._observe.inert import dtype_of, is_a, own_tensors, read, registered, shape_of
from lightning_devcheck._observe.module_tree import ModuleTree
from lightning_devcheck._report.records import Operand, Operator, Origin, describe
from lightning_devcheck._simulate.tensor.places import decided, decided_line
from lightning_devcheck._source.files import is_host, is_installed, statement_at
from lightning_devcheck._source.queries import is_building
from lightning_devcheck._source.statements import is_move, pairs_of

Pair = tuple[str, torch.Tensor]
# where something is kept by an object that a line of a class gives it to
KEPT = ("attribute", "module", "metric", "registered")


@dataclass
class Scene:
    """What an exception left behind.

    Attributes:
        match: Its message.
        frames: Its frames, outermost first.
        root: The module that is trained, where there is one.
        root_name: What the user calls it.
        counted: How many tensors were looked at.
        stray: The tensor that is not where it should be, where somebody has seen it.
        made: The line that decided its device, where that is all that is left of it.
        belongs: Where it should be, likewise.
    """

    match: Match
    frames: tuple[Frame, ...]
    root: torch.nn.Module | None
    root_name: str = "self"
    counted: int = 0
    stray: torch.Tensor | None = None
    made: Origin | None = None
    belongs: torch.device | None = None

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
        if self.belongs is not None:
            return self.belongs
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
        return Counter(device_of(t) for module in modules for t in own_tensors(module).values())

    @functools.cached_property
    def _seen(self) -> Counter[torch.device]:
        """How many tensors on each device the failing expressions mention."""
        frames = [frame for frame in self.frames if not is_own(frame)]
        return Counter(device_of(t) for frame in frames for _, t in self.mentioned(frame))

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
        return Search(self.frames, self.root, wanted, device, self.expected, self.root_name, self.made)

    def mentioned(self, frame: Frame) -> list[Pair]:
        """The tensors that the failing expression of a frame mentions."""
        return tensors_in(frame.failing(), frame)

    def culprit(
        self,
        named: Named,
        tensor: torch.Tensor | None,
        others: Iterable[Pair] = (),
        *,
        device: torch.device | str | None = None,
        rule: str = "",
        used: Origin | None = None,
        **known: Any,
    ) -> Culprit:
        """Write down a culprit.

        Args:
            named: Its name and history.
            tensor: The tensor itself, where it is at hand.
            others: What it met.
            device: Where it is, where there is no tensor.
            rule: The rule that it breaks, where the message's is not the one.
            used: The line where it met the others, where that is not the one that failed.
            known: Further fields of `Culprit`.
        """
        message = self.match.message
        line = self.made if tensor is None else decided_line(tensor)
        if line is not None:
            named = as_decided(named, line)
        if tensor is not None:
            device = device_of(tensor)
            known["shape"] = shape_of(tensor)
            known["dtype"] = dtype_of(tensor)
            known["is_parameter"] = is_a(tensor, torch.nn.Parameter)
        made = named.origin
        if made is None and (named.kind == "batch" or message.rule == "batch-device"):
            known["later"] = added_later(self.root, named.name)
            known["transfer"] = own_transfer(self.root)
            made = known["later"] or known["transfer"]
        frames = [frame for _, frame in self.user_frames]
        return Culprit(
            rule or message.rule,
            named.name,
            named.kind,
            device or self.wrong,
            named.origin,
            self.expected,
            used=used or self.used,
            failed=self.used,
            others=tuple(Operand(n, str(device_of(t)), _detail(t)) for n, t in others),
            operators=self.operators(),
            owner=None if self.root is None else type(self.root),
            trained_on=self._trained_on,
            by_hand=self._by_hand if named.kind == "registered" else None,
            writing=writing_at(made, frames, self.expected),
            message=(message.cause, message.fix),
            **known,
        )

    def is_decided_alike(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is the stray, or its device was decided at the same place."""
        if tensor is self.stray or self.stray is None:
            return tensor is self.stray
        place = decided(self.stray)
        return bool(place) and decided(tensor) == place

    @functools.cached_property
    def _trained_on(self) -> frozenset[torch.device]:
        """Where the one process that there is has parameters that it trains."""
        if self.root is None or (dist.is_available() and dist.is_initialized()):
            return frozenset()
        held = [p for m in ModuleTree(self.root).modules for p in registered(m, "_parameters").values()]
        return frozenset(device_of(p) for p in held if read(p, "requires_grad"))

    @functools.cached_property
    def _by_hand(self) -> str | None:
        """How the program that moves the module itself writes the device; None under a Trainer."""
        frames = [frame for _, frame in self.user_frames]
        if not frames or any(is_host(frame.filename) for frame in self.frames):
            return None
        return device_before(frames[0], self.used, self.expected) if self.used else ""

    def operators(self) -> tuple[Operator, ...]:
        """Torch's operator that the message names."""
        name = self.match.operator or operator_of(self.match.node)
        return (Operator(name),) if name else ()


def is_own(frame: Frame) -> bool:
    """Whether a frame is the simulation's."""
    return "lightning_devcheck" in frame.filename and not frame.is_user


def _detail(tensor: torch.Tensor) -> str:
    return describe(dtype_of(tensor), shape_of(tensor))


def as_decided(named: Named, line: Origin) -> Named:
    """A name with the line that decided the device, where no line says more: one that keeps it, or throws a move away.

    Args:
        named: The name, and the line that was read off the source.
        line: The line that decided.
    """
    if named.kind in ("batch", "optimizer"):
        return named
    kept = statement_at(named.origin)
    is_thrown_away = isinstance(kept, ast.Expr) and is_move(kept.value)
    is_kept = named.kind in KEPT and named.origin is not None and not _says_more(line, named, named.origin)
    return named if is_kept or is_thrown_away else replace(named, origin=line)


def _says_more(line: Origin, named: Named, kept: Origin) -> bool:
    """Whether the line that decided a device says more than the one that keeps the tensor.

    It does where it gives the same attribute its value, in an object that the other line makes, and where both run in a
    step, for an attribute: what is made anew there can be made on the device.
    """
    statement = statement_at(line)
    targets = [] if statement is None else [target for target, _ in pairs_of(statement)]
    if any(isinstance(target, ast.Attribute) and named.name.endswith(f".{target.attr}") for target in targets):
        return True
    runs_in_step = line.function == kept.function != "" and not is_building(kept, None)
    return named.kind == "attribute" and runs_in_step
