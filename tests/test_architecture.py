"""The shape of the package: imports go down, private names stay in one file, importing is cheap, code is not dense."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_devcheck
from tests.helpers.density import broken_limits, tokens_by_statement

PACKAGE = Path(lightning_devcheck.__file__).parent
LAYERS = (
    ("_version", "_records", "_compat", "_statements", "_torch_names"),
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
# files from before there were limits on density: the list only gets shorter
EXEMPT = frozenset(
    {
        "__init__.py",
        "_activation.py",
        "_agreement.py",
        "_arguments.py",
        "_assignments.py",
        "_callback.py",
        "_case.py",
        "_causes.py",
        "_check.py",
        "_cli.py",
        "_collect.py",
        "_compat.py",
        "_deadline.py",
        "_devices.py",
        "_diagnose.py",
        "_errors.py",
        "_explain/__init__.py",
        "_explain/_backward.py",
        "_explain/_bindings.py",
        "_explain/_calls.py",
        "_explain/_captured.py",
        "_explain/_catalogue.py",
        "_explain/_decode.py",
        "_explain/_frames.py",
        "_explain/_judge.py",
        "_explain/_kept.py",
        "_explain/_live.py",
        "_explain/_locate.py",
        "_explain/_log.py",
        "_explain/_logged.py",
        "_explain/_made.py",
        "_explain/_mentions.py",
        "_explain/_messages.py",
        "_explain/_names.py",
        "_explain/_nodes.py",
        "_explain/_optimizer.py",
        "_explain/_paste.py",
        "_explain/_scene.py",
        "_explain/_special.py",
        "_explain/_transfer.py",
        "_graph.py",
        "_launch.py",
        "_metric/__init__.py",
        "_metric/_names.py",
        "_metric/_stack.py",
        "_metric/_state.py",
        "_metric/_sums.py",
        "_metric/_terms.py",
        "_metric/_views.py",
        "_metric/_weights.py",
        "_moves.py",
        "_naming.py",
        "_output.py",
        "_places.py",
        "_policy.py",
        "_preflight.py",
        "_reads.py",
        "_records.py",
        "_render/_dot.py",
        "_render/_html.py",
        "_render/_lanes.py",
        "_render/_text.py",
        "_report.py",
        "_rules.py",
        "_saved.py",
        "_scan.py",
        "_script.py",
        "_simulate/__init__.py",
        "_simulate/_answers.py",
        "_simulate/_autocast.py",
        "_simulate/_backward.py",
        "_simulate/_batch_norm.py",
        "_simulate/_collectives.py",
        "_simulate/_compat.py",
        "_simulate/_cuda.py",
        "_simulate/_cuda_rest.py",
        "_simulate/_distributed.py",
        "_simulate/_formulas.py",
        "_simulate/_generators.py",
        "_simulate/_host.py",
        "_simulate/_indexing.py",
        "_simulate/_lazy.py",
        "_simulate/_load.py",
        "_simulate/_making.py",
        "_simulate/_modes.py",
        "_simulate/_module.py",
        "_simulate/_nested.py",
        "_simulate/_operator_mode.py",
        "_simulate/_operators.py",
        "_simulate/_patch.py",
        "_simulate/_placing.py",
        "_simulate/_rules.py",
        "_simulate/_sparse.py",
        "_simulate/_state.py",
        "_simulate/_tensor.py",
        "_simulate/_types.py",
        "_simulate/_unknown.py",
        "_simulate/_valueless.py",
        "_simulate/_warning_lines.py",
        "_simulate/_wrapper.py",
        "_source.py",
        "_statements.py",
        "_target.py",
        "_training.py",
        "_tree.py",
        "_values.py",
    }
)
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


def test_imports_go_down():
    """A module imports from lower layers only; inside one folder the files import each other."""
    wrong = []
    for path in MODULES:
        own = subject(path)
        if own in ("__init__", "__main__"):
            continue
        for name in imported(path):
            parts = name.split(".")
            if parts[0] != "lightning_devcheck" or parts[1] == own:
                continue
            # the top package has no layer: nobody inside imports it
            if LAYER.get(parts[1], len(LAYERS)) >= LAYER[own]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}, which is not below it")
    assert wrong == []


def test_public_names():
    """The package offers its eleven names and the version, nothing else."""
    assert set(lightning_devcheck.__all__) == PUBLIC | {"__version__"}
    assert all(getattr(lightning_devcheck, name) is not None for name in lightning_devcheck.__all__)


def test_public_names_are_documented():
    """Every public name has a docstring."""
    assert all((getattr(lightning_devcheck, name).__doc__ or "").strip() for name in PUBLIC)


def is_private(dotted: str) -> bool:
    """Whether a part of a dotted name, after the first, is private."""
    return any(part.startswith("_") and not part.startswith("__") for part in dotted.split(".")[1:])


def test_private_names_of_torch_stay_in_compat():
    """``torch._…`` and ``lightning…._…`` are imported or read in ``_compat`` alone."""
    hosts = ("torch.", "lightning.", "pytorch_lightning.", "lightning_fabric.", "torchmetrics.")
    wrong = []
    for path in MODULES:
        if path.stem == "_compat":
            continue
        used = {name for name in imported(path) if name.startswith(hosts)}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
                used.add(ast.unparse(node))
        wrong += [f"{path.relative_to(PACKAGE)} uses {name}" for name in sorted(used) if is_private(name)]
    assert wrong == []


def test_import_draws_nothing_heavy():
    """Importing the package brings neither torch, Lightning nor plotting with it."""
    code = (
        "import sys, lightning_devcheck; heavy = ('torch', 'matplotlib', 'pytorch_lightning', 'lightning', 'graphviz');"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_limits_on_density():
    """Every file keeps the limits of ``tests/helpers/density.py``, but for those that are still exempt."""
    broken = {str(path.relative_to(PACKAGE)): broken_limits(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {name: limits for name, limits in broken.items() if limits and name not in EXEMPT} == {}
    assert [name for name in sorted(EXEMPT) if not broken.get(name)] == [], "keeps the limits now: take it off EXEMPT"


def test_density_does_not_depend_on_the_layout():
    """A statement counts the same on one line and on several."""
    spread = "total = sum(\n    term.mean()\n    for term in terms\n)\n"
    line = "total = sum(term.mean() for term in terms)\n"
    assert tokens_by_statement(spread, ast.parse(spread)) == tokens_by_statement(line, ast.parse(line)) == [14]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("x = a if b else c\n", "100.0 conditional expressions in 100 statements"),
        ("x = a if b else c if d else e\n", "1.0 nested conditional expressions"),
        ("for x in a if b else c:\n    pass\n", "1.0 loops over a conditional expression"),
        ("x = [y for y in (a if b else c)]\n", "1.0 loops over a conditional expression"),
        ("def f():\n" + "    g()\n" * 61, "61.0 code lines in a function"),
        ("\n" * 601, "601.0 lines"),
        (f"x = '{'a' * 95}'\n", "101.0 columns"),
        ("f(a + b + c + d)\n", "10.0 tokens a statement"),
        ("f()\n" * 8 + "x = a + b + c + d + e + f + g + h + i\n" * 2, "19.0 tokens in nine statements of ten"),
    ],
)
def test_what_is_too_dense(text, limit):
    """Each limit is noticed."""
    assert limit in broken_limits(text)
