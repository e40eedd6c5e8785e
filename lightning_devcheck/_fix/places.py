"""Places of an edited file, as they were before the edits."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lightning_devcheck._report.records import Edit, Finding, Origin

Place = tuple[str, int]


@dataclass(frozen=True)
class Places:
    """Finds the line that stood in the place of a line of an edited file.

    Args:
        edits: The edits, by the real path of their file.
    """

    edits: dict[str, list[Edit]] = field(default_factory=dict)

    @classmethod
    def of(cls, edits: Iterable[Edit]) -> Places:
        """Know the edits of several files."""
        by_file: dict[str, list[Edit]] = {}
        for edit in dict.fromkeys(edits):
            path = os.path.realpath(edit.filename)
            by_file.setdefault(path, []).append(edit)
        for own in by_file.values():
            own.sort(key=lambda edit: (edit.lineno, edit.column))
        return cls(by_file)

    def before(self, origin: Origin | None) -> Place | None:
        """The file and the line before the edits."""
        if origin is None:
            return None
        path = os.path.realpath(origin.filename)
        return path, self._line(path, origin.lineno)

    def _line(self, path: str, lineno: int) -> int:
        shift = 0
        for edit in self.edits.get(path, ()):
            offset = lineno - shift - edit.lineno
            added = edit.new.count("\n")
            taken = edit.old.count("\n")
            if offset < 0:
                break
            if offset <= added:
                # what is put in above a line belongs to that line
                return edit.lineno + min(offset, taken)
            shift += added
            shift -= taken
        return lineno - shift

    def moved_back(self, edits: Iterable[Edit]) -> tuple[Edit, ...]:
        """Put edits of the edited files where they go before it was edited.

        Returns:
            The edits; none where one goes where another edit has been.
        """
        moved = []
        for edit in edits:
            path = os.path.realpath(edit.filename)
            first = self._line(path, edit.lineno)
            last = first + edit.end_lineno - edit.lineno
            is_torn = self._line(path, edit.end_lineno) != last
            if is_torn:
                return ()
            if self._touches(path, first, last):
                return ()
            moved.append(replace(edit, lineno=first, end_lineno=last))
        return tuple(moved)

    def _touches(self, path: str, first: int, last: int) -> bool:
        own = self.edits.get(path, ())
        reaching = [edit for edit in own if edit.end_lineno >= first]
        return any(edit.lineno <= last for edit in reaching)

    def key(self, finding: Finding) -> tuple[object, ...]:
        """What tells a finding from others, whatever the edits have moved."""
        origin = finding.decided or finding.origin
        made = self.before(origin)
        used = self.before(finding.used)
        return finding.rule, finding.name, made, used
