"""What the user calls the tensor that a line moves or reads, and which line made it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.assignments import Binding, find_binding
from lightning_devcheck._source.files import innermost, own_nodes, parse, statement_at
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.statements import receiver_of, spell, targets_of, text_in

COPYING = ("cpu", "to", "cuda", "type_as", "numpy")
# what reads values from a device: methods, functions, and methods that lead there
READING_METHODS = {"item", "tolist", "cpu", "numpy", "nonzero", "to", "unique"}
SURE_READS = {"item", "tolist", "cpu", "numpy", "nonzero"}  # the others read in some cases only
CONVERSIONS = ("float", "int", "bool")  # read for certain; min and max do of tensors only
READING_FUNCTIONS = {"float", "int", "bool", "print", "str", "repr", "format", "round", "range", "list", "min", "max"}
PASSING_METHODS = {"detach", "clone", "float", "double", "half", "sum", "mean", "max", "min", "argmax", "abs", *COPYING}
PASSING_METHODS |= {"any", "all", "pow", "sqrt", "exp", "square", "view", "flatten", "squeeze", *READING_METHODS}
LIBRARIES = {"torch", "F", "np", "math"}


def name_move(place: Origin) -> tuple[str, Origin]:
    """Name what a line brings to another device, as typed, and give the line that made it.

    ``x = loss.cpu()`` makes ``x``; ``losses[0] = loss`` writes into ``losses``, made where it was assigned last;
    ``terms.append(term.cpu())`` moves ``term``. The name is empty where the value has none.
    """
    statement = _statement(place)
    target = next(iter(targets_of(statement)), None)
    if isinstance(target, ast.Subscript):
        name = spell(target.value)
        binding = _binding(name, place)
        is_made = binding is not None and binding.kind != "argument"
        return name, binding.origin if is_made else place  # type: ignore[union-attr]
    if isinstance(target, (ast.Name, ast.Attribute)):
        return spell(target), place
    return _receiver(statement), place


def name_read(place: Origin) -> str:
    """Name what a line reads from the device, as typed; the line itself where nothing stands out.

    ``self.sums += losses.cpu()`` reads for the sake of ``self.sums``, which is on the CPU; a loop reads the container,
    item by item.
    """
    statement = _statement(place)
    if isinstance(statement, ast.AugAssign) and receiver_of(statement.value, ("cpu", "to")):
        target = statement.target
        return spell(target.value if isinstance(target, ast.Subscript) else target)
    found = _first_read(statement, place) if statement is not None else None
    if found is None:
        return bare(place)
    return spell(_iterated(found, place) or found)


def _first_read(statement: ast.stmt, place: Origin) -> ast.expr | None:
    """What a statement reads for certain; else what it decides by or shows, moves, or takes as an index."""
    certain = next(_called_on(statement, SURE_READS), None)
    decided = next(itertools.chain(_decided_by(statement), _shown(statement, place)), None)
    moved = next(_called_on(statement, READING_METHODS - SURE_READS), None)
    return certain or decided or moved or next(_indices(statement, place), None)


def bare(place: Origin) -> str:
    """What stands at a place, on one line without its comment; of a compound statement as it is written."""
    statement = statement_at(place)
    if statement is None or hasattr(statement, "body"):
        return place.line.partition("  #")[0]
    return spell(statement)


def _called_on(statement: ast.AST, methods: AbstractSet[str]) -> Iterator[ast.expr]:
    """What a statement calls one of some methods on."""
    receivers = (receiver_of(node, methods) for node in own_nodes(statement))
    yield from map(_source_of, filter(None, receivers))


def _decided_by(statement: ast.AST) -> Iterator[ast.expr]:
    """Conditions, and what functions of Python's own read."""
    nodes = list(own_nodes(statement))
    nodes.sort(key=lambda node: not (isinstance(node, ast.Call) and spell(node.func) in CONVERSIONS))
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READING_FUNCTIONS:
            yield from (_source_of(v) for v in node.args if not isinstance(v, (ast.Constant, ast.JoinedStr)))
        elif isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield _source_of(node.test)


def _shown(statement: ast.AST, place: Origin) -> list[ast.expr]:
    """What a statement writes into a text, variables of the function first: a step's number comes from outside."""
    found: list[ast.expr] = []
    for node in own_nodes(statement):
        if isinstance(node, ast.FormattedValue):
            found.append(_source_of(node.value))
        elif isinstance(node, ast.Call) and text_in(receiver_of(node, ("format",))):
            found += map(_source_of, node.args)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and text_in(node.left):
            found += map(_source_of, node.right.elts if isinstance(node.right, ast.Tuple) else [node.right])
    return sorted(found, key=lambda value: _binding(spell(value), place) is None)


def _indices(statement: ast.AST, place: Origin) -> Iterator[ast.expr]:
    """What a statement takes as an index, besides numbers that a loop counts; nothing where a call may read as well."""
    nodes = list(own_nodes(statement))
    for node in () if any(isinstance(n, ast.Call) and _worked_on(n) is None for n in nodes) else nodes:
        indices = node.slice if isinstance(node, ast.Subscript) else None
        for index in indices.elts if isinstance(indices, ast.Tuple) else [indices]:
            counted = _iterated(index, place)
            numbers = counted is not None and spell(counted).startswith(("range(", "enumerate("))
            if index is not None and not isinstance(index, (ast.Constant, ast.Slice)) and not numbers:
                yield index


def _source_of(node: ast.expr) -> ast.expr:
    """What an expression begins with: ``loss`` of ``loss.mean() > 3`` and of ``not torch.isnan(loss).any()``."""
    while (inner := _inner(node)) is not None:
        node = inner
    return node


def _inner(node: ast.expr) -> ast.expr | None:
    """What an operation, a comparison or a call works on first; None for what has no such part."""
    if isinstance(node, ast.Call):
        return _worked_on(node)
    if isinstance(node, ast.BoolOp):
        return node.values[0]
    return node.left if isinstance(node, ast.Compare) else node.operand if isinstance(node, ast.UnaryOp) else None


def _worked_on(call: ast.Call) -> ast.expr | None:
    """What a call of a torch function, a reading function or a tensor's method works on."""
    function = call.func
    if isinstance(function, ast.Name):
        return call.args[0] if function.id in READING_FUNCTIONS and call.args else None
    if not isinstance(function, ast.Attribute):
        return None
    if isinstance(function.value, ast.Name) and function.value.id in LIBRARIES:
        return call.args[0] if call.args else None
    return function.value if function.attr in PASSING_METHODS else None


def _iterated(node: ast.AST | None, place: Origin) -> ast.expr | None:
    """What a loop takes a variable from: ``losses`` of ``for i, loss in enumerate(losses)``."""
    if not isinstance(node, ast.Name):
        return None
    binding = _binding(node.id, place)
    if binding is None or binding.kind != "loop":
        return None
    return binding.value


def _binding(name: str, place: Origin) -> Binding | None:
    return find_binding(place.filename, name, (place.lineno, place.column or 0))


def _statement(place: Origin) -> ast.stmt | None:
    """The innermost statement at a place."""
    tree = parse(place.filename)
    return None if tree is None else innermost(tree, (place.lineno, place.column))


def _receiver(statement: ast.stmt | None) -> str:
    """What ``.cpu()`` or ``.to()`` is called on, where that has a name."""
    for node in ast.walk(statement) if statement else ():
        value = receiver_of(node, COPYING)
        if value is not None:
            return str(Path.of(value) or "")
    return ""
