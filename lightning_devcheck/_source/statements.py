"""Statements that make or move tensors: how to tell them, and how to rewrite them for the right device."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Container, Iterator
from typing import TypeVar

# torch functions that make a tensor on the CPU unless told otherwise
FACTORIES = frozenset({"zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace"})
FACTORIES |= {"logspace", "eye", "tensor", "as_tensor", "asarray", "scalar_tensor", "tril_indices", "triu_indices"}
FACTORIES |= {"hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window", "empty_strided"}
FACTORIES |= {"sparse_coo_tensor", "sparse_csr_tensor"}
# the same, without a device argument
OLD_FACTORIES = frozenset({"Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor"})
OLD_FACTORIES |= {"BoolTensor", "from_numpy", "frombuffer", "normal"}
MAKERS = FACTORIES | OLD_FACTORIES
TORCH = ("torch", "th")
# the methods of a module that run before Lightning moves it
BUILDERS = ("__init__", "__post_init__", "configure_model", "setup")
MOVES = ("to", "cuda", "cpu")
HERE = "self.device"
_SETTING = re.compile(
    r"[A-Z_]*(DEVICE|GPU|CUDA)[A-Z_0-9]*|(self\.)?(args|opts?|cfg|conf|config|hparams|FLAGS)\.(device|gpu)"
)
# methods of containers that keep what they are given
ADDERS = ("append", "appendleft", "extend", "insert", "add", "update", "setdefault")

Tree = TypeVar("Tree", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.NamedExpr)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parse_text(text: str) -> ast.Module | None:
    """The syntax tree of a text; None where it is no Python, or is nested beyond reason."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def torch_function(call: ast.AST) -> str:
    """The function of torch's that a call is of, whatever it is called there; empty for every other node."""
    marked: str = getattr(call, "torch_function", "")
    if marked or not isinstance(call, ast.Call):
        return marked
    base, _, name = ast.unparse(call.func).rpartition(".")
    return name if base in TORCH else ""


def is_factory(node: ast.AST) -> bool:
    """Whether a call makes a tensor and names no device."""
    return isinstance(node, ast.Call) and torch_function(node) in MAKERS and device_argument(node) is None


def receiver_of(node: ast.AST | None, methods: Container[str]) -> ast.expr | None:
    """What a call of one of these methods is called on; None for every other node."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        return node.func.value
    return None


def word_of(function: ast.AST | None) -> str:
    """The last word of what is called: ``zeros`` of ``torch.zeros``."""
    return getattr(function, "attr", "") or getattr(function, "id", "")


def is_move(node: ast.AST) -> bool:
    """Whether a call copies a tensor to a device."""
    return receiver_of(node, MOVES) is not None


def moved_in_place(statement: ast.stmt) -> ast.expr | None:
    """What a line of its own moves, as modules are; a tensor's copy is thrown away there."""
    return receiver_of(getattr(statement, "value", None), MOVES) if isinstance(statement, ast.Expr) else None


def is_host_copy(node: ast.AST) -> bool:
    """Whether a call copies a tensor to the CPU, which it names."""
    return is_move(node) and spell(node).endswith((".cpu()", '.to("cpu")', '.to(device="cpu")'))


def has_factory(node: ast.AST) -> bool:
    """Whether something in a statement or expression makes a tensor and names no device."""
    return any(map(is_factory, ast.walk(node)))


def parts_of(target: ast.expr) -> list[ast.expr]:
    """What takes a value of its own in the target of an assignment: ``a`` and ``b`` of ``a, *b``."""
    if isinstance(target, ast.Starred):
        return parts_of(target.value)
    if isinstance(target, (ast.Tuple, ast.List)):
        return [part for element in target.elts for part in parts_of(element)]
    return [target]


def puts_on_host(statement: ast.AST) -> bool:
    """Whether a simple statement makes a tensor and names no device, or copies one to the CPU."""
    return not hasattr(statement, "body") and any(is_factory(n) or is_host_copy(n) for n in ast.walk(statement))


def device_argument(call: ast.Call) -> ast.expr | None:
    """The device that a call names by keyword."""
    return next((word.value for word in call.keywords if word.arg in ("device", "map_location")), None)


def names_device(call: ast.Call) -> bool:
    """Whether a call names a device by keyword, or copies to one."""
    return device_argument(call) is not None or is_move(call)


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """All calls in a statement or expression."""
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def calls_torch(call: ast.Call, name: str) -> bool:
    """Whether a call is of torch's function of that name."""
    if torch_function(call) == name:
        return True
    return word_of(call.func) == name and "torch." in ast.unparse(call.func)


def with_device_argument(made: ast.stmt, wanted: Callable[[ast.Call], bool], keyword: str = "device") -> str:
    """The statement with ``device=self.device`` in the calls that want it."""
    tree = copy.deepcopy(made)
    for call in list(calls_in(tree)):
        if not wanted(call):
            continue
        if torch_function(call) in OLD_FACTORIES:
            call.func, call.args, call.keywords = _moved(call), [_expression(HERE)], []
            continue
        call.keywords = [word for word in call.keywords if word.arg != keyword]
        call.keywords.append(ast.keyword(keyword, _expression(HERE)))
    return spell(tree)


def _moved(call: ast.Call) -> ast.Attribute:
    return ast.Attribute(ast.Call(call.func, call.args, call.keywords), "to", ast.Load())


def with_own_device(made: ast.stmt, wanted: Callable[[ast.expr], bool]) -> str | None:
    """The statement with ``self.device`` for each device named in a way that is wanted; None where there is none."""
    tree = copy.deepcopy(made)
    found = False
    for call in list(calls_in(tree)):
        here = _expression(HERE)
        places = [*range(len(call.args))] if wanted is is_written_out else [0] if is_move(call) and call.args else []
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda" and wanted is not is_setting:
            call.func.attr, call.args, call.keywords, found = "to", [here], [], True
            continue
        for position in places:
            if wanted(call.args[position]) or (position == 0 and is_move(call) and _is_index(call.args[0])):
                call.args[position], found = here, True
        if found and _makes_device(call):
            call.args = call.args[:1]  # without the index
        for word in call.keywords:
            if word.arg in ("device", "map_location") and (wanted(word.value) or _is_index(word.value)):
                word.value, found = here, True
    return spell(tree) if found else None


def _makes_device(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "torch.device" and bool(call.args)


def _is_index(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def is_any(node: ast.expr) -> bool:
    """Whether an argument may name a device: torch's own constants, its dtypes and memory formats, do not."""
    return re.match(r"torch\.(?!device\b|cuda\b)", ast.unparse(node)) is None


def without_devices(made: ast.stmt) -> ast.stmt:
    """The statement without the devices written out in it, and without the moves to them."""
    return _with_calls(made, _undirected)


def _undirected(call: ast.Call) -> ast.expr:
    """What is moved, or makes a tensor, without a device that is written out."""
    named = any(map(is_written_out, (*call.args, *(word.value for word in call.keywords))))
    moved = receiver_of(call, MOVES if named else ("cuda",))
    if moved is not None:
        return moved
    call.keywords = [word for word in call.keywords if not is_written_out(word.value)]
    return call


def _with_calls(tree: Tree, change: Callable[[ast.Call], ast.expr]) -> Tree:
    """A copy of a statement or expression with something else for each of its calls."""
    changed: Tree = _Calls(change).visit(copy.deepcopy(tree))
    return ast.fix_missing_locations(changed)


class _Calls(ast.NodeTransformer):
    """Puts something else for each call, the inner ones first."""

    def __init__(self, change: Callable[[ast.Call], ast.expr]) -> None:
        self._change = change

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Put what is to stand there."""
        self.generic_visit(node)
        return self._change(node)


def with_text_keys(value: ast.expr) -> ast.expr:
    """A dictionary whose keys are made texts: modules have no others."""
    tree = copy.deepcopy(value)
    text = ast.Name("str", ast.Load())
    if isinstance(tree, ast.Dict):
        tree.keys = [key and ast.Call(text, [key], []) for key in tree.keys]
    elif isinstance(tree, ast.DictComp):
        tree.key = ast.Call(text, [tree.key], [])
    return ast.fix_missing_locations(tree)


def with_parameter_outside(value: ast.expr) -> ast.expr | None:
    """An expression that computes something from a new ``nn.Parameter``, as the parameter of what is computed.

    What only moves it is left out; None where the parameter is not computed with.
    """
    if isinstance(value, ast.Call) and _bare(value) is not value:
        return None
    while (moved := receiver_of(value, MOVES)) is not None:
        value = moved
    tree = _with_calls(value, _bare)
    return None if ast.dump(tree) == ast.dump(value) else ast.Call(_expression("nn.Parameter"), [tree], [])


def _bare(call: ast.Call) -> ast.expr:
    """What a new parameter is made of; any other call as it is."""
    new = word_of(call.func) == "Parameter" and len(call.args) == 1 and not call.keywords
    return call.args[0] if new else call


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def stacked(made: ast.stmt) -> str:
    """A statement with the terms stacked that it makes a new leaf of; empty where they are numbers."""
    tree = copy.deepcopy(made)
    for call in calls_in(tree):
        terms = call.args[0] if call.args else None
        if not calls_torch(call, "tensor") or not isinstance(terms, (ast.List, ast.ListComp)):
            continue
        parts = terms.elts if isinstance(terms, ast.List) else [terms.elt]
        if any(isinstance(part, ast.Constant) or _is_number(part) for part in parts):
            return ""
        call.func, call.keywords = _expression("torch.stack"), []
        return spell(tree)
    return ""


def _is_number(node: ast.expr) -> bool:
    """Whether an expression reads a number out of a tensor, which has no graph."""
    return isinstance(node, ast.Call) and word_of(node.func) in ("item", "float", "tolist")


def is_setting(node: ast.expr) -> bool:
    """Whether an argument is a constant or setting of the program with a device: ``DEVICE``, ``args.device``."""
    return _SETTING.fullmatch(ast.unparse(node)) is not None


def is_written_out(node: ast.expr) -> bool:
    """Whether an argument is a device written out, as a text or in ``torch.device``."""
    node = node.args[0] if isinstance(node, ast.Call) and _makes_device(node) else node
    return text_in(node).startswith("cuda")


def text_in(node: ast.AST | None) -> str:
    """A text that is written out; empty for every other expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def without_start(statement: ast.stmt, start: str) -> ast.stmt | None:
    """The statement without what its ``sum`` starts from; None where no ``sum`` in it starts from that."""
    tree = copy.deepcopy(statement)
    for call in calls_in(tree):
        given = [*call.args[1:], *(word.value for word in call.keywords)]
        if spell(call.func) == "sum" and [spell(value) for value in given] == [start]:
            call.args, call.keywords = call.args[:1], []
            return tree
    return None


def without_host_copies(made: ast.stmt) -> ast.stmt | None:
    """The statement without ``.cpu()`` and ``.to("cpu")``; None where it has none."""
    stripped = _with_calls(made, lambda call: (is_host_copy(call) and receiver_of(call, MOVES)) or call)
    return None if ast.dump(stripped) == ast.dump(made) else stripped


def targets_of(node: ast.AST | None) -> list[ast.expr]:
    """What a statement assigns to."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) else []


def pairs_of(node: ast.AST) -> list[tuple[ast.expr, ast.expr | None]]:
    """What takes a value in an assignment, each with that: ``a, b = x, y`` is two."""
    found = []
    pending: list[tuple[ast.expr, ast.expr | None]] = []
    if isinstance(node, ASSIGNMENTS):
        pending += [(target, node.value) for target in targets_of(node)]
    for target, value in pending:  # grows on the way
        left, right = getattr(target, "elts", ()), getattr(value, "elts", ())
        if not left or len(left) != len(right) or any(isinstance(e, ast.Starred) for e in (*left, *right)):
            found.append((target, value))
        else:
            pending += zip(left, right, strict=True)
    return found


def kept_by(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """The name that a statement keeps something under, and what: assigned to it or to an item, added, or appended."""
    if isinstance(statement, (ast.Assign, ast.AugAssign)):
        target: ast.expr = statement.targets[-1] if isinstance(statement, ast.Assign) else statement.target
        kept: ast.expr = statement.value
    elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call) and call.args:
        filled = receiver_of(call, ADDERS)
        if filled is None:
            return None
        target, kept = filled, call.args[-1]
    else:
        return None
    while isinstance(target, ast.Subscript):
        target = target.value
    return spell(target), kept


def detached(statement: ast.stmt) -> str:
    """A statement that keeps a tensor, with ``.detach()`` behind the tensor; empty for other statements."""
    tree = copy.deepcopy(statement)
    found = kept_by(tree)
    if found is None or isinstance(found[1], (ast.List, ast.Dict, ast.Tuple)):
        return ""
    kept = ast.Call(ast.Attribute(found[1], "detach", ast.Load()), [], [])
    if isinstance(tree, ast.Expr):
        tree.value.args[-1] = kept  # type: ignore[attr-defined]
    else:
        tree.value = kept  # type: ignore[attr-defined]
    return spell(tree)


def spell(node: ast.AST) -> str:
    """The text of a statement or expression, with double quotes and without doubled parentheses where Python allows."""
    text = plain = ast.unparse(ast.fix_missing_locations(node))
    for inner in ast.walk(node):
        if isinstance(inner, ast.GeneratorExp):
            written = ast.unparse(inner)
            plain = plain.replace(f"({written})", written)
    for better in (plain.replace("'", '"'), plain):
        if better == text or _means_the_same(better, text):
            return better
    return text


def _means_the_same(text: str, other: str) -> bool:
    read = parse_text(text)
    return read is not None and ast.dump(read) == ast.dump(ast.parse(other))
