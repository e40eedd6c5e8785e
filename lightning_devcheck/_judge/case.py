"""What is known of one culprit when its cause is looked for."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from typing import TypeGuard

from lightning_devcheck._report.records import Edit
from lightning_devcheck._source.assignments import attribute_path
from lightning_devcheck._source.changes import changes
from lightning_devcheck._source.edits import NONE, Edits, Source, compiles
from lightning_devcheck._source.files import parse
from lightning_devcheck._source.path import Path
from lightning_devcheck._source.statements import pairs_of, parse_text, targets_of, word_of


@dataclass(frozen=True, slots=True)
class Cure:
    """Why something is wrong, and what cures it.

    Attributes:
        why: The cause.
        fix: What to write instead, in words or as code.
        edits: The same as edits of the source; empty where none is known.
    """

    why: str = ""
    fix: str = ""
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Case:
    """What is known of one culprit.

    Attributes:
        rule: The rule it breaks.
        name: As the user typed it.
        made: The statement that made it.
        used: The statement where it met the others.
        function: The function that ``made`` is in; ``__init__`` for one that ``__init__`` and its like alone call.
        device: Where it is.
        filename: The file that ``made`` is in.
        used_filename: The file that ``used`` is in.
    """

    rule: str
    name: str
    made: ast.stmt
    used: ast.stmt | None
    function: str
    device: str
    filename: str = ""
    used_filename: str = ""

    def instead(self, why: str, code: str, note: str = "") -> Cure:
        """Cure by a statement in the place of the one that made the culprit.

        Args:
            why: The cause.
            code: The statement.
            note: What to say behind it.
        """
        code = self.in_file(code)
        return Cure(why, f"{code}{note}", self.edits_to(self.made, code))

    def in_file(self, code: str) -> str:
        """Write ``nn`` as the culprit's file does."""
        if self._binds("nn") or not self._binds("torch"):
            return code
        return re.sub(r"(?<![\w.])nn\.", "torch.nn.", code)

    def edits_to(self, old: ast.stmt, code: str) -> Edits:
        """Find the edits that make a statement of the culprit's file another one; none where it did more."""
        new = parse_text(code)
        if new is None or len(new.body) != 1:
            return NONE
        statement = new.body[0]
        assigned = [target for target, _ in pairs_of(old)]
        keeps_targets = list(map(ast.dump, targets_of(old))) == list(map(ast.dump, targets_of(statement)))
        uses_torch = not re.search(r"(?<![\w.])nn\.", code) or self._binds("nn")
        if not uses_torch or (len(assigned) > 1 and not keeps_targets):
            return NONE
        source = Source(self.filename)
        edits = changes(source, old, statement)
        return edits if compiles(source, edits) else NONE

    def _binds(self, name: str) -> bool:
        """Whether the file imports something under a name."""
        tree = parse(self.filename)
        nodes = () if tree is None else ast.walk(tree)
        imports = [alias for node in nodes for alias in getattr(node, "names", ()) if isinstance(alias, ast.alias)]
        return any((alias.asname or alias.name.partition(".")[0]) == name for alias in imports)

    @property
    def value(self) -> ast.expr | None:
        """What is assigned, returned or called; of several values the one for this name."""
        return self._pair[1]

    @functools.cached_property
    def attribute(self) -> str:
        """The attribute of ``self`` that is assigned, else nothing."""
        path = Path.of(self._pair[0]) or Path("")
        return path.attribute * (path == attribute_path(path.attribute))

    @functools.cached_property
    def path(self) -> Path:
        """The name, taken apart."""
        return Path.parse(self.name)

    @functools.cached_property
    def _pair(self) -> tuple[ast.expr | None, ast.expr | None]:
        """The target that the name is, or is a part of, and its value; the first target where none is."""
        whole = (next(iter(targets_of(self.made)), None), getattr(self.made, "value", None))
        named = (pair for pair in pairs_of(self.made) if self.path.ends_like(Path.of(pair[0])))
        return next(named, whole)


def makes_object(value: ast.AST | None) -> TypeGuard[ast.Call]:
    """Whether an expression calls a class, by its name."""
    return isinstance(value, ast.Call) and word_of(value.func)[:1].isupper()
