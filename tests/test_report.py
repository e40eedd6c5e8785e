"""The report: what is ok, its JSON, and how it reads."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle

import pytest

from lightning_devcheck import DeviceMismatchError, Report
from lightning_devcheck._report.records import Finding, Operand, Origin
from lightning_devcheck._report.report import merge_reports
from lightning_devcheck._report.text import spell_ranks, supports_color
from tests.test_records import FINDING

NOTE = dataclasses.replace(FINDING, rule="host-read", severity="note")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_text_of_one_finding():
    """One finding reads: what, evidence, why, fix, rule."""
    assert (
        str(Report((FINDING,), world_size=2))
        == """\
the loss is on cpu, the model is on cuda:0 (step 0, global rank 0 of 2)

  loss        cpu     float32[1]  made  train.py:38  loss = torch.zeros(1)
                                  used  train.py:42  loss += term
  parameters  cuda:0  214 tensors

  A loss that ends on another device costs a hidden copy and a wait in every step, or fails in backward.
  Hint: start the sum from its first term, or from torch.zeros((), device=self.device),
        and take .cpu() and .item() out of the way to the loss
  Rule: loss-device (docs/rules.md#loss-device)"""
    )


def test_text_without_lines():
    """Without source lines the evidence is the tensors alone."""
    text = str(Report((dataclasses.replace(FINDING, origin=None, used=None),)))
    assert "\n  loss        cpu     float32[1]\n  parameters  cuda:0  214 tensors\n" in text


def test_text_groups_ranks_of_one_cause():
    """The same cause on several ranks is said once, with the ranks and each device."""
    ranks = [dataclasses.replace(FINDING, global_rank=rank, device="cuda:0") for rank in (1, 2, 3, 5)]
    text = str(Report(tuple(ranks), world_size=8))
    assert "(step 0, global ranks 1-3, 5 of 8)" in text
    assert text.count("Rule:") == 1


def test_text_of_several_findings_counts_them():
    """Several causes are counted, and each has a number and says its severity."""
    text = str(Report((FINDING, NOTE), checked={"tensors": 4, "seconds": 0.25}))
    assert text.startswith("2 findings (checked: 4 tensors, 0.2 s)\n\n1. error: the loss is on cpu")
    assert "\n\n2. note: the loss is on cpu" in text


def test_text_lists_what_was_not_checked():
    """What could not be judged is listed with its reason."""
    text = str(Report(not_checked=("2 compiled regions: opaque",)))
    assert text == "no findings\n\nNot checked:\n  - 2 compiled regions: opaque"


def test_text_escapes_control_characters():
    """A name or line from the user's code cannot move the cursor or colour the terminal."""
    evil = dataclasses.replace(FINDING, name="x\x1b[2J", origin=Origin("a\x07.py", 1, "x = '\x1b]0;'"))
    text = str(Report((evil,)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "x\\x1b[2J" in text


def test_text_counts_times():
    """A finding seen often says how often."""
    assert "(step 0, 12 times)" in str(Report((dataclasses.replace(FINDING, count=12),)))


@pytest.mark.parametrize(
    ("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_colour_on_a_terminal(monkeypatch, environment, colored):
    """A terminal gets colour unless NO_COLOR or a dumb terminal says otherwise."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    Report((FINDING,)).show(stream)
    assert ("\x1b[31m" in stream.getvalue()) is colored


def test_no_colour_in_a_file():
    """A stream that is no terminal gets plain text, the same as str()."""
    stream = io.StringIO()
    Report((FINDING,)).show(stream)
    assert not supports_color(stream)
    assert stream.getvalue() == f"{Report((FINDING,))}\n"


def test_ok_allows_notes_only():
    """Notes leave a report ok; a warning or an error does not."""
    assert Report().ok
    assert Report((NOTE,)).ok
    assert not Report((dataclasses.replace(FINDING, severity="warning"),)).ok
    assert Report((FINDING, NOTE)).errors == (FINDING,)


def test_json_round_trip():
    """A report goes to JSON text and back unchanged."""
    report = Report((FINDING, NOTE), {"tensors": 3}, ("a reason",), world_size=4)
    assert Report.from_dict(json.loads(report.to_json())) == report


@pytest.mark.parametrize("change", [{"format": "other"}, {"version": 99}], ids=str)
def test_json_of_another_format_is_refused(change):
    """A dictionary of another format or version is refused with what it is and what is read."""
    with pytest.raises(
        ValueError, match=r"not a report this version reads: format=.*; expected 'lightning-devcheck-report', 1"
    ):
        Report.from_dict({**Report().to_dict(), **change})


def test_merge_keeps_equal_findings_once():
    """Merging reports keeps order, drops doubles, adds counts."""
    one, two = Report((FINDING,), {"tensors": 2}, ("a",)), Report((FINDING, NOTE), {"tensors": 3}, ("a", "b"), 2)
    assert merge_reports([one, two]) == Report((FINDING, NOTE), {"tensors": 5}, ("a", "b"), 2)


def test_error_carries_its_report_through_pickle():
    """The exception of a rank reaches the parent process with its report."""
    error = pickle.loads(pickle.dumps(DeviceMismatchError(Report((FINDING,)))))
    assert error.report == Report((FINDING,))
    assert str(error) == str(error.report)


def test_error_shows_its_public_name():
    """A traceback names the class as users import it."""
    assert (
        f"{DeviceMismatchError.__module__}.{DeviceMismatchError.__qualname__}"
        == "lightning_devcheck.DeviceMismatchError"
    )


def test_text_groups_ranks_that_write_a_path_in_two_ways():
    """Rank 0 of `python train.py` has a relative path in its frames, the ranks that it starts have the whole one."""
    places = [Origin(path, 3, "loss = zeros(1)", "training_step") for path in ("train.py", "/home/me/train.py")]
    ranks = [dataclasses.replace(FINDING, global_rank=rank, origin=place) for rank, place in enumerate(places)]
    assert "global ranks 0-1 of 2" in str(Report(tuple(ranks), world_size=2))
    other = dataclasses.replace(ranks[1], origin=Origin("/home/me/train.py", 4, "loss = zeros(1)", "training_step"))
    assert "2 findings" in str(Report((ranks[0], other), world_size=2))


@pytest.mark.parametrize(("ranks", "text"), [([3], "3"), ([0, 1, 2], "0-2"), ([5, 0, 2, 3], "0, 2-3, 5")])
def test_spell_ranks(ranks, text):
    """Runs of ranks are written with a dash."""
    assert spell_ranks(ranks) == text


def test_operands_without_detail_leave_no_trailing_space():
    """No line of the text ends in blanks."""
    finding = Finding("mixed-devices", "error", "w", "x", "cpu", others=(Operand("y", "cuda:1"),))
    assert not any(line.endswith(" ") for line in str(Report((finding,))).splitlines())
