"""What a run leaves to be compared: losses, random numbers, what is trained and saved."""

from __future__ import annotations

import gc
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._compat import is_transformed, state_keys
from lightning_devcheck._simulate.compat import no_dispatch
from lightning_devcheck._simulate.state import running
from lightning_devcheck._simulate.tensor.simulated import inner_of

# the modules of a script are all made by then
LOOKS = 4
# a loss of one number is compared as it is, a large one by its digest
KEPT_BYTES = 64
NO_VALUE = "none"
# a plain loop runs to its end
MAX_BACKWARDS = 10_000


class Trace:
    """Writes down each backward of a process, and what the run trains and saves.

    Args:
        folder: The folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._count = 0
        self._keys: set[str] = set()
        self._trained: Counter[str] = Counter()

    def note(self, roots: Sequence[Any], optimizers: Iterable[Any]) -> None:
        """Write down what a backward begins with."""
        if self._process != os.getpid():
            self._start()
        self._count += 1
        if self._count > MAX_BACKWARDS:
            return
        with no_dispatch(), torch.no_grad():
            line = " ".join([_random_state(), *map(_value, roots)])
        with (self._folder / f"losses-{self._name()}").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        if self._count <= LOOKS:
            self._look(optimizers)

    def _name(self) -> str:
        """Name this process: by its rank, since the number of a process tells nothing."""
        rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
        if dist.is_available() and dist.is_initialized():
            rank = str(dist.get_rank())
        return f"{rank}-{self._process}"

    def _look(self, optimizers: Iterable[Any]) -> None:
        """Write down which keys the living modules save, and what optimizers train."""
        self._keys |= set(_saved_keys())
        self._trained |= Counter(_trained(optimizers))
        data = {"keys": sorted(self._keys), "trained": dict(self._trained)}
        name = f"structure-{self._name()}"
        (self._folder / name).write_text(json.dumps(data), encoding="utf-8")


def _value(root: Any) -> str:
    """The value of a loss, byte for byte."""
    if not isinstance(root, torch.Tensor) or is_transformed(root):
        return NO_VALUE
    inner = inner_of(root).detach()
    if inner.is_meta or inner.layout is not torch.strided:
        return NO_VALUE
    flat = inner.contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes()
    text = data.hex()
    if len(data) > KEPT_BYTES:
        text = hashlib.sha256(data).hexdigest()
    dtype = str(inner.dtype).removeprefix("torch.")
    return f"{dtype}:{text}"


def _random_state() -> str:
    """Tell how far random numbers have been drawn, on the CPU and on each device."""
    drawn = hashlib.sha256()
    streams = running().streams.values()
    for generator in (torch.default_generator, *streams):
        state = inner_of(generator.get_state())
        data = state.numpy().tobytes()
        drawn.update(data)
    return drawn.hexdigest()


def _saved_keys() -> Iterator[str]:
    """The keys of each module that is no part of another one."""
    modules = list(_living_modules())
    parts: set[int] = set()
    for module in modules:
        parts.update(map(id, module.children()))
    for module in modules:
        if id(module) in parts:
            continue
        kind = type(module)
        name = f"{kind.__module__}.{kind.__qualname__}"
        for key in state_keys(module):
            yield f"{name}: {key}"


def _living_modules() -> Iterator[torch.nn.Module]:
    for thing in gc.get_objects():
        # asking the object itself may run code of the user's
        if not issubclass(type(thing), torch.nn.Module):
            continue
        if "_modules" in vars(thing):  # it has begun to exist
            yield thing


def _trained(optimizers: Iterable[Any]) -> Iterator[str]:
    """The shape of each parameter that an optimizer changes."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    continue
                shape = list(parameter.shape)
                yield f"{parameter.dtype}{shape}"


def read_losses(folder: Path) -> dict[str, list[list[str]]]:
    """Read the backwards of each process of a run, by rank."""
    found: dict[str, list[list[str]]] = {}
    paths = sorted(folder.glob("losses-*"), key=_number_of)
    for path in paths:
        rank = path.name.split("-")[1]
        text = path.read_text(encoding="utf-8")
        processes = found.setdefault(rank, [])
        processes.append(text.splitlines())
    return found


def _number_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def read_structure(folder: Path) -> tuple[frozenset[str], Counter[str]]:
    """Read what a run saves and trains, on all ranks."""
    keys: set[str] = set()
    trained: Counter[str] = Counter()
    for path in folder.glob("structure-*"):
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        keys |= set(data["keys"])
        trained |= Counter(data["trained"])
    return frozenset(keys), trained
