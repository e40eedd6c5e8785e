"""What is known of one culprit when its cause is looked for."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from lightning_devcheck._source.statements import word_of


@dataclass(frozen=True, slots=True)
class Case:
    """What is known of one culprit.

    Attributes:
        rule: The rule it breaks.
        name: As the user typed it.
        made: The statement that made it.
        used: The statement where it met the others.
        function: The function that ``made`` is in; ``__init__`` for one that ``__init__`` and its like alone call.
        device: Where it is.
    """

    rule: str
    name: str
    made: ast.stmt
    used: ast.stmt | None
    function: str
    device: str

    @property
    def value(self) -> ast.expr | None:
        """What is assigned, returned or called; of several values the one for this name."""
        found: ast.expr | None = self._pair[1]
        return found

    @property
    def attribute(self) -> str:
        """The attribute of ``self`` that is assigned, else nothing."""
        target = self._pair[0]
        owned = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        return target.attr if owned and isinstance(target, ast.Attribute) else ""

    @property
    def _pair(self) -> tuple[ast.expr | None, ast.expr | None]:
        """The target that the name is, or is a part of, and its value; the first target where none is."""
        value = getattr(self.made, "value", None)
        targets = self.made.targets if isinstance(self.made, ast.Assign) else [getattr(self.made, "target", None)]
        pairs = [(target, value) for target in targets]
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs += zip(target.elts, value.elts, strict=True)
        return next((pair for pair in pairs if pair[0] is not None and self._is(ast.unparse(pair[0]))), pairs[0])

    def _is(self, target: str) -> bool:
        return target == self.name or (target.startswith("self.") and self.name.endswith(target.removeprefix("self")))


def is_class(function: ast.expr) -> bool:
    """Whether what is called is a class, by its name."""
    return word_of(function)[:1].isupper()
