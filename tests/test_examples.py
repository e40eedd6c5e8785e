"""Every example runs on a machine without a GPU and shows what it says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PYTHON = [sys.executable, "-W", "ignore"]
RUN = [*PYTHON, "-m", "lightning_devcheck", "run"]


def run(*command):
    """Run a command from the checkout's root and return its exit code and all it wrote."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("plain_loop.py", "loss 1.064"), ("fabric_loop.py", "loss "), ("gan.py", "32 optimizer steps")],
)
def test_example_trains(name, said):
    """Without a mistake an example trains to the end and reports nothing."""
    code, output = run(*PYTHON, f"examples/{name}")
    assert code == 0, output
    assert said in output
    assert "Rule:" not in output


@pytest.mark.parametrize(
    ("name", "what", "rule"),
    [
        ("plain_loop.py", "self.temperature wants a gradient and is on cpu, the model is on cuda:0", "leaf-device"),
        ("fabric_loop.py", "the loss is on cpu, the model is on cuda:0", "loss-device"),
        ("gan.py", 'labels = labels.to("cuda:0")', "wrong-rank-device"),
    ],
)
def test_example_shows_its_mistake(name, what, rule):
    """With the mistake an example stops and the report says what and which rule."""
    code, output = run(*PYTHON, f"examples/{name}", "--mistake")
    assert code == 1, output
    assert what in output
    assert f"Rule: {rule} (docs/rules.md#{rule})" in output


def test_cli_trains_on_simulated_devices():
    """A LightningCLI script with the callback in YAML runs unmodified on simulated devices."""
    code, output = run(*RUN, "examples/cli.py", "fit", "--config", "examples/cli.yaml")
    assert code == 0, output


def test_cli_mistake_is_found():
    """The same script with the tensor that stays behind is reported, and the command fails."""
    code, output = run(*RUN, "examples/cli.py", "fit", "--config", "examples/cli.yaml", "--model.smoothing", "0.1")
    assert code == 1, output
    assert "self.prior" in output


def test_preflight_example_is_a_passing_pytest():
    """The pytest example passes, its planted bug being the thing it asserts."""
    code, output = run(*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/preflight_test.py")
    assert code == 0, output
    assert "3 passed" in output


def test_ddp_example_runs():
    """Two processes sum their losses with one collective."""
    code, output = run(*PYTHON, "examples/ddp_losses.py")
    assert code == 0, output


def test_notebook_runs_and_draws_its_reports():
    """The notebook runs from top to bottom, and each report is drawn as HTML."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    pages = [o["data"]["text/html"] for cell in notebook.cells for o in cell.get("outputs", []) if "data" in o]
    assert len(pages) == 3
    assert "the loss is on cpu" in pages[0]
    assert "target" in pages[1]
    assert "No findings" in pages[2]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_stay_short(path):
    """An example can be read at once: under 80 lines of code, its docstrings and blank lines not counted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    # no blank lines and no comments are left, and what one call spreads over lines is put on one
    assert sum(bool(line) for line in ast.unparse(tree).splitlines()) < 80
