"""Edits as a reader sees them: what a fix may be called, and what it changes, as a unified diff."""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import add, itemgetter
from pathlib import Path

from lightning_devcheck._report.records import Edit, Finding

FIX, NOT_TRIED, HINT = "Fix", "Fix (not tried)", "Hint"
FAILED = "(tried as an edit of the file: a second run was not right with it)"
# as Python ends lines; a form feed ends none
_LINE_END = re.compile(r"\r\n|\r|\n")
_NO_END = "\n\\ No newline at end of file\n"
CONTEXT = 3
LENIENT = "surrogatepass"

Span = tuple[int, int, bytes]


def fix_label(finding: Finding) -> str:
    """Name what a finding says of its repair: ``Fix`` is only what a second run has proven."""
    if finding.verified is False:
        return HINT
    if finding.edits and finding.verified:
        return FIX
    if finding.edits or is_code(finding.fix):
        return NOT_TRIED
    return HINT


def is_code(text: str) -> bool:
    """Whether a text can be pasted as it stands."""
    if text.endswith(":"):  # the head of a block
        text += " pass"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(tree.body)


def fix_words(finding: Finding) -> str:
    """Say what to write instead, and below that what a trial of it has shown."""
    words = finding.fix
    if finding.verified is not False:
        return words
    return f"{words}\n{FAILED}".strip()


def small_diff(finding: Finding) -> str:
    """Show what a finding's edits change, where its words alone do not; empty elsewhere."""
    edits = dict.fromkeys(finding.edits)
    if not edits or finding.verified is False:
        return ""
    spans = any("\n" in edit.old + edit.new for edit in edits)
    if len(edits) == 1 and not spans and is_code(finding.fix):
        return ""
    return unified_diff(edits, context=0)


def apply(text: str, edits: Iterable[Edit]) -> str | None:
    """Write the edits of one file into its text.

    Args:
        text: The file's text, its lines ended by line feeds.
        edits: The edits; equal ones are written once, what is put in at one point in their order.

    Returns:
        The new text; None where edits overlap, or something else stands where they are to go.
    """
    encoded = text.encode("utf-8", LENIENT)
    spans = _spans(encoded, edits)
    if spans is None:
        return None
    pieces = []
    at = 0
    for start, end, new in spans:
        pieces.append(encoded[at:start])
        pieces.append(new)
        at = end
    pieces.append(encoded[at:])
    return b"".join(pieces).decode("utf-8", LENIENT)


def _spans(encoded: bytes, edits: Iterable[Edit]) -> list[Span] | None:
    """Find where each edit begins and ends in a text; None where they do not fit it."""
    starts = [0]
    for line in io.BytesIO(encoded):
        starts.append(starts[-1] + len(line))
    spans = []
    for edit in dict.fromkeys(edits):
        if max(edit.lineno, edit.end_lineno) > len(starts):
            return None
        start = starts[edit.lineno - 1] + edit.column
        end = starts[edit.end_lineno - 1] + edit.end_column
        if encoded[start:end] != edit.old.encode("utf-8", LENIENT):
            return None
        new = edit.new.encode("utf-8", LENIENT)
        spans.append((start, end, new))
    spans.sort(key=itemgetter(0, 1))
    overlaps = (one[1] > other[0] for one, other in pairwise(spans))
    return None if any(overlaps) else spans


@dataclass(frozen=True)
class SourceFile:
    """A Python file as it is on the disk: its bytes, and the text that Python sees.

    Attributes:
        path: The file.
        data: What it holds.
        encoding: As its mark or its first two lines say; UTF-8 where they do not.
    """

    path: Path
    data: bytes
    encoding: str

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Read a file.

        Raises:
            OSError: If it cannot be read.
            SyntaxError: If it names an encoding that there is not.
        """
        data = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return cls(path, data, encoding)

    def with_edits(self, edits: Iterable[Edit]) -> bytes | None:
        """Give what the file holds with the edits: all other bytes as they are.

        Returns:
            The bytes; None where the edits do not fit the file, or its encoding.
        """
        try:
            raw = self.data.decode(self.encoding)
            text = _LINE_END.sub("\n", raw)
            new = apply(text, edits)
            if new is None:
                return None
            new = _with_ends(new, raw)
            return new.encode(self.encoding)
        except UnicodeError:
            return None


def _with_ends(text: str, model: str) -> str:
    """End lines as another text does: what stands there as there, new ones as most do."""
    ends = _LINE_END.findall(model)
    if not ends or set(ends) == {"\n"}:
        return text
    usual = max(ends, key=ends.count)
    old = _LINE_END.split(model)
    new = text.split("\n")
    chosen = [usual] * len(new)
    matcher = difflib.SequenceMatcher(None, old[:-1], new[:-1], autojunk=False)
    for block in matcher.get_matching_blocks():
        here = slice(block.b, block.b + block.size)
        there = slice(block.a, block.a + block.size)
        chosen[here] = ends[there]
    chosen[-1] = ""
    return "".join(map(add, new, chosen))


def unified_diff(edits: Iterable[Edit], *, context: int = CONTEXT) -> str:
    """Show what edits change in the files as they are now, as one diff for ``patch -p1``.

    Args:
        edits: The edits; those that no longer fit their file are left out.
        context: How many lines to show around each change.

    Returns:
        The diff; what is no UTF-8 in a file stands as a surrogate.
    """
    by_file: dict[Path, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(Path(edit.filename).resolve(), []).append(edit)
    parts = []
    for path, own in sorted(by_file.items()):
        try:
            file = SourceFile.read(path)
        except (OSError, SyntaxError, ValueError):
            continue
        new = file.with_edits(own)
        if new is None:
            continue
        name = spell_path(path)
        parts.append(diff_bytes(name, file.data, new, context=context))
    return "".join(parts)


def spell_path(path: Path) -> str:
    """Spell a path from the working directory, below which a patch is applied; whole elsewhere."""
    here = Path.cwd().resolve()
    if path.is_relative_to(here):
        path = path.relative_to(here)
    return path.as_posix().lstrip("/")


def diff_bytes(name: str, old: bytes, new: bytes, *, context: int = CONTEXT) -> str:
    """Show what changes in a file, line by line, with the bytes that it has."""
    before = _lines(old)
    after = _lines(new)
    rows = []
    for row in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=context):
        rows.append(row)
        if not row.endswith("\n"):
            rows.append(_NO_END)
    return "".join(rows)


def _lines(data: bytes) -> list[str]:
    """Take a file apart at its line feeds alone."""
    return [line.decode("utf-8", "surrogateescape") for line in io.BytesIO(data)]
