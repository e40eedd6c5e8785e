"""The shape of the package: imports go down, private names stay in one file, importing is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_devcheck

PACKAGE = Path(lightning_devcheck.__file__).parent
LAYERS = (
    ("_version", "_records", "_compat", "_statements"),
    ("_assignments", "_case"),
    ("_places",),
    ("_moves",),
    ("_render", "_devices", "_source", "_rules", "_values"),
    ("_report", "_tree", "_naming", "_causes", "_arguments"),
    ("_errors", "_simulate", "_saved", "_deadline"),
    ("_graph", "_scan", "_policy", "_reads"),
    ("_metric", "_agreement"),
    ("_diagnose", "_explain"),
    ("_check", "_training"),
    ("_callback",),
    ("_activation",),
    ("_collect", "_launch"),
    ("_preflight", "_script", "_output", "_target"),
    ("_cli", "_pytest_plugin"),
    ("__init__", "__main__"),
)
LAYER = {module: number for number, modules in enumerate(LAYERS) for module in modules}
MODULES = sorted(PACKAGE.rglob("*.py"))
PUBLIC = {"DeviceCheck", "LossAccumulator", "check_devices", "scan", "preflight", "simulate_cuda", "explain"}
PUBLIC |= {"Report", "Finding", "DeviceMismatchError", "DeviceCheckWarning"}


def subject(path: Path) -> str:
    """The module or folder directly below the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions, outside ``if TYPE_CHECKING``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_module_has_a_layer():
    """A new module is placed in the table of layers."""
    assert {subject(path) for path in MODULES} <= set(LAYER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path):
    """A module imports from lower layers only; inside one folder the files import each other."""
    own = subject(path)
    if own in ("__init__", "__main__"):
        return
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "lightning_devcheck" or parts[1] == own:
            continue
        assert parts[1] in LAYER, f"{own} imports the top package ({name})"
        assert LAYER[parts[1]] < LAYER[own], f"{own} imports {parts[1]}, which is not below it"


def test_public_names():
    """The package offers its eleven names and the version, nothing else."""
    assert set(lightning_devcheck.__all__) == PUBLIC | {"__version__"}
    assert all(getattr(lightning_devcheck, name) is not None for name in lightning_devcheck.__all__)


def test_public_names_are_documented():
    """Every public name has a docstring."""
    assert all((getattr(lightning_devcheck, name).__doc__ or "").strip() for name in PUBLIC)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_names_of_torch_stay_in_compat(path):
    """``torch._…`` and ``lightning…._…`` are imported or read in ``_compat`` alone."""
    if path.stem == "_compat":
        return
    for name in imported(path):
        private = any(part.startswith("_") and not part.startswith("__") for part in name.split(".")[1:])
        hosts = ("torch.", "lightning.", "pytorch_lightning.", "lightning_fabric.", "torchmetrics.")
        assert not (name.startswith(hosts) and private), f"{name} in {path.name}"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            private = any(part.startswith("_") and not part.startswith("__") for part in dotted.split(".")[1:])
            assert not (dotted.startswith("torch.") and private), f"{dotted} in {path.name}:{node.lineno}"


def test_import_draws_nothing_heavy():
    """Importing the package brings neither torch, Lightning nor plotting with it."""
    code = (
        "import sys, lightning_devcheck; heavy = ('torch', 'matplotlib', 'pytorch_lightning', 'lightning', 'graphviz');"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_no_file_is_long():
    """No file of the package passes 320 lines."""
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 320} == {}
