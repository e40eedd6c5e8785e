"""How dense a file is, measured by statement, so that no formatter changes it; and the limits for it."""

from __future__ import annotations

import ast
import bisect
import io
import statistics
import tokenize
from collections.abc import Iterator

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# their length is a matter of names, not of thought
NOT_COUNTED = (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef)

MEAN_TOKENS = 9
MOST_TOKENS = 16  # of nine statements in ten
CONDITIONALS = 3  # conditional expressions in a hundred statements
FUNCTION_LINES = 60
FILE_LINES = 600
COLUMNS = 100


def broken_limits(text: str) -> list[str]:
    """Name each limit that a file's text breaks, with its figure."""
    tree = ast.parse(text)
    counts = tokens_by_statement(text, tree) or [0]
    conditionals = [node for node in ast.walk(tree) if isinstance(node, ast.IfExp)]
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.comprehension))]
    lines = text.splitlines()
    figures = {
        "tokens a statement": (statistics.mean(counts), MEAN_TOKENS),
        "tokens in nine statements of ten": (_ninth_tenth(counts), MOST_TOKENS),
        "conditional expressions in 100 statements": (100 * len(conditionals) / len(counts), CONDITIONALS),
        "nested conditional expressions": (sum(map(_is_nested, conditionals)), 0),
        "loops over a conditional expression": (sum(isinstance(loop.iter, ast.IfExp) for loop in loops), 0),
        "code lines in a function": (max(_lengths(text, tree), default=0), FUNCTION_LINES),
        "lines": (len(lines), FILE_LINES),
        "columns": (max(map(len, lines), default=0), COLUMNS),
    }
    return [f"{figure:.1f} {name}" for name, (figure, limit) in figures.items() if figure > limit]


def tokens_by_statement(text: str, tree: ast.Module) -> list[int]:
    """Count the tokens of each statement, commas not counted; the head of a compound one is a statement."""
    starts = [token.start for token in _tokens(text)]
    docstrings = _docstrings(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, NOT_COUNTED) or node in docstrings:
            continue
        first = bisect.bisect_left(starts, (node.lineno, node.col_offset))
        last = bisect.bisect_left(starts, _end(node))
        if last > first:
            found.append(last - first)
    return found


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT and token.string != ",":
            yield token


def _docstrings(tree: ast.Module) -> set[ast.stmt]:
    owners = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    return {owner.body[0] for owner in owners if ast.get_docstring(owner, clean=False) is not None}


def _end(node: ast.stmt) -> tuple[int, int]:
    """Where a statement ends; for a compound one, where its body begins."""
    if isinstance(node, ast.Match):
        pattern = node.cases[0].pattern
        return pattern.lineno, pattern.col_offset
    body = getattr(node, "body", None)
    if not body:
        return node.end_lineno, node.end_col_offset + 1
    decorators = getattr(body[0], "decorator_list", None)
    if decorators:
        return decorators[0].lineno, 0
    return body[0].lineno, body[0].col_offset


def _ninth_tenth(counts: list[int]) -> float:
    if len(counts) == 1:
        return counts[0]
    return statistics.quantiles(counts, n=10)[8]


def _is_nested(node: ast.IfExp) -> bool:
    return any(isinstance(part, ast.IfExp) for part in (node.body, node.test, node.orelse))


def _lengths(text: str, tree: ast.Module) -> Iterator[int]:
    """How many lines with code, docstring and signature aside, each function has."""
    code = {token.start[0] for token in _tokens(text)}
    docstrings = _docstrings(tree)
    for function in ast.walk(tree):
        if isinstance(function, FUNCTIONS):
            body = [node for node in function.body if node not in docstrings]
            first = body[0].lineno if body else function.end_lineno
            yield len(code & set(range(first, function.end_lineno + 1)))
