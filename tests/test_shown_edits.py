"""Edits as a reader sees them: what may be called a fix, what a diff shows, what stays as it is."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

import pytest

from lightning_devcheck import Report
from lightning_devcheck._report.edits import SourceFile, apply, diff_bytes, fix_label, is_code, unified_diff
from lightning_devcheck._report.records import Edit
from tests.test_records import FINDING

CODE = dataclasses.replace(FINDING, fix="loss = torch.zeros((), device=self.device)")


def edits_between(path, old, new):
    """Make the edits that replace each piece of a file's text, which stands there once."""
    text = path.read_bytes().decode().replace("\r\n", "\n")
    found = []
    for piece, other in zip(old, new, strict=True):
        before = text[: text.index(piece)].split("\n")
        inside = piece.split("\n")
        column = len(before[-1].encode())
        end = len(inside[-1].encode()) + (column if len(inside) == 1 else 0)
        last = len(before) + len(inside) - 1
        found.append(Edit(str(path), len(before), column, last, end, piece, other))
    return tuple(found)


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """A finding with edits at two places of a file."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("a = 1\nb = 2\n\nc = 3\n")
    edits = edits_between(path, ["1", "c = 3\n"], ["10", "c = 30\nd = 4\n"])
    return dataclasses.replace(FINDING, edits=edits)


@pytest.mark.parametrize(
    ("finding", "verified", "label"),
    [
        (FINDING, None, "Hint"),
        (CODE, None, "Fix (not tried)"),
        (CODE, False, "Hint"),
        (CODE, True, "Fix (not tried)"),
    ],
)
def test_label_without_edits(finding, verified, label):
    """Words in prose are a hint, code that nobody ran is not tried, and nothing without edits is proven."""
    assert fix_label(dataclasses.replace(finding, verified=verified)) == label


@pytest.mark.parametrize(("verified", "label"), [(None, "Fix (not tried)"), (True, "Fix"), (False, "Hint")])
def test_label_with_edits(edited, verified, label):
    """Only what a second run has proven is called a fix."""
    finding = dataclasses.replace(edited, verified=verified)
    assert f"\n  {label}: " in str(Report((finding,)))
    assert f"<h3>{label}</h3>" in Report((finding,)).to_html()


def test_a_failed_trial_is_said(edited):
    """Where the second run was not right, the report says so and shows no diff."""
    text = str(Report((dataclasses.replace(edited, verified=False),)))
    assert "(tried as an edit of the file: a second run was not right with it)" in text
    assert "+++" not in text


def test_text_shows_a_small_diff(edited):
    """Edits at several places are shown as a diff below the words."""
    text = str(Report((edited,)))
    diff = ["--- a/train.py", "+++ b/train.py", "@@ -1 +1 @@", "-a = 1", "+a = 10"]
    diff += ["@@ -4 +4,2 @@", "-c = 3", "+c = 30", "+d = 4"]
    assert "".join(f"    {line}\n" for line in diff) in text


def test_page_shows_the_diff(edited):
    """The page has the same diff, a line an element."""
    page = Report((edited,)).to_html()
    assert '<span class="error">-a = 1</span>' in page
    assert '<span class="good">+d = 4</span>' in page


def test_code_in_one_place_needs_no_diff(edited):
    """One change on one line that the words show already is not shown again."""
    finding = dataclasses.replace(edited, fix="a = 10", edits=edited.edits[:1])
    assert "+++" not in str(Report((finding,)))


def test_a_file_that_changed_has_no_diff(edited, tmp_path):
    """Where something else stands at the place of an edit, no diff is shown."""
    (tmp_path / "train.py").write_text("x = 1\n")
    assert unified_diff(edited.edits) == ""


def test_report_of_edits_travels_as_json(edited):
    """JSON carries edits and whether they were tried."""
    report = Report((dataclasses.replace(edited, verified=True),))
    assert Report.from_dict(report.to_dict()) == report


def test_diff_of_a_report(edited):
    """A report's own diff is for ``patch``, and says that nobody tried it."""
    text = Report((edited,)).diff()
    assert text.startswith("# not tried: no second run was made with these changes\n--- a/train.py\n")
    assert Report((FINDING,)).diff() == ""


def test_diff_of_what_was_tried(edited):
    """What was proven needs no such word, and what failed is not in the diff."""
    assert Report((dataclasses.replace(edited, verified=True),)).diff().startswith("--- a/train.py\n")
    assert Report((dataclasses.replace(edited, verified=False),)).diff() == ""


@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1"]])
@pytest.mark.parametrize("data", [b"a = 1\r\nc = 3\r\n", b"# \xe9\na = 1\nc = 3", "a = 1\nä = 3".encode()])
def test_a_diff_can_be_applied(tmp_path, tool, data):
    """The tools that people have take the diff: line ends, encodings and a missing end of the last line too."""
    if shutil.which(tool[0]) is None:
        pytest.skip(f"no {tool[0]}")
    path = tmp_path / "train.py"
    path.write_bytes(data)
    new = data.replace(b"3", b"30").replace(b"a = 1", b"a = 10")
    diff = diff_bytes("train.py", data, new).encode("utf-8", "surrogateescape")
    options = ["--binary"] if tool[0] == "patch" else []
    subprocess.run([*tool, *options], input=diff, cwd=tmp_path, check=True, capture_output=True)
    assert path.read_bytes() == new


@pytest.mark.parametrize(
    "data",
    [
        b"a = 1\r\nc = 3\r\n",
        b"a = 1\nb = 2\r\nc = 3\n",
        b"\xef\xbb\xbfa = 1\nc = 3",
        b"# coding: latin-1\na = '\xe9'; c = 3\n",
        b"if 1:\n\ta = 1\n\tc = 3\n",
        b"a = 1\x0c\nc = 3\n",
    ],
)
def test_all_other_bytes_stay(tmp_path, data):
    """Line ends, marks, encodings, tabs and form feeds of a file stay as they are."""
    path = tmp_path / "train.py"
    path.write_bytes(data)
    file = SourceFile.read(path)
    text = data.decode(file.encoding).replace("\r\n", "\n")
    lineno = text[: text.index("3")].count("\n") + 1
    column = len(text[: text.index("3")].rpartition("\n")[2].encode())
    edit = Edit("train.py", lineno, column, lineno, column + 1, "3", "30")
    assert file.with_edits([edit]) == data.replace(b"3", b"30")


def test_new_lines_end_as_the_others(tmp_path):
    """A line that is put in ends as most lines of the file do."""
    path = tmp_path / "train.py"
    path.write_bytes(b"a = 1\r\nc = 3\r\n")
    edit = Edit("train.py", 2, 0, 2, 0, "", "b = 2\n")
    assert SourceFile.read(path).with_edits([edit]) == b"a = 1\r\nb = 2\r\nc = 3\r\n"


def test_an_encoding_that_lacks_a_sign(tmp_path):
    """What a file's encoding cannot hold is not written."""
    path = tmp_path / "train.py"
    path.write_bytes(b"# coding: latin-1\na = 1\n")
    edit = Edit("train.py", 2, 4, 2, 5, "1", '"€"')
    assert SourceFile.read(path).with_edits([edit]) is None


def test_equal_edits_are_written_once():
    """Two findings of one statement bring the same edit."""
    edit = Edit("train.py", 1, 0, 1, 0, "", "b = 2\n")
    assert apply("a = 1\n", [edit, edit]) == "b = 2\na = 1\n"


@pytest.mark.parametrize("column", [3, 40])
def test_edits_that_do_not_fit(column):
    """Overlapping pieces, and text that does not stand there, are refused."""
    first = Edit("train.py", 1, 0, 1, 5, "a = 1", "a = 2")
    other = Edit("train.py", 1, column, 1, column + 2, " 1", " 2")
    assert apply("a = 1\n", [first, other]) is None
    assert apply("a = 2\n", [first]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x = 1", True), ("return x", True), ("with torch.no_grad():", True), ("", False), ("keep x.detach()", False)],
)
def test_what_is_code(text, expected):
    """Code is what Python can read."""
    assert is_code(text) is expected
