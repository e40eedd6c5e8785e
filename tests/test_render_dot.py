"""The report as a Graphviz picture: what is drawn, and that any string is drawn as text."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess

import pytest

from lightning_devcheck import Report
from lightning_devcheck._report.records import Operator, Origin
from tests.test_records import FINDING
from tests.test_render_html import HOSTILE, hostile_finding


def test_picture_of_one_finding():
    """Each device is a box with its tensors; they meet in a node with the line where they met."""
    assert (
        Report((FINDING,)).to_dot()
        == r"""digraph devcheck {
  rankdir=TB
  node [shape=box, fontname="monospace"]
  subgraph cluster_0 {
    label="cpu"
    "0 cpu culprit 0" [label="loss\nfloat32[1]\ntrain.py:38  loss = torch.zeros(1)", color="#b3202c", penwidth=2]
  }
  subgraph cluster_1 {
    label="cuda:0"
    "0 cuda:0 other 0" [label="parameters\n214 tensors"]
  }
  meet_0 [label="met in add_\nloss-device\ntrain.py:42  loss += term", shape=ellipse]
  "0 cpu culprit 0" -> meet_0 [color="#b3202c", penwidth=2]
  "0 cuda:0 other 0" -> meet_0
}
"""
    )


def test_findings_share_the_boxes_of_their_devices():
    """Several findings are drawn in one box per device, each with its own meeting point."""
    other = dataclasses.replace(FINDING, name="target", used=None, origin=Origin("a.py", 1))
    picture = Report((FINDING, other)).to_dot()
    assert picture.count("subgraph") == 2
    assert {"meet_0 [", "meet_1 ["} <= set(re.findall(r"meet_\d \[", picture))


def test_operators_stand_around_the_crossing():
    """The operators before and after a move are drawn in their devices' boxes, on the two sides of the move."""
    operators = (Operator("mse_loss", "cuda:0"), Operator("to"), Operator("add", "cpu"))
    picture = Report((dataclasses.replace(FINDING, operators=operators),)).to_dot()
    assert 'meet_0 [label="moved by to\\nloss-device' in picture
    assert '"0 cuda:0 operator 0" -> meet_0' in picture
    assert 'meet_0 -> "0 cpu operator 0"' in picture


def test_empty_report_is_an_empty_picture():
    """A report without findings is a valid picture of nothing."""
    assert Report().to_dot().startswith("digraph devcheck {")
    assert "->" not in Report().to_dot()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_strings_stay_inside_their_quotes(text):
    """Names with quotes, backslashes and line ends stay inside one quoted string of one line."""
    picture = Report((hostile_finding(text + '" \\" \\'),)).to_dot()
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "Q", picture)
    assert '"' not in bare
    assert all(line.count("Q") <= 4 for line in bare.splitlines())
    assert bare.isascii()


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
def test_graphviz_draws_a_hostile_report():
    """Graphviz itself reads a picture of hostile strings."""
    picture = Report((FINDING, *(hostile_finding(text) for text in HOSTILE))).to_dot()
    run = subprocess.run(["dot", "-Tsvg"], input=picture.encode(), capture_output=True, check=True, timeout=60)
    assert b"214 tensors" in run.stdout
