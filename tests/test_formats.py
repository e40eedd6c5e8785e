"""Reports for editors, pull requests, scanners, and the baseline of known findings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_devcheck import Finding, Report
from lightning_devcheck._report.lines import render_concise, render_github
from lightning_devcheck._report.records import Edit, Origin
from lightning_devcheck._report.sarif import render_sarif

SCRIPT = """\
import torch
from lightning_devcheck import simulate_cuda

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ünü, self.weights = 1, torch.ones(4)
        self.scale = torch.ones(2)
"""
PLACE = {"end_lineno": 7, "column": 38, "end_column": 51}


def finding(filename, **fields):
    """A finding with a line."""
    origin = Origin(filename, 7, "self.weights = torch.ones(4)", "__init__", **PLACE)
    given = {"severity": "error", "origin": origin, "why": "because: 100 %,\nreally", "fix": "mend it"} | fields
    return Finding("mixed-devices", what="self.w is on cpu,\nnot there", name="self.w", device="cpu", **given)


@pytest.fixture
def net(tmp_path):
    """A file with what Lightning does not move."""
    path = tmp_path / "net.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def run(*arguments, cwd, text=None, **env):
    """Run the command line."""
    command = [sys.executable, "-W", "ignore", "-m", "lightning_devcheck", *arguments]
    root = str(Path(__file__).parents[1])
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": root, "PYTHONIOENCODING": "utf-8", **env}
    given = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, **given)


def test_a_line_as_compilers_write_it(net):
    """A finding is one line that editors jump to; columns are characters."""
    report = Report((finding(str(net)),))
    line = render_concise(report, str(net.parent))
    assert line == "net.py:7:37: error mixed-devices self.w is on cpu, not there"


def test_a_file_elsewhere_is_named_in_full(net, tmp_path):
    """A path that is not below the folder stays absolute."""
    report = Report((finding(str(net)),))
    assert render_concise(report, str(tmp_path / "other")).startswith(f"{net}:7:37: ")


def test_a_line_without_columns(net):
    """Where only the line is known, its first column is named."""
    origin = Origin(str(net), 7, "self.weights = torch.ones(4)")
    assert render_concise(Report((finding(str(net), origin=origin),)), str(net.parent)).startswith("net.py:7:1: ")


def test_a_finding_without_a_line():
    """What no line is known of is said without one."""
    report = Report((finding("x.py", origin=None),))
    assert render_concise(report, "/") == "(no line): error mixed-devices self.w is on cpu, not there"
    assert render_github(report, "/").startswith("::error title=mixed-devices::self.w is on cpu,%0Anot there%0A")


def test_no_finding_no_line():
    """A clean report is empty."""
    assert render_concise(Report(()), "/") == ""
    assert render_github(Report(()), "/") == ""
    assert json.loads(render_sarif(Report(()), "/"))["runs"][0]["results"] == []


def test_a_workflow_command(net):
    """GitHub's own characters are escaped; the words are what, why and fix."""
    command = render_github(Report((finding(str(net)),)), str(net.parent))
    assert command == (
        "::error file=net.py,line=7,endLine=7,col=37,endColumn=50,title=mixed-devices::"
        "self.w is on cpu,%0Anot there%0Abecause: 100 %25,%0Areally%0Amend it"
    )


def test_a_workflow_command_of_a_note_in_a_strange_file():
    """A note is a notice; commas and colons of a path are escaped."""
    place = Origin("/a/b,c:d.py", 3, "x")
    command = render_github(Report((finding("", severity="note", origin=place),)), "/a")
    assert command.startswith("::notice file=b%2Cc%3Ad.py,line=3,endLine=3,title=mixed-devices::")


def test_ranks_of_one_cause_are_one_line(net):
    """What several ranks saw is told once."""
    report = Report((finding(str(net)), finding(str(net), global_rank=1)), world_size=2)
    assert len(render_concise(report, "/").splitlines()) == 1
    assert len(json.loads(render_sarif(report, "/"))["runs"][0]["results"]) == 1


def test_sarif(net):
    """A result has its rule, level, place and edits."""
    edit = Edit(str(net), 7, 38, 7, 51, "torch.ones(4)", "torch.ones(4, device=x.device)")
    used = Origin(str(net), 8, "self.scale = torch.ones(2)")
    log = json.loads(render_sarif(Report((finding(str(net), edits=(edit,), used=used),)), str(net.parent)))
    (found,) = log["runs"]
    (result,) = found["results"]
    region = {"startLine": 7, "startColumn": 37, "endLine": 7, "endColumn": 50}
    assert (log["version"], found["tool"]["driver"]["name"]) == ("2.1.0", "lightning-devcheck")
    assert [rule["id"] for rule in found["tool"]["driver"]["rules"]] == ["mixed-devices"]
    assert (result["ruleId"], result["level"]) == ("mixed-devices", "error")
    (location,) = result["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "net.py"}, "region": region}
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 8
    (change,) = result["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    assert replacement["insertedContent"]["text"] == "torch.ones(4, device=x.device)"
    assert replacement["deletedRegion"] == region


@pytest.mark.parametrize("form", ["concise", "github", "sarif"])
def test_scan_in_each_format(net, form):
    """`scan` writes each format to standard output, and nothing else."""
    done = run("scan", "--format", form, "net:Net", cwd=net.parent)
    assert done.returncode == 1, done.stderr
    expected = {
        "concise": "net.py:7:9: note unregistered-tensor self.weights is a tensor that the module does not register",
        "github": "::notice file=net.py,line=7,endLine=7,",
        "sarif": "{",
    }
    assert done.stdout.startswith(expected[form])
    if form == "sarif":
        assert len(json.loads(done.stdout)["runs"][0]["results"]) == 2


def test_annotations_are_relative_to_the_checkout(net):
    """GitHub's own variable says where the checkout is."""
    done = run("scan", "--format", "github", "net:Net", cwd=net.parent, GITHUB_WORKSPACE=str(net.parents[1]))
    assert done.stdout.startswith(f"::notice file={net.parent.name}/net.py,")


def test_explain_in_a_format(tmp_path):
    """`explain` writes the same formats."""
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 7, in step\n    return x * w\n'
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\n"
    )
    done = run("explain", "--format", "concise", cwd=tmp_path, text=text)
    assert done.returncode == 1
    assert done.stdout.startswith("train.py:7:1: error mixed-devices ")


def test_known_findings_fail_nothing(net):
    """A finding of the baseline is counted; a new one fails; lines that move stay known."""
    known = net.parent / "known.json"
    run("scan", "--format", "json", "--output", str(known), "net:Net", cwd=net.parent)
    done = run("scan", "--baseline", str(known), "net:Net", cwd=net.parent)
    assert (done.returncode, "2 known findings left out, 0 new ones" in done.stderr) == (0, True)
    more = SCRIPT.replace("import torch\n", "import torch\n\n\n", 1) + "        self.new = torch.ones(3)\n"
    net.write_text(more, encoding="utf-8")
    done = run("scan", "--format", "concise", "--baseline", str(known), "net:Net", cwd=net.parent)
    assert done.returncode == 1
    words = "self.new is a tensor that the module does not register"
    assert done.stdout == f"net.py:11:9: note unregistered-tensor {words}\n"


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"format": "other"}', "\x00"])
def test_no_baseline(tmp_path, content):
    """A file that is no report is wrong usage, said in a line."""
    path = tmp_path / "known.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    done = run("scan", "--baseline", str(path), "net:Net", cwd=tmp_path)
    assert done.returncode == 2
    words = "is no report: write one with --format json --output" if content is not None else "No such file"
    assert words in done.stderr
    assert "Traceback" not in done.stderr
