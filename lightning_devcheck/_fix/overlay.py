"""Edited sources in memory: whoever reads a file through Python's own doors sees the edited one.

NOTE [The doors]
Imports, ``python -m``, ``runpy`` and spawned processes read a source with ``io.open_code``;
`linecache`, and with it `inspect` and tracebacks, with ``tokenize.open``. A loader that cannot tell
how old a file is neither reads nor writes compiled code of it, so none is stale.
"""

from __future__ import annotations

import _io
import hashlib
import io
import json
import os
import tokenize
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from multiprocessing import util
from pathlib import Path
from typing import Any

from lightning_devcheck._source.files import is_installed

LISTING = "overlay.json"
START = "from lightning_devcheck._fix.overlay import start; start({folder!r}); "
# what `multiprocessing` starts that reads the user's files
STARTED = ("multiprocessing.spawn", "multiprocessing.forkserver")

Change = tuple[Any, str, Any]


def lay_over(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Have the processes of a run see other contents of some files.

    Args:
        folder: The folder of the run.
        files: What the files are to hold.
    """
    listing = {}
    for number, (path, data) in enumerate(files.items()):
        name = f"overlay-{number}"
        (folder / name).write_bytes(data)
        listing[str(path)] = name
    (folder / LISTING).write_text(json.dumps(listing), encoding="utf-8")


def read_ran(folder: Path) -> dict[str, set[str]]:
    """What each file held when a process of a run read it, as digests; by its real path."""
    found: dict[str, set[str]] = {}
    for path in folder.glob("ran-*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, digest = json.loads(line)
            found.setdefault(name, set()).add(digest)
    return found


def digest_of(data: bytes) -> str:
    """What tells contents apart."""
    return hashlib.sha256(data).hexdigest()


class Overlay:
    """What the files of the user's hold for the processes of a run.

    Args:
        folder: The folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: set[str] = set()
        listing = json.loads((folder / LISTING).read_text(encoding="utf-8"))
        self._files = {path: (folder / name).read_bytes() for path, name in listing.items()}

    def covers(self, path: Any) -> bool:
        """Whether a file is the user's own source."""
        name = os.path.realpath(path)
        return not name.endswith(".pyc") and not is_installed(name)

    def read(self, path: Any) -> bytes:
        """Read a file of the user's, and write down what it held.

        Raises:
            OSError: If there is no such file.
        """
        name = os.path.realpath(path)
        data = self._files.get(name)
        if data is None:
            data = Path(name).read_bytes()
        line = json.dumps([name, digest_of(data)])
        if line in self._told:
            return data
        self._told.add(line)
        with (self._folder / f"ran-{os.getpid()}").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return data

    def text(self, path: Any) -> io.TextIOWrapper | None:
        """Open an edited file as text; None for a file that is not edited."""
        name = os.path.realpath(path)
        data = self._files.get(name)
        if data is None:
            return None
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding, line_buffering=True)

    def stand_ins(self) -> Iterator[Change]:
        """What to replace: owner, attribute and stand-in. See NOTE [The doors]."""
        open_code = io.open_code
        open_text = tokenize.open
        path_stats = SourceFileLoader.path_stats
        start_process = util.spawnv_passfds

        def open_code_over(path: str) -> Any:
            if not self.covers(path):
                return open_code(path)
            return io.BytesIO(self.read(path))

        def open_text_over(filename: Any) -> Any:
            edited = self.text(filename)
            return open_text(filename) if edited is None else edited

        def no_stats(loader: SourceFileLoader, path: str) -> Any:
            if self.covers(path):
                raise OSError(f"{path} is read anew")
            return path_stats(loader, path)

        def start_over(path: Any, args: Any, fds: Any) -> Any:
            return start_process(path, self._started(args), fds)

        yield io, "open_code", open_code_over
        # the import system has a name of its own for it
        yield _io, "open_code", open_code_over
        yield tokenize, "open", open_text_over
        yield SourceFileLoader, "path_stats", no_stats
        yield util, "spawnv_passfds", start_over

    def _started(self, args: Any) -> list[Any]:
        """The command of a process that sees the same files."""
        start = START.format(folder=str(self._folder))
        command = []
        for arg in args:
            text = os.fsdecode(arg)
            is_ours = any(name in text for name in STARTED) and " import " in text
            command.append(start + text if is_ours else arg)
        return command


def start(folder: str) -> None:
    """See edited sources in a process that begins, for as long as it lives."""
    for owner, name, stand_in in Overlay(Path(folder)).stand_ins():
        setattr(owner, name, stand_in)
