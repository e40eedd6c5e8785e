"""The user's source: whose a file is, and which statement stands at a place."""

from __future__ import annotations

import ast
import copy
import functools
import linecache
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.statements import parse_text, spell, targets_of
from lightning_devcheck._source.torch_names import mark_torch_calls

FRAMEWORKS = (
    *("torch", "torchmetrics", "lightning_devcheck"),
    *("lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities"),
)
METRICS = "torchmetrics"
MAX_TREES = 64

Point = tuple[int, int]  # line and column
Position = tuple[int | None, int | None, int | None, int | None]  # first line, last line, first column, last column
Node = ast.stmt | ast.expr | ast.pattern
UNKNOWN: Position = (None, None, None, None)
# by file, with the lines that were read
_trees: dict[str, tuple[list[str], ast.Module | None]] = {}
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_TRACE_LINE = re.compile(r'\s*File "(?P<filename>.+)", line (?P<lineno>\d+), in (?P<function>.+)\n(?:\s*(?P<line>.*))?')


@functools.cache
def _framework_folders() -> tuple[str, ...]:
    paths = {path for key in ("stdlib", "platstdlib") if (path := sysconfig.get_path(key))}
    own = str(Path(__file__).parents[2])
    roots = {own, *(sysconfig.get_path(key) for key in ("purelib", "platlib"))}
    return tuple(os.path.join(root, name) + os.sep for root in roots for name in FRAMEWORKS) + tuple(
        path + os.sep for path in paths
    )


def _package(filename: str) -> str:
    """The top package of an installed file; empty for a file that is not installed."""
    return filename.rpartition(_INSTALLED)[2].partition(os.sep)[0] if _INSTALLED in filename else ""


def is_host(filename: str) -> bool:
    """Whether a file is Lightning's."""
    return _package(filename) in ("lightning", "pytorch_lightning", "lightning_fabric")


def library_of(filename: str) -> str:
    """``lightning`` or ``torchmetrics`` for a file of theirs; empty for every other one."""
    return "lightning" if is_host(filename) else METRICS if _package(filename) == METRICS else ""


def is_installed(filename: str) -> bool:
    """Whether a file is a framework's or another installed library's, not the user's own."""
    return is_framework(filename) or bool(_package(filename))


@functools.cache
def is_framework(filename: str) -> bool:
    """Whether a file is torch's, Lightning's, torchmetrics', ours or Python's own."""
    if filename.startswith("<frozen"):
        return True
    if _package(filename):
        return _package(filename) in FRAMEWORKS
    return filename.startswith(_framework_folders())


def user_lines(trace: Iterable[str]) -> tuple[Origin, ...]:
    """The user's lines of a formatted stack, innermost first; libraries that are not the user's come last.

    Args:
        trace: Frames as `traceback.format_stack` writes them, outermost first.
    """
    found = [match for frame in trace if (match := _TRACE_LINE.match(frame))]
    hosts = [index for index, match in enumerate(found) if is_host(match["filename"])]
    found = found[hosts[0] :] if hosts else found  # what comes before is the script that called trainer.fit
    origins = [
        Origin(match["filename"], int(match["lineno"]), (match["line"] or "").strip(), match["function"])
        for match in reversed(found)
        if not is_framework(match["filename"])
    ]
    return tuple(sorted(origins, key=lambda origin: bool(_package(origin.filename))))


def line_of(filename: str, lineno: int, function: str = "", position: Position = UNKNOWN) -> Origin:
    """A line with its text, which is empty where no source is at hand."""
    line = linecache.getline(filename, lineno).strip()
    return Origin(filename, lineno, line, function, *position[1:])


def origin_at(filename: str, node: Node, function: str = "") -> Origin:
    """The place of a statement or expression."""
    return line_of(filename, node.lineno, function, position_of(node))


def position_of(node: Node) -> Position:
    """First line, last line, first column and last column of a statement or expression."""
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def parse(filename: str) -> ast.Module | None:
    """The syntax tree of a file that Python can show lines of, or None."""
    lines = linecache.getlines(filename)
    known = _trees.get(filename)
    if known is not None and (known[0] is lines or known[0] == lines):
        return known[1]
    if len(_trees) >= MAX_TREES:
        _trees.clear()
    tree = parse_text("".join(lines))
    if tree is not None:
        mark_torch_calls(tree, _namespace(filename))
    _trees[filename] = lines, tree
    return tree


def _namespace(filename: str) -> dict[str, object]:
    """The variables of the module of a file; those of the program for what is in no module, as a notebook's cell."""
    for module in list(sys.modules.values()):
        state = vars(module) if type(module) is types.ModuleType else {}
        if state.get("__file__") == filename:
            return state
    return vars(sys.modules["__main__"])


def statement_at(place: Origin | None, name: str = "") -> ast.stmt | None:
    """The statement at a place, of a compound one the head; None where the file is not at hand, or has changed.

    Args:
        place: The place.
        name: Where no column is known and several statements are on the line, the one that assigns this name counts.
    """
    if place is None or linecache.getline(place.filename, place.lineno).strip() != place.line:
        return None
    tree = parse(place.filename)
    found = None if tree is None else innermost(tree, (place.lineno, place.column), name)
    return None if found is None else head_of(found)


def innermost(tree: ast.Module, point: tuple[int, int | None], name: str = "") -> ast.stmt | None:
    """The innermost statement around a point; of several on its line that assigns a name, else the first simple one."""
    around = statements_around(tree, point)
    assigning = (node for node in around if name in map(spell, targets_of(node)))
    simple = (node for node in around if not isinstance(node, ast.Match) and not hasattr(node, "body"))
    chosen = next(assigning, None) or next(simple, None)
    return chosen or (around[-1] if around else None)


def statements_around(tree: ast.AST, point: tuple[int, int | None]) -> list[ast.stmt]:
    """The statements around a point of a file, outermost first; where no column is known, all that are on its line."""
    line, column = point
    found: list[ast.stmt] = []
    blocks = [tree]
    for block in blocks:  # grows on the way
        for node in ast.iter_child_nodes(block):
            if isinstance(node, (ast.ExceptHandler, ast.match_case)):
                blocks.append(node)
                continue
            on_line = isinstance(node, ast.stmt) and start_of(node)[0] <= line <= end_of(node)[0]
            if isinstance(node, ast.stmt) and on_line and (column is None or contains(node, (line, column))):
                found.append(node)
                blocks.append(node)
    return found


def contains(node: Node, point: Point) -> bool:
    """Whether a point is in a statement or expression."""
    return start_of(node) <= point < end_of(node)


def start_of(node: Node) -> Point:
    """Where a statement or expression begins, with its decorators."""
    first = min([node, *getattr(node, "decorator_list", ())], key=lambda part: part.lineno)
    return first.lineno, first.col_offset


def end_of(node: Node) -> Point:
    """Where a statement or expression ends."""
    return node.end_lineno or 0, node.end_col_offset or 0


def head_of(statement: ast.stmt) -> ast.stmt:
    """A compound statement without what it is the head of; any other as it is."""
    if isinstance(statement, ast.Match):
        return ast.copy_location(ast.Match(statement.subject, []), statement)
    if not hasattr(statement, "body"):
        return statement
    head = copy.copy(statement)
    for block in ("orelse", "handlers", "finalbody"):
        if hasattr(head, block):
            setattr(head, block, [])
    head.body = [ast.Pass()]
    return head


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """A statement and what is in it, without the statements of its body, nearest first."""
    nodes = [statement]
    for node in nodes:  # grows on the way
        yield node
        nodes += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
