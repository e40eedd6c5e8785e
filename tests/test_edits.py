"""Edits of a source file: only what changes is written, all other text stays as it is."""

from __future__ import annotations

import ast
import copy

import pytest

from lightning_devcheck._report.edits import apply
from lightning_devcheck._report.records import Edit
from lightning_devcheck._source.changes import changes
from lightning_devcheck._source.edits import (
    Source,
    compiles,
    inserted_after,
    inserted_before,
    removed,
    replaced,
)


def expression(text):
    """An expression without a place in a file."""
    return ast.parse(text, mode="eval").body


def changed(text, change):
    """The text after a change of the last statement's tree."""
    source = Source("<edited>", text.splitlines(keepends=True))
    old = ast.parse(text).body[-1]
    new = copy.deepcopy(old)
    new = change(new) or new
    edits = changes(source, old, new)
    assert compiles(source, edits)
    after = apply(text, edits)
    assert ast.dump(ast.parse(after).body[-1]) == ast.dump(
        ast.parse(ast.unparse(ast.fix_missing_locations(new))).body[0]
    )
    return after


def with_device(statement):
    """Give each call of torch's a device."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch."):
            node.keywords.append(ast.keyword("device", expression("x.device")))


def moved(statement):
    """Move what is assigned."""
    statement.value = ast.Call(ast.Attribute(statement.value, "to"), [expression("x.device")], [])


def unwrapped(statement):
    """Assign the argument of a call."""
    statement.value = statement.value.args[0]


def indices_called(statement):
    """Compute an index."""
    statement.targets[0].slice = ast.Call(expression("f"), [statement.targets[0].slice], [])


def without_default(statement):
    """Give a keyword no default."""
    statement.args.kw_defaults = [expression("None")]


def iterates_over_list(statement):
    """Iterate over a list."""
    statement.iter = ast.Call(expression("list"), [statement.iter], [])


def as_buffer(statement):
    """Register what is assigned."""
    name = ast.Constant(statement.targets[0].attr)
    keyword = ast.keyword("persistent", ast.Constant(False))
    return ast.Expr(ast.Call(expression("self.register_buffer"), [name, statement.value], [keyword]))


def in_list(statement):
    """Put what is assigned into a list of modules."""
    statement.value = ast.Call(expression("nn.ModuleList"), [statement.value], [])


CASES = {
    "one argument": ("m = torch.ones(4)\n", with_device, "m = torch.ones(4, device=x.device)\n"),
    "no argument": ("m = torch.ones()\n", with_device, "m = torch.ones(device=x.device)\n"),
    "parentheses": ("m = torch.ones((4))\n", with_device, "m = torch.ones((4), device=x.device)\n"),
    "last comma": ("m = torch.ones(4,)\n", with_device, "m = torch.ones(4, device=x.device,)\n"),
    "lines": (
        "m = torch.ones(  # as many\n    4,  # rows\n    # none\n)  # end\n",
        with_device,
        "m = torch.ones(  # as many\n    4, device=x.device,  # rows\n    # none\n)  # end\n",
    ),
    "other letters": ("ü, m = 'ü', torch.ones('ü')\n", with_device, "ü, m = 'ü', torch.ones('ü', device=x.device)\n"),
    "other letters on a later line": (
        "m = torch.ones(\n  'ü', 'ö'\n)\n",
        with_device,
        "m = torch.ones(\n  'ü', 'ö', device=x.device\n)\n",
    ),
    "two calls": (
        "m = torch.ones(4) + torch.full((2,),  1)\n",
        with_device,
        "m = torch.ones(4, device=x.device) + torch.full((2,),  1, device=x.device)\n",
    ),
    "call in a call": (
        "m = torch.stack([torch.ones(4)])\n",
        with_device,
        "m = torch.stack([torch.ones(4, device=x.device)], device=x.device)\n",
    ),
    "quotes": ("m = torch.load('a', 'b')\n", with_device, "m = torch.load('a', 'b', device=x.device)\n"),
    "comprehension": (
        "m = [torch.ones(n)  for n in r]\n",
        with_device,
        "m = [torch.ones(n, device=x.device)  for n in r]\n",
    ),
    "name moved": ("m = x\n", moved, "m = x.to(x.device)\n"),
    "sum moved": ("m = x  + y # why\n", moved, "m = (x  + y).to(x.device) # why\n"),
    "lines moved": ("m = (\n    x  # a\n    + y\n)\n", moved, "m = (\n    (x  # a\n    + y).to(x.device)\n)\n"),
    "tuple moved": ("m = 1, 2\n", moved, "m = (1, 2).to(x.device)\n"),
    "number moved": ("m = 1\n", moved, "m = (1).to(x.device)\n"),
    "lambda moved": ("m = lambda: 1\n", moved, "m = (lambda: 1).to(x.device)\n"),
    "call moved": ("m = f(x,  y)\n", moved, "m = f(x,  y).to(x.device)\n"),
    "lines kept alone": ("m = f(\n    x  # a\n    + y\n)\n", unwrapped, "m = (x  # a\n    + y)\n"),
    "tuple kept alone": ("m = f((1,  2))\n", unwrapped, "m = (1,  2)\n"),
    "tuple kept between commas": ("m[1,  2] = 3\n", indices_called, "m[f((1,  2))] = 3\n"),
    "slice kept": ("m[1: 2] = x  + y\n", moved, "m[1: 2] = (x  + y).to(x.device)\n"),
    "default value": (
        "def f(a, *, b = torch.ones(3)): # why\n    return  b\n",
        without_default,
        "def f(a, *, b = None): # why\n    return  b\n",
    ),
    "head": ("for i, j  in x:  # why\n    j  = 1\n", iterates_over_list, "for i, j  in list(x):  # why\n    j  = 1\n"),
    "buffer": (
        "self.m = torch.ones(4,  4)  # why\n",
        as_buffer,
        'self.register_buffer("m", torch.ones(4,  4), persistent=False)  # why\n',
    ),
    "buffer of a bare tuple": ("self.m = 1,  2\n", as_buffer, 'self.register_buffer("m", (1,  2), persistent=False)\n'),
    "list": (
        "self.m = [\n    f(1),  # a\n    f(2),\n]\n",
        in_list,
        "self.m = nn.ModuleList([\n    f(1),  # a\n    f(2),\n])\n",
    ),
    "generator": ("self.m = (f(i)  for i in r)\n", in_list, "self.m = nn.ModuleList((f(i)  for i in r))\n"),
    "f-string": (
        "m = f'{torch.ones(1)}'\n",
        with_device,
        'm = f"{torch.ones(1, device=x.device)}"\n',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_changes_is_written(case):
    """An edit keeps comments, line breaks, quotes and spaces of what it does not change."""
    text, change, expected = CASES[case]
    assert changed(text, change) == expected
    assert changed("import torch\n" + text.removesuffix("\n"), change) == "import torch\n" + expected.removesuffix("\n")


def placed(text, number, place):
    """The text after a statement's neighbourhood was changed; the statement is one of the first function's."""
    source = Source("<edited>", text.splitlines(keepends=True))
    block = ast.parse(text).body[0].body
    edits = place(source, block[number], block)
    assert compiles(source, edits)
    return apply(text, edits)


def test_body_of_a_compound_statement_is_never_written():
    """What cannot be written within the head of a compound statement is no edit."""
    text = "with a:\n    b\n"
    old = ast.parse(text).body[0]
    new = ast.parse("with a, c:\n    pass\n").body[0]
    assert changes(Source("<edited>", text.splitlines(keepends=True)), old, new) == ()


def test_what_a_line_of_a_file_is():
    """A form feed or another separator of lines within a line does not end it, as for Python."""
    text = "a = 'b\x0cü\u2028'; c\n"
    assert apply(text, [Edit("f", 1, 15, 1, 16, "c", "d")]) == "a = 'b\x0cü\u2028'; d\n"
    assert apply(text, [Edit("f", 1, 8, 1, 9, "c", "d")]) is None


PLACES = {
    "before": ("def f():\n    a\n    b\n", 1, "def f():\n    a\n    new\n    more\n    b\n"),
    "before the first": ("def f():\n    a  # why\n", 0, "def f():\n    new\n    more\n    a  # why\n"),
    "before, tabs": ("def f():\n\ta\n", 0, "def f():\n\tnew\n\tmore\n\ta\n"),
}


@pytest.mark.parametrize("case", PLACES)
def test_lines_before_a_statement(case):
    """New lines stand before a statement with its indentation."""
    text, number, expected = PLACES[case]
    assert placed(text, number, lambda source, node, _: inserted_before(source, node, "new\nmore")) == expected


def test_line_before_a_statement_on_a_shared_line():
    """A new statement may share a line that is shared already; two cannot."""
    assert placed("def f(): a; b\n", 1, lambda s, node, _: inserted_before(s, node, "new")) == "def f(): a; new; b\n"
    assert placed("def f(): a; b\n", 1, lambda s, node, _: inserted_before(s, node, "n\nm")) == "def f(): a; b\n"


AFTER = {
    "after": ("def f():\n    a  # why\n    b\n", 0, "def f():\n    a  # why\n    new\n    b\n"),
    "after the last": ("def f():\n    a\n", 0, "def f():\n    a\n    new\n"),
    "after the last, no line end": ("def f():\n    a", 0, "def f():\n    a\n    new"),
    "after lines": ("def f():\n    a(\n  1)\n    b\n", 0, "def f():\n    a(\n  1)\n    new\n    b\n"),
    "after, one line": ("def f(): a; b\n", 0, "def f(): a; new; b\n"),
}


@pytest.mark.parametrize("case", AFTER)
def test_line_after_a_statement(case):
    """A new line stands after a statement with its indentation."""
    text, number, expected = AFTER[case]
    assert placed(text, number, lambda source, node, _: inserted_after(source, node, "new")) == expected


REMOVED = {
    "line": ("def f():\n    a\n    b  # why\n    c\n", 1, "def f():\n    a\n    c\n"),
    "lines": ("def f():\n    a(\n1)\n    b\n", 0, "def f():\n    b\n"),
    "last": ("def f():\n    a\n    b", 1, "def f():\n    a\n"),
    "only": ("def f():\n    a  # why\n", 0, "def f():\n    pass  # why\n"),
    "first of a line": ("def f(): a; b\n", 0, "def f(): b\n"),
    "second of a line": ("def f():\n    a; b  # why\n", 1, "def f():\n    a  # why\n"),
}


@pytest.mark.parametrize("case", REMOVED)
def test_statement_is_taken_out(case):
    """A statement goes with its lines; a block is never left empty."""
    text, number, expected = REMOVED[case]
    assert placed(text, number, removed) == expected


def test_edits_that_overlap_are_refused():
    """Two edits of one place are not written."""
    one, other = Edit("f", 1, 0, 1, 3, "abc", "x"), Edit("f", 1, 2, 1, 4, "cd", "y")
    assert apply("abcd\n", [one]) == "xd\n"
    assert apply("abcd\n", [one, other]) is None


def test_file_that_has_changed_is_left_alone():
    """An edit is for the text that it was made for."""
    edit = Edit("f", 1, 0, 1, 3, "abc", "x")
    assert apply("abd\n", [edit]) is None
    assert apply("", [edit]) is None
    assert apply("a\n", [Edit("f", 5, 0, 5, 1, "a", "b")]) is None


def test_equal_edits_are_written_once():
    """Two findings may want the same edit; others of one point keep their order."""
    edit, other = Edit("f", 1, 1, 1, 1, "", "x"), Edit("f", 1, 1, 1, 1, "", "y")
    assert apply("ab\n", [edit, other, edit]) == "axyb\n"


def test_text_in_the_place_of_an_expression():
    """An expression is replaced alone."""
    text = "a = f(b)  # why\n"
    source = Source("<edited>", [text])
    assert apply(text, replaced(source, ast.parse(text).body[0].value.args[0], "c.d")) == "a = f(c.d)  # why\n"
