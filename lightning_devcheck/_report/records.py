"""What was seen and what is wrong with it, as plain frozen data that keeps nothing alive.

`TensorRecord`, `Crossing` and `GraphRecord` are what observers write; `Finding` is what a judge makes of them.
None holds a tensor, graph node, frame or exception, so all can be kept, pickled and sent between ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Origin:
    """A place in source code: a line, and what stands there.

    Two of one line are equal, whatever of it they mean: findings are counted by line, on all ranks.

    Attributes:
        filename: The file as Python names it (``<ipython-input-…>`` in a notebook).
        lineno: The line's number, counted from 1.
        line: The line's text without indentation, empty where no source is at hand.
        function: The function the line is in, empty at module level or where unknown.
        end_lineno: The last line of the statement or expression; None where only the line is known.
        column: Where it begins, in bytes of UTF-8 as Python counts them.
        end_column: Where it ends on its last line.
    """

    filename: str
    lineno: int
    line: str = ""
    function: str = ""
    end_lineno: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)
    end_column: int | None = field(default=None, compare=False)

    def meets(self, other: Origin | None) -> bool:
        """Whether two places are on one line and may be one; where columns are known, they have to meet as well."""
        if other is None or self != other:
            return False
        if self.column is None or other.column is None:
            return True
        return self._last_column > other.column and other._last_column > self.column

    @property
    def _last_column(self) -> float:
        """The last column on the first line."""
        if self.end_column is None or self.end_lineno != self.lineno:
            return inf
        return self.end_column


@dataclass(frozen=True, slots=True)
class Operand:
    """One of the tensors that the culprit met.

    Attributes:
        name: As the user would type it.
        device: Its device.
        detail: Its dtype and shape (``float32[4, 8]``), or how many tensors the name stands for.
    """

    name: str
    device: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator at the place where devices meet, or next to it.

    Attributes:
        name: torch's name for it (``add_``, ``mse_loss``); for a Function of the user's, the class's name.
        device: Where it ran; empty for the one that met several devices or moved a tensor between them.
    """

    name: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of a file, and what to write in its place.

    Attributes:
        filename: The file.
        lineno: The line on which the piece begins, counted from 1.
        column: Where it begins there, in bytes of UTF-8 as Python counts them.
        end_lineno: The line on which it ends.
        end_column: Where it ends there; what is only put in begins and ends at one point.
        old: The text that stands there, so that a file that has changed since is left alone.
        new: The text to write.
    """

    filename: str
    lineno: int
    column: int
    end_lineno: int
    end_column: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor as it was seen.

    Attributes:
        name: Its fully qualified name in the module, or what stands for it.
        device: Where it was.
        dtype: Its dtype.
        shape: Its shape, or None where it has none yet (a lazy parameter).
        registered: Whether the module owns it as a parameter or buffer.
        is_parameter: Whether it is an ``nn.Parameter``.
        trace: Lines of the forward that used it, innermost user line first; empty when nothing recorded them.
        operator: The operator that used it first; empty where there is none.
        decided: The line where its device was decided, where somebody has seen that.
        strays: Whether the operator that took it worked on a device of another kind.
    """

    name: str
    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, ...] | None
    registered: bool = False
    is_parameter: bool = False
    trace: tuple[Origin, ...] = ()
    operator: str = ""
    decided: Origin | None = None
    strays: bool = False

    @property
    def detail(self) -> str:
        """Dtype and shape as one word, ``float32[4, 8]``."""
        return describe(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A graph edge whose two ends are on different devices.

    Attributes:
        source: The device on the side of the leaves.
        target: The device on the side of the loss.
        node: The graph node that made the move, such as ``ToCopyBackward0``.
        trace: Lines of the forward that made the node, innermost user line first; empty when nothing recorded them.
        operators: The operators before the move, of the move, and after it, in the order of the forward.
    """

    source: torch.device
    target: torch.device
    node: str
    trace: tuple[Origin, ...] = ()
    operators: tuple[Operator, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """The graph behind a loss.

    Attributes:
        loss: The loss itself.
        leaves: The leaves that want a gradient, those the module owns included.
        crossings: The edges where the device changes.
        num_nodes: Graph nodes seen.
        not_checked: What was seen and could not be looked into, and why.
    """

    loss: TensorRecord
    leaves: tuple[TensorRecord, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    num_nodes: int = 0
    not_checked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule, broken once.

    It holds text and numbers only: it is on no device itself, keeps no tensor alive and costs nothing to keep.

    Attributes:
        rule: The rule's id, in kebab-case; stable, and the anchor in ``docs/rules.md``.
        severity: ``error``, ``warning`` or ``note``.
        what: One sentence: what is where, and where it should be.
        name: The culprit as the user would type it: ``loss``, ``self.heads[0].weight``, ``batch["mask"]``.
        device: Where it is, as text.
        expected: Where it should be, as text; empty where the device is right and something else is wrong.
        shape: The culprit's shape; None where it has none or there are several.
        dtype: The culprit's dtype without ``torch.``; None where there is none.
        origin: The line that made it.
        used: The line where it met the others.
        others: What it met there.
        why: The cause, in a sentence or two.
        fix: Something to paste.
        step: The optimizer step (``trainer.global_step``) at which it was seen; None outside a Trainer.
        global_rank: The process that saw it.
        count: How often it was seen.
        operators: The operators around the place where the devices meet, in the order of the forward.
        decided: The line where the culprit's device was decided, where that was seen; what goes back to the same line
            has the same cause.
        edits: What to change in the sources; empty where no change is known.
        verified: Whether a second run with the edits was without the finding; None where that was not tried.
    """

    rule: str
    severity: Severity
    what: str
    name: str
    device: str
    expected: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    origin: Origin | None = None
    used: Origin | None = None
    others: tuple[Operand, ...] = ()
    why: str = ""
    fix: str = ""
    step: int | None = None
    global_rank: int = 0
    count: int = 1
    operators: tuple[Operator, ...] = ()
    decided: Origin | None = None
    edits: tuple[Edit, ...] = ()
    verified: bool | None = None

    @property
    def detail(self) -> str:
        """Dtype and shape as one word, ``float32[4, 8]``; empty where unknown."""
        return describe(self.dtype, self.shape) if self.dtype else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON types."""
        data = asdict(self)
        data["shape"] = None if self.shape is None else list(self.shape)
        data["others"] = [asdict(other) for other in self.others]
        data["operators"] = [asdict(operator) for operator in self.operators]
        data["edits"] = [asdict(edit) for edit in self.edits]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        """Build a finding from what `to_dict` gave."""
        fields = dict(data)
        for key in ("origin", "used", "decided"):
            fields[key] = None if fields.get(key) is None else Origin(**fields[key])
        fields["shape"] = None if fields.get("shape") is None else tuple(fields["shape"])
        fields["others"] = tuple(Operand(**other) for other in fields.get("others", ()))
        fields["operators"] = tuple(Operator(**operator) for operator in fields.get("operators", ()))
        fields["edits"] = tuple(Edit(**edit) for edit in fields.get("edits", ()))
        return cls(**fields)


def describe(dtype: torch.dtype | str | None, shape: tuple[int, ...] | None) -> str:
    """Write dtype and shape as one word: ``float32[4, 8]``, ``float32[]`` for 0-dim, ``float32[?]`` for lazy."""
    dims = "?" if shape is None else ", ".join(map(str, shape))
    return f"{str(dtype).removeprefix('torch.')}[{dims}]"
