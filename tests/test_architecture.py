"""The shape of the package: imports go down, private names stay in one file, importing is cheap, code is not dense."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_devcheck
from lightning_devcheck._explain.catalogue import CATALOGUE
from lightning_devcheck._report.rules import RULES
from tests.helpers.density import broken_limits, tokens_by_statement
from tests.helpers.plan import MODULES, NAMES, ORDER, PACKAGE, TOP, imported, picture, room_of, sort_files, upward

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
# files from before there were limits on density: the list only gets shorter
EXEMPT = frozenset(
    {
        "__init__.py",
        "_check/activation.py",
        "_check/arguments.py",
        "_check/callback.py",
        "_check/check.py",
        "_compat.py",
        "_explain/__init__.py",
        "_explain/backward.py",
        "_explain/catalogue.py",
        "_explain/culprit.py",
        "_explain/frames.py",
        "_explain/live.py",
        "_explain/locate.py",
        "_explain/mentions.py",
        "_explain/messages.py",
        "_explain/names.py",
        "_explain/optimizer.py",
        "_explain/paste.py",
        "_explain/scene.py",
        "_explain/special.py",
        "_judge/backward.py",
        "_judge/case.py",
        "_judge/causes.py",
        "_judge/moves.py",
        "_judge/places.py",
        "_metric/__init__.py",
        "_metric/_stack.py",
        "_metric/_sums.py",
        "_metric/_terms.py",
        "_metric/_views.py",
        "_metric/_weights.py",
        "_observe/inert.py",
        "_observe/module_tree.py",
        "_report/dot.py",
        "_report/errors.py",
        "_report/html.py",
        "_report/lanes.py",
        "_report/records.py",
        "_report/report.py",
        "_report/rules.py",
        "_report/text.py",
        "_run/child.py",
        "_run/cli.py",
        "_run/collector.py",
        "_run/deadline.py",
        "_run/preflight.py",
        "_run/spool.py",
        "_simulate/__init__.py",
        "_simulate/api/cuda.py",
        "_simulate/api/cuda_rest.py",
        "_simulate/api/device_queries.py",
        "_simulate/api/distributed.py",
        "_simulate/api/function_mode.py",
        "_simulate/api/indexing.py",
        "_simulate/api/lazy.py",
        "_simulate/api/load.py",
        "_simulate/api/making.py",
        "_simulate/api/module.py",
        "_simulate/api/sparse.py",
        "_simulate/api/warning_lines.py",
        "_simulate/compat.py",
        "_simulate/host_reads.py",
        "_simulate/kernels/attention.py",
        "_simulate/kernels/autocast.py",
        "_simulate/kernels/batch_norm.py",
        "_simulate/kernels/engine.py",
        "_simulate/ops/dispatch.py",
        "_simulate/ops/placement.py",
        "_simulate/ops/run.py",
        "_simulate/ops/table.py",
        "_simulate/patch.py",
        "_simulate/shapes/collectives.py",
        "_simulate/shapes/known.py",
        "_simulate/shapes/run.py",
        "_simulate/state.py",
        "_simulate/tensor/generators.py",
        "_simulate/tensor/legacy_types.py",
        "_simulate/tensor/simulated.py",
        "_simulate/tensor/wrapper.py",
        "_source/files.py",
        "_source/naming.py",
        "_source/statements.py",
    }
)
PUBLIC = {"DeviceCheck", "LossAccumulator", "check_devices", "scan", "preflight", "simulate_cuda", "explain"}
PUBLIC |= {"Report", "Finding", "DeviceMismatchError", "DeviceCheckWarning"}


# what the judge makes findings of
RECORDS = ("Evidence", "Culprit", "Writing", "HostUse", "Unregistered")
RECORDS += ("Replaced", "MovedState", "KeptGraph", "Expectation", "GraphRecord", "TensorRecord")


def parsed(path: Path) -> ast.Module:
    """A file of the package as a tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def test_a_room_imports_only_what_stands_to_its_left():
    """The rooms stand in one line; the top package is imported by nobody inside."""
    assert upward() == []


def test_no_circle():
    """No file and no folder imports itself, by way of whatever others."""
    assert sort_files()


def test_at_most_sixteen_rooms():
    """The package has few rooms at its top, and each of them has its place in the line."""
    rooms = set(map(room_of, NAMES))
    assert len(rooms) <= 16
    assert rooms - set(TOP) <= set(ORDER)


def test_picture_of_the_rooms():
    """The picture in CONTRIBUTING.md is the one that ``python -m tests.helpers.plan`` draws."""
    assert f"```text\n{picture()}\n```" in CONTRIBUTING.read_text(encoding="utf-8")


def test_findings_are_made_in_one_room():
    """The judge alone makes findings; the metric's two are there, where importing it stays cheap."""
    makers = set()
    for path in MODULES:
        calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        names = {ast.unparse(call.func).rpartition(".")[2] for call in calls}
        if names & {"make_finding", "Finding"}:
            makers.add(str(path.relative_to(PACKAGE)))
    elsewhere = {name for name in makers if not name.startswith("_judge/")}
    # torchmetrics imports the metric alone: it may draw the report with it and nothing more
    assert elsewhere == {"_report/rules.py", "_metric/_terms.py"}
    assert len(makers) > len(elsewhere)


def test_each_rule_has_one_judge():
    """One file judges each rule; an exception may break those of a backward, or the catalogue's."""
    judges: dict[str, set[str]] = {rule: set() for rule in RULES}
    for name in ("backward", "training", "host_uses", "scan", "culprit"):
        for node in ast.walk(parsed(PACKAGE / "_judge" / f"{name}.py")):
            text = getattr(node, "value", None)
            if not isinstance(node, ast.Constant) or not isinstance(text, str):
                continue
            # the beginning of an f-string stands for all rules that begin so
            named = {rule for rule in RULES if rule == text or (text == "unregistered-" and rule.startswith(text))}
            for rule in named:
                judges[rule].add(name)
    by_message = {message.rule for message in CATALOGUE}
    assert {rule for rule, files in judges.items() if not files} <= by_message
    several = {rule for rule, files in judges.items() if len(files - {"culprit"}) > 1}
    assert several == {"replaced-parameter", "unregistered-parameter"}


def test_the_judge_is_handed_plain_data():
    """No field of a record that the judge takes is a callable, and each record is frozen."""
    found = []
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and node.name in RECORDS:
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                assert not any("Callable" in ast.unparse(part) for part in fields), node.name
                assert "frozen=True" in "".join(map(ast.unparse, node.decorator_list)), node.name
                found.append(node.name)
    assert sorted(found) == sorted(RECORDS)


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
    """``torch._…`` and ``lightning…._…`` are imported or read in two files alone, called compat."""
    hosts = ("torch.", "lightning.", "pytorch_lightning.", "lightning_fabric.", "torchmetrics.")
    wrong = []
    for path in MODULES:
        if path.stem in ("_compat", "compat"):
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
