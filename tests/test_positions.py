"""A statement is found by its place in the file: what shares its line, spans lines, has no file, or has changed."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import linecache
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from lightning_devcheck import explain
from lightning_devcheck._explain.frames import read_frames
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import innermost, parse, statement_at
from lightning_devcheck._source.path import quoted
from lightning_devcheck._source.statements import spell
from tests.helpers.failing import explained, explained_afterwards, failure
from tests.helpers.source import load

GENERIC = "create it where the others are: device=self.device, or .to(other.device)"
ON_DEVICE = "mask = torch.ones(4, device=x.device)"


def cell(text, filename):
    """The variables of a text that was run as a notebook runs a cell."""
    text = textwrap.dedent(text)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    variables = {"torch": torch}
    exec(compile(text, filename, "exec"), variables)
    return variables


STEPS = {
    "def step(x): mask = torch.ones(4); return x * mask": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4); y = x * mask; mask = x; return y": ON_DEVICE,
    "def step(x):\n    mask = x; mask = torch.ones(4); return x * mask": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    mask = (\n        mask\n        * x\n    )": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    return (\n        x\n        .mul(mask)\n    )": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    return '''\n{x}''' + str(x * mask)": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    return f'''\n{x * mask}\n'''": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    return f'{[y * mask for y in x]}'": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    return {k: [y * mask for y in x] for k in 'ab'}": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    return [*map(lambda y: (lambda z: z * mask)(y), [x])]": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    for y in [x, x * mask]: pass": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    while (x * mask).sum(): pass": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    if x is None: pass\n    elif (x * mask).sum(): pass": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    match x * mask:\n        case y: return y": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    try: return x * mask\n    finally: y = None": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    assert (x * mask).sum() > 0, 'é'": ON_DEVICE,
    "def step(x):\n    ä = 'ü'; mask = torch.ones(4); return ('ö', x * mask)": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    x += mask\n": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    def inner(y=x * mask): pass\n": ON_DEVICE,
    "def step(x):\n    mask = torch.ones(4)\n    @(lambda f: x * mask)\n    def inner(): pass\n": ON_DEVICE,
    "def step(x):\n    if x is None: pass\n    elif (m := torch.ones(4)) is not None and x * m: pass": (
        "elif (m := torch.ones(4, device=x.device)) is not None and x * m:"
    ),
    "def step(x):\n    with (\n        torch.no_grad(),\n    ):\n        return x * torch.ones(4)": (
        "return x * torch.ones(4, device=x.device)"
    ),
}


@pytest.mark.parametrize("number", range(len(STEPS)), ids=list(STEPS))
def test_form_of_the_statement(number):
    """The statement that made the culprit is the one that is mended, whatever shares its lines."""
    text, fix = list(STEPS.items())[number]
    assert explained(cell(text, f"<form-{number}>")["step"]).fix == fix


def test_cell_that_is_run_again():
    """A cell under the name of an earlier one is read anew."""
    cell("def step(x):\n    other = torch.zeros(3)\n    return x * other", "<again>")
    assert parse("<again>") is not None
    step = cell("def step(x):\n\n    mask = torch.ones(4)\n    return x * mask", "<again>")["step"]
    assert explained(step).fix == ON_DEVICE


def test_code_without_source():
    """Code that was made from a text has no statement to show: the message's own words are said."""
    variables = {"torch": torch}
    exec("def step(x):\n    mask = torch.ones(4)\n    return x * mask", variables)
    finding = explained(variables["step"])
    assert (finding.rule, finding.fix, finding.used.line) == ("mixed-devices", GENERIC, "")


def test_doctest():
    """The examples of a docstring have their source while they run."""
    examples = """
    >>> def step(x):
    ...     mask = torch.ones(4)
    ...     return x * mask
    >>> finding = explained(step)
    """
    variables = {"torch": torch, "explained": explained}
    test = doctest.DocTestParser().get_doctest(examples, variables, "examples", None, 0)
    assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
    assert test.globs["finding"].fix == ON_DEVICE


BEFORE = "import torch\n\ndef step(x):\n    mask = torch.ones(4)\n    other = x + 1\n    return other * mask\n"
EDITS = {
    "a line before": BEFORE.replace("import torch\n", "import torch\nimport os\n"),
    "a line in the function": BEFORE.replace("    mask", "    more = x * 2\n    mask"),
    "another function": "def other(x):\n    return x\n",
    "no Python": "a b c\n" * 10,
    "nothing": "",
}


@pytest.mark.parametrize("edit", EDITS)
def test_file_that_was_edited_since(tmp_path, edit):
    """A statement of a file that has changed is not taken for the one that ran."""
    path = tmp_path / "edited.py"
    path.write_text(BEFORE, encoding="utf-8")
    error = failure(load(path).step)
    path.write_text(EDITS[edit] + "# longer\n", encoding="utf-8")
    linecache.checkcache(str(path))
    (finding,) = explain(error).findings
    assert (finding.name, finding.fix) == ("a tensor", GENERIC)


def test_line_of_an_edited_file_that_is_as_it_was(tmp_path):
    """A line that the simulation saw is mended where it still stands, whatever else was edited."""
    path = tmp_path / "edited.py"
    path.write_text(BEFORE, encoding="utf-8")
    error = failure(load(path).step)
    path.write_text(BEFORE.replace("return other * mask", "return other * mistake"), encoding="utf-8")
    linecache.checkcache(str(path))
    (finding,) = explain(error).findings
    assert (finding.name, finding.fix) == ("a tensor", ON_DEVICE)


def test_file_that_is_as_it_was(tmp_path):
    """The same file without an edit is explained."""
    path = tmp_path / "kept.py"
    path.write_text(BEFORE, encoding="utf-8")
    assert explained(load(path).step).fix == ON_DEVICE


def test_python_without_columns(tmp_path):
    """Where Python keeps lines alone, the statement on the line is taken."""
    path = tmp_path / "plain.py"
    path.write_text(BEFORE + "from tests.helpers.failing import explained\nprint(explained(step).fix)\n")
    command = [sys.executable, "-X", "no_debug_ranges", str(path)]
    root = Path(__file__).parents[1]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert run.stdout.strip() == ON_DEVICE


def test_places_of_one_line_are_equal():
    """Findings are counted by line, on every rank: where in the line does not tell them apart."""
    place = Origin("train.py", 3, "x = y.item()", "step", 3, 4, 16)
    other = dataclasses.replace(place, end_lineno=5, column=8, end_column=1)
    assert place == other
    assert hash(place) == hash(other)
    assert place != dataclasses.replace(place, lineno=4)


def test_origin_spans_its_statement(tmp_path):
    """The place of what made a tensor has the first and last line and column of its statement."""
    path = tmp_path / "spans.py"
    path.write_text("import torch\n\n\ndef step(x):\n    mask = torch.ones(\n        4,\n    )\n    return x * mask\n")
    finding = explained_afterwards(load(path).step)
    made, used = finding.origin, finding.used
    assert (made.lineno, made.end_lineno, made.column, made.end_column) == (5, 7, 4, 5)
    assert (used.lineno, used.end_lineno, used.column, used.end_column) == (8, 8, 11, 19)
    assert ast.unparse(statement_at(made)) == "mask = torch.ones(4)"


def test_statement_where_the_column_is_not_known():
    """Of several statements on a line the one that assigns the name is meant, else the first."""
    tree = ast.parse("if a: b = 1; c = 2")
    assert ast.unparse(innermost(tree, (1, None), "c")) == "c = 2"
    assert ast.unparse(innermost(tree, (1, None))) == "b = 1"
    assert innermost(tree, (2, None)) is None


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("x = {'a': 1}", 'x = {"a": 1}'),
        ('x = cfg["it\'s"]', 'x = cfg["it\'s"]'),
        ("x = f\"{cfg['k']}\"", None),
        ("x = sum((t for t in ts))", "x = sum(t for t in ts)"),
        ("x = f(g(t for t in ts), ['a'])", 'x = f(g(t for t in ts), ["a"])'),
        ("x = sum((t for t in ts), 0)", "x = sum((t for t in ts), 0)"),
        ("x = '((t for t in ts))', (t for t in ts)", None),
        ("x = 'a\\n\"b\"'", None),
    ],
)
def test_text_of_a_statement(text, spelled):
    """What is spelled means the same as the statement that it is spelled from."""
    found = spell(ast.parse(text))
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(text))
    assert spelled in (None, found)


@pytest.mark.parametrize("key", ["a", "it's", 'say "a"', "a b", "", "ä", "a\\b", "a\nb", "0"])
def test_text_as_a_key(key):
    """A key is written so that Python reads it again."""
    assert ast.literal_eval(quoted(key)) == key


HARD = (
    """table = {"it's": torch.ones(4), 'a "b"': 1}; return x * table["it's"]""",
    """cfg = {"k": "left"}; kept = {f"{cfg['k']}": torch.ones(4)}; return x * kept["left"]""",
    """terms = [x, x]; return sum(t.cpu() for t in terms) + x""",
    """terms = [x, x]; return torch.stack(list(t.cpu() for t in terms)) + x""",
    """d = {'name': 'a'}; w = torch.full((4,), len(f"{d['name']!r:>{3}}")); return x * w""",
    """w = torch.tensor([float(ord(c)) for c in 'a"b\\'c'] + [0.0] * 3)[:4]; return x * w""",
    """return x * torch.ones(4) if x.sum() != len('\\n"') else x""",
)


@pytest.mark.parametrize("body", HARD)
def test_fix_compiles_where_it_stands(body):
    """A fix takes the place of the line and compiles there."""
    text = f"def step(x):\n    {body}\n"
    finding = explained(cell(text, f"<fix-{abs(hash(body))}>")["step"])
    assert finding.fix != GENERIC
    compile(f"def step(x):\n    {finding.fix.splitlines()[0]}\n", "fixed.py", "exec")


def test_a_lambda_is_read_by_itself():
    """What other lambdas of a statement do with the same names is not taken for what failed."""
    text = "USES = [lambda m, x: m.weights * x, lambda m, x: (lambda y: m.pop(y))(x), lambda m, x: m]"
    use = cell(text, "<lambdas>")["USES"][1]
    with pytest.raises(IndexError) as caught:
        use([], 0)
    frames = read_frames(caught.value.__traceback__)[-2:]
    assert [ast.unparse(frame.statement()) for frame in frames] == ["(lambda y: m.pop(y))(x)", "m.pop(y)"]
