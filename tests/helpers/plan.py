"""The plan of the package: its rooms in their order, and what each file imports.

``python -m tests.helpers.plan`` prints the picture that stands in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import importlib
from graphlib import TopologicalSorter
from pathlib import Path

import lightning_devcheck

PACKAGE = Path(lightning_devcheck.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
# a room imports only what stands to its left
ROOMS = "_version _compat _report _source _witness _simulate _observe _judge _explain _metric _check _fix _run"
ORDER = tuple(ROOMS.split())
TOP = ("__init__", "__main__")  # what users import and run: it may import every room


def dotted(path: Path) -> str:
    """Name a file below the package, ``_report.records``; a folder's ``__init__`` by its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


NAMES = frozenset(map(dotted, MODULES))


def room_of(name: str) -> str:
    """Name the room that a file is in."""
    return name.partition(".")[0]


def imported(path: Path) -> set[str]:
    """List every module that a file imports, also inside functions, outside ``if TYPE_CHECKING``."""
    names: set[str] = set()
    rest: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        rest += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def arrows() -> dict[str, set[str]]:
    """List what each file of the package imports of the package."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        files = set()
        for name in imported(path):
            package, _, inside = name.partition(".")
            if package == "lightning_devcheck":
                files.add(inside if inside in NAMES else inside.rpartition(".")[0])
        found[dotted(path)] = files & NAMES
    return found


def upward() -> list[str]:
    """List the imports that go to the right: of a room that does not stand to the left of the importing one."""
    wrong = []
    for name, targets in arrows().items():
        room = room_of(name)
        if room in TOP:
            continue
        left = ORDER[: ORDER.index(room)]
        wrong += [f"{name} imports {target}" for target in sorted(targets) if room_of(target) not in (*left, room)]
    return wrong


def folder_of(name: str) -> str:
    """Name the innermost folder that a file is in, or the file itself where that is a room."""
    parent = name.rpartition(".")[0]
    return name if parent in ("", room_of(name)) else parent


def sort_files() -> list[str]:
    """Sort the files, and the folders inside a room, so that each comes after what it imports.

    Raises:
        graphlib.CycleError: If some import each other in a circle; it names them.
    """
    files = arrows()
    folders: dict[str, set[str]] = {}
    for name, targets in files.items():
        folder = folder_of(name)
        folders.setdefault(folder, set()).update(set(map(folder_of, targets)) - {folder})
    return [*TopologicalSorter(files).static_order(), *TopologicalSorter(folders).static_order()]


def picture() -> str:
    """Draw the rooms in their order, with what is in each and which rooms it imports."""
    by_room: dict[str, set[str]] = {room: set() for room in ORDER}
    for name, targets in arrows().items():
        room = room_of(name)
        if room in by_room:
            by_room[room] |= {room_of(target) for target in targets} - {room}
    lines = []
    for room in ORDER:
        if room not in map(room_of, NAMES):
            continue
        text = importlib.import_module(f"lightning_devcheck.{room}").__doc__ or ""
        job = text.strip().split("\n")[0].rstrip(".")
        lines.append(f"{room:11}{job}")
        if by_room[room]:
            used = " ".join(target for target in ORDER if target in by_room[room])
            lines.append(f"{'':11}  <- {used}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(picture())
