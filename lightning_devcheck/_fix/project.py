"""Which files may be edited, and how they are written: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Set
from pathlib import Path

from lightning_devcheck._fix.overlay import digest_of
from lightning_devcheck._source.files import is_installed

ANYBODY = 0o222
MARKS = (".git", "pyproject.toml", "setup.cfg")


def project_of(script: Path | None) -> Path:
    """Find the folder whose files are the user's: the nearest marked one above a script.

    Args:
        script: The script; None, or an installed launcher, stands for the working directory.
    """
    folder = Path.cwd().resolve()
    real = None if script is None else script.resolve()
    if real is not None and not _is_tool(real):
        folder = real.parent
    for candidate in (folder, *folder.parents):
        marks = [candidate / mark for mark in MARKS]
        if any(mark.exists() for mark in marks):
            return candidate
    return folder


def _is_tool(script: Path) -> bool:
    """Whether a script came with a package."""
    return is_installed(str(script)) or script.parent == Path(sys.executable).parent


def refusal(path: Path, root: Path, ran: Mapping[str, Set[str]]) -> str:
    """Say why a file must not be edited; empty where it may.

    Args:
        path: Its real path.
        root: The project's folder.
        ran: What the files held that were read by the run.
    """
    if is_installed(str(path)):
        return f"{path} is installed, not the project's own"
    if not path.is_relative_to(root):
        return f"{path} is not below {root}"
    if not path.is_file():
        return f"{path} is no file"
    digests = ran.get(str(path), set())
    if not digests:
        return f"{path} was not read from the disk by the run"
    try:
        data = path.read_bytes()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if digests != {digest_of(data)}:
        return f"{path} has changed since the run"
    return ""


def write_refusal(path: Path) -> str:
    """Say why a file must not be written; empty where it may."""
    state = path.stat()
    # what nobody may write is left alone, also by those whom the system lets write anything
    if not state.st_mode & ANYBODY or not os.access(path, os.W_OK):
        return f"{path} is read-only"
    if state.st_nlink > 1:
        return f"{path} has another name (a hard link), which would keep the old text"
    return ""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file at once: whoever reads it sees the old or the new one. Mode and owner stay.

    Raises:
        OSError: If that cannot be done; nothing has changed then.
    """
    before = path.stat()
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _keep_owner(name, before)
        os.chmod(name, before.st_mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _keep_owner(name: str, before: os.stat_result) -> None:
    """Give a file to the owner and the group of another one.

    Raises:
        PermissionError: If that is not ours to do.
    """
    now = os.stat(name)
    owner = (before.st_uid, before.st_gid)
    if owner != (now.st_uid, now.st_gid):
        os.chown(name, *owner)
