"""Gradients on the wrong device: which backward or hook of the user's returned them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from lightning_devcheck._explain.frames import Frame
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.messages import Match
from lightning_devcheck._observe.graph import trace_of, walk
from lightning_devcheck._observe.inert import inside, is_tensor, read
from lightning_devcheck._observe.module_tree import ModuleTree
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.assignments import scope_nodes
from lightning_devcheck._source.files import origin_at, parse, statements_around
from lightning_devcheck._source.queries import methods_of, sources_of
from lightning_devcheck._source.statements import Function, has_factory, is_move, receiver_of, spell, word_of

HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook", "register_prehook"})
HOOKS |= {"register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook"}
MODULE_HOOK = "hook"  # torch's own name for the hook that runs a module's backward hooks


def blame_backward(
    match: Match, frames: Sequence[Frame], root: torch.nn.Module | None
) -> tuple[Named, Origin | None] | None:
    """The backward or hook that a gradient error comes from, and the forward line of its node where recorded."""
    if match.hook is not None:
        hook = next(_hooks(match.hook, frames, root), None)
        if hook is None and match.hook == MODULE_HOOK:
            hook = next(_hooks(None, frames, root), None)
        return None if hook is None else (hook, None)
    for node in _nodes(frames):
        used = next(iter(trace_of(node)), None)
        function = getattr(type(node), "_forward_cls", None)
        line = None if function is None else _backward_line(function, certain=not match.node)
        if function is not None and line is not None and match.node in ("", type(node).__name__):
            used = used or _applied(function.__name__, frames, root)
            return Named(f"{function.__name__}.backward", line, "backward"), used
    hook = next(_hooks(None, frames, root), None)  # the gradient that a hook changed reaches the next node
    return None if hook is None else (hook, None)


def forward_line(name: str, frames: Sequence[Frame]) -> Origin | None:
    """The line that made a graph node, where anomaly mode recorded it."""
    nodes = (node for node in _nodes(frames) if type(node).__name__ == name)
    return next((line for node in nodes for line in trace_of(node)), None)


def _nodes(frames: Sequence[Frame]) -> list[Any]:
    """The graph nodes behind the tensors that the frames around backward hold."""
    found: dict[Any, None] = {}
    for frame in frames:
        for value in frame.names.values():
            for _, tensor in inside(value, "", depth=1):
                node = read(tensor, "grad_fn") if is_tensor(tensor) else None
                if node is not None:
                    found[node] = None
    nodes: dict[Any, None] = {}
    for root in list(found)[-20:]:
        nodes.update(dict.fromkeys(walk(root)[0]))
    return list(nodes)


def _backward_line(function: type, *, certain: bool) -> Origin | None:
    """The line in a Function's ``backward`` that leaves the device: a factory or a move, else its ``return``."""
    for filename, node in methods_of(function, "backward"):
        leaving = _leaving(node, certain)
        return None if leaving is None else origin_at(filename, leaving, "backward")
    return None


def _leaving(function: Function, certain: bool) -> ast.stmt | None:
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    leaving = [s for s in statements if _leaves(s)]
    returns = [s for s in statements if isinstance(s, ast.Return)]
    return next(iter(leaving if certain else [*leaving, *returns[-1:], function]), None)


def _leaves(node: ast.AST) -> bool:
    return has_factory(node) or any(map(is_move, ast.walk(node)))


def _hooks(name: str | None, frames: Sequence[Frame], root: torch.nn.Module | None) -> Iterator[Named]:
    """Lines of the user's that register a hook which moves its gradient, or one of that name."""
    for filename, nodes, functions in _regions(frames, root):
        for node in nodes:
            owner = receiver_of(node, HOOKS)
            if isinstance(node, ast.Call) and owner is not None:
                hook = _hook_of(node, functions)
                if hook is not None and _leaves(hook) and name in (None, "", _hook_name(node)):
                    yield Named(f"hook on {spell(owner)}", origin_at(filename, node), "hook")


def _regions(
    frames: Sequence[Frame], root: torch.nn.Module | None
) -> Iterator[tuple[str, Iterator[ast.AST], dict[str, ast.FunctionDef]]]:
    """The code that may have built the graph: the classes of the modules, the functions around backward."""
    modules = ModuleTree(root).modules if root is not None else []
    kinds = dict.fromkeys(map(type, modules))
    for filename, node in dict.fromkeys(source for kind in kinds for source in sources_of(kind)):
        yield filename, ast.walk(node), _functions(filename)
    for frame in frames:
        tree = parse(frame.filename) if frame.is_user else None
        if tree is not None:
            around = [n for n in statements_around(tree, frame.point) if isinstance(n, ast.FunctionDef)]
            yield frame.filename, ast.walk(around[0]) if around else scope_nodes(tree), _functions(frame.filename)


def _functions(filename: str) -> dict[str, ast.FunctionDef]:
    tree = parse(filename)
    return {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)} if tree else {}


def _applied(name: str, frames: Sequence[Frame], root: torch.nn.Module | None) -> Origin | None:
    """The line that applies a custom Function, where there is one alone."""
    lines = {
        origin_at(filename, node)
        for filename, nodes, _ in _regions(frames, root)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "apply" and word_of(node.value) == name
    }
    return lines.pop() if len(lines) == 1 else None


def _hook_of(call: ast.Call, functions: dict[str, ast.FunctionDef]) -> ast.AST | None:
    hook = call.args[0] if call.args else None
    return functions.get(_hook_name(call)) if isinstance(hook, (ast.Name, ast.Attribute)) else hook


def _hook_name(call: ast.Call) -> str:
    return word_of(next(iter(call.args), None)) or "<lambda>"
