"""Source lines: which line of the user's made a tensor, which one used it."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import sysconfig
import types
from collections.abc import Iterable, Iterator

from lightning_devcheck._records import Origin

FRAMEWORKS = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities", "torchmetrics")
FRAMEWORKS += ("lightning_devcheck",)
REGISTRARS = ("register_buffer", "register_parameter", "add_module", "register_module", "add_state")
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


def is_host(filename: str) -> bool:
    """Whether a file is Lightning's."""
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
    hosts = [index for index, match in enumerate(found) if is_host(match["filename"])]
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
    """The line of a class or its bases that gives ``self.attribute`` its value.

    The last one that assigns more than a constant counts: ``self.layer = None`` in ``__init__`` is a placeholder.
    ``register_buffer`` and its like count where nothing else assigns the attribute.
    """
    for cls in owner.__mro__:
        source = class_source(cls)
        found = _assignments(*source).get(attribute) if source else None
        if source and found:
            return line_of(source[0], *found)
    return None


def class_source(cls: type) -> tuple[str, str, int] | None:
    """File, name and a line of a class of the user's; None for the classes of frameworks and of C extensions."""
    for member in list(vars(cls).values()):
        function = member.__func__ if type(member) in (staticmethod, classmethod) else member
        if type(function) is types.FunctionType and not is_framework(function.__code__.co_filename):
            return function.__code__.co_filename, cls.__name__, function.__code__.co_firstlineno
    return None


@functools.lru_cache(maxsize=256)
def _assignments(filename: str, name: str, lineno: int) -> dict[str, tuple[int, str]]:
    """The line that gives each attribute of a class its value, and the method it is in."""
    weak: dict[str, tuple[int, str]] = {}
    strong: dict[str, tuple[int, str]] = {}
    method = ""
    for node in class_body(filename, name, lineno):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            method = node.name
        for attribute in _assigned_attributes(node):
            constant = isinstance(getattr(node, "value", None), ast.Constant)
            partial = isinstance(node, (ast.Expr, ast.AugAssign)) or any(map(_is_item, _targets(node)))
            if partial or constant:
                weak.setdefault(attribute, (node.lineno, method))
            else:
                strong[attribute] = (node.lineno, method)
    return {**weak, **strong}


def _assigned_attributes(node: ast.stmt) -> Iterator[str]:
    """Attributes of ``self`` that a statement assigns or registers."""
    for target in _targets(node):
        yield from _self_attributes(target)
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
        first = call.args[0]
        if call.func.attr in REGISTRARS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


def method_line(owner: type, method: str) -> Origin | None:
    """The last ``return`` of a method in the source of a class or its bases, else its ``def``."""
    for cls in owner.__mro__:
        source = class_source(cls) if method in vars(cls) else None
        for node in class_body(*source) if source else ():
            if isinstance(node, ast.FunctionDef) and node.name == method:
                returns = [inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Return)]
                return line_of(source[0] if source else "", (returns or [node.lineno])[-1], method)
    return None


def class_body(filename: str, name: str, lineno: int) -> Iterator[ast.stmt]:
    """The statements of the class of that name that holds a line, in the order of the source."""
    tree = parse(filename)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == name and node.lineno <= lineno <= (node.end_lineno or 0):
            found = [inner for inner in ast.walk(node) if isinstance(inner, ast.stmt)]
            yield from sorted(found, key=lambda inner: inner.lineno)
            return


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []


def _is_item(target: ast.expr) -> bool:
    return isinstance(target, ast.Subscript)


def _self_attributes(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _self_attributes(element)
        return
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"):
        yield target.attr
