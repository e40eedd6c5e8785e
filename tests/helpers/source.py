"""Source files for tests: statements with a marker, a text as a file, a file formatted by ruff."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lightning_devcheck._report.records import Origin

WIDTHS = (88, 60, 40)
RUFF = [sys.executable, "-m", "ruff"] if importlib.util.find_spec("ruff") else [shutil.which("ruff")]
needs_ruff = pytest.mark.skipif(RUFF == [None], reason="ruff is not installed")


def is_marked(place: Origin | None, marker: str = "# BUG") -> bool:
    """Whether any line of the statement at a place has the marker; of a compound statement, any of its head."""
    if place is None:
        return False
    lines = linecache.getlines(place.filename)
    return any(marker in lines[number - 1] for number in statement_lines("".join(lines), place.lineno))


def statement_lines(text: str, lineno: int) -> range:
    """The lines of the smallest statement that has a line; of a compound statement, those of its head."""
    spans = [_span(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    around = [span for span in spans if lineno in span]
    return min(around, key=len, default=range(lineno, lineno + 1))


def _span(node: ast.stmt) -> range:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body[0].lineno > node.lineno:
        return range(node.lineno, body[0].lineno)
    return range(node.lineno, node.end_lineno + 1)


def placed(folder: Path, text: str, function: str = "", name: str = "train.py") -> Origin:
    """A file that begins with a statement, and the place of that; the head of a block gets a body."""
    path = folder / name
    before = "if x:\n    pass\n" if text.startswith("elif ") else ""
    after = "\n    pass" if text.partition("  #")[0].endswith(":") else ""
    path.write_text(f"{before}{text}{after}\n", encoding="utf-8")
    linecache.checkcache(str(path))
    return Origin(str(path), before.count("\n") + 1, text.partition("\n")[0].strip(), function)


def format_files(folder: Path, width: int) -> None:
    """Format all files of a folder to a width, whatever the project's own settings are."""
    command = [*RUFF, "format", "-q", "--isolated", "--line-length", str(width), str(folder)]
    subprocess.run(command, check=True)


def load(path: Path, name: str = "") -> ModuleType:
    """A file as a module that can be imported by its name."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def normal(text: str) -> str:
    """A text up to white space and trailing commas."""
    words = "".join(text.split())
    return words.replace(",)", ")").replace(",]", "]").replace(",}", "}")
