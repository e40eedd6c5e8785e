"""Source lines: which line of the user's made a tensor, which one used it."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import Any

from lightning_devcheck._records import Origin

FRAMEWORKS = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "lightning_devcheck")
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_TRACE_LINE = re.compile(r'\s*File "(?P<filename>.+)", line (?P<lineno>\d+), in (?P<function>.+)\n(?:\s*(?P<line>.*))?')


@functools.cache
def _framework_folders() -> tuple[str, ...]:
    paths = {path for key in ("stdlib", "platstdlib") if (path := sysconfig.get_path(key))}
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    roots = {own, *(sysconfig.get_path(key) for key in ("purelib", "platlib"))}
    return tuple(os.path.join(root, name) + os.sep for root in roots for name in FRAMEWORKS) + tuple(
        path + os.sep for path in paths
    )


def _package(filename: str) -> str:
    """The top package of an installed file; empty for a file that is not installed."""
    return filename.rpartition(_INSTALLED)[2].partition(os.sep)[0] if _INSTALLED in filename else ""


def _is_host(filename: str) -> bool:
    return _package(filename) in ("lightning", "pytorch_lightning", "lightning_fabric")


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
    hosts = [index for index, match in enumerate(found) if _is_host(match["filename"])]
    found = found[hosts[0] :] if hosts else found  # what comes before is the script that called trainer.fit
    origins = [
        Origin(match["filename"], int(match["lineno"]), (match["line"] or "").strip(), match["function"])
        for match in reversed(found)
        if not is_framework(match["filename"])
    ]
    return tuple(sorted(origins, key=lambda origin: bool(_package(origin.filename))))


def line_of(filename: str, lineno: int, function: str = "") -> Origin:
    """A line with its text, which is empty where no source is at hand."""
    return Origin(filename, lineno, linecache.getline(filename, lineno).strip(), function)


@functools.lru_cache(maxsize=64)
def parse(filename: str) -> ast.Module | None:
    """The syntax tree of a file that Python can show lines of, or None."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return None  # the file changed, is no Python, or is nested beyond reason


def attribute_origin(owner: type, attribute: str) -> Origin | None:
    """The first ``self.attribute = …`` in the source of a class or its bases."""
    for cls in owner.__mro__:
        module = sys.modules.get(cls.__module__)
        filename = getattr(module, "__file__", None)
        if filename is None or is_framework(filename):
            continue
        for node in _class_body(filename, cls.__qualname__):
            if any(_is_self_attribute(target, attribute) for target in _targets(node)):
                return line_of(filename, node.lineno)
    return None


def method_line(owner: type, method: str) -> Origin | None:
    """The last ``return`` of a method in the source of a class or its bases, else its ``def``."""
    for cls in owner.__mro__:
        filename = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if method not in vars(cls) or filename is None or is_framework(filename):
            continue
        for node in _class_body(filename, cls.__qualname__):
            if isinstance(node, ast.FunctionDef) and node.name == method:
                returns = [inner for inner in ast.walk(node) if isinstance(inner, ast.Return)]
                return line_of(filename, (returns or [node])[-1].lineno, method)
    return None


def _class_body(filename: str, qualname: str) -> Iterator[ast.stmt]:
    """The statements of a class, by its name; the last part of ``outer.<locals>.Name`` decides."""
    name = qualname.rpartition(".")[2]
    tree = parse(filename)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.stmt))


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []


def _is_self_attribute(target: ast.expr, attribute: str) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_is_self_attribute(item, attribute) for item in target.elts)
    while isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and target.attr == attribute and _is_name(target.value, "self")


def _is_name(node: Any, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
