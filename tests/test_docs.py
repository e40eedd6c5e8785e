"""The documentation is true: docstring examples and pages run, commands work, links lead somewhere, the site builds."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_devcheck
from lightning_devcheck._explain.messages import CATALOGUE
from lightning_devcheck._report.rules import RULES
from tests.helpers.beside import CASES, both, entry

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^( *)```(\{?[\w-]*\}?)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# importing Lightning and torch's compiler replaces functions of torch for good: before the first test, not in it
OBJECTS = {
    name: getattr(lightning_devcheck, name) for name in sorted(set(lightning_devcheck.__all__) - {"__version__"})
}
importlib.import_module("torch._dynamo")
# what other tests or .ci/run run, by the first words of the command
ELSEWHERE = {
    "pip install": "tests/test_packaging.py and .ci/run",
    "pytest": "this run, and tests/test_examples.py",
    "ruff": ".ci/run",
    "mypy": ".ci/run",
    "sphinx-build": "test_site_builds",
    "bash .ci/": ".ci/run",
    "python -m tests.benchmarks": "the benchmarks' own run",
}


def blocks(page, *languages):
    """The page's fenced blocks in these languages, without their indentation."""
    for indent, language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language in languages:
            yield re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def file_in(block):
    """The name and text of the file that a block tells the reader to write (its first line is ``# NAME.py``)."""
    name = block.partition("\n")[0]
    return (name[2:], block) if re.fullmatch(r"# [\w/.]+\.(py|yaml)", name) else None


def commands(page):
    """The commands of a page's ``bash`` blocks, one a line, comments dropped."""
    for block in blocks(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.split(r"\s&&\s", line.partition(" #")[0].strip()):
                if command and not command.startswith("#"):
                    yield command


def run(command, folder):
    """Run a shell command as a reader would who installed the checkout and sits in the folder."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    script = tools / "lightning-devcheck"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W ignore -m lightning_devcheck "$@"\n')
    script.chmod(0o755)
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" -W ignore "$@"\n')
    (tools / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout


def plain(line):
    """A line with its blanks and its measured times made equal."""
    return re.sub(r"\b\d+(\.\d+)? ?s\b", "N s", " ".join(line.split()))


def sessions(block):
    """The commands of a ``console`` block, each with the lines it is said to print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, [plain(line) for line in output.splitlines() if line.strip() not in ("", "...")]


def missing(expected, output):
    """The first expected line that the output does not have at or after the place of the one before it."""
    lines = iter([plain(line) for line in output.splitlines()])
    return next((line for line in expected if line not in lines), None)


@pytest.mark.parametrize("name", OBJECTS)
def test_docstring_examples_run(name):
    """Every public name has an example, or its methods have, and it shows what it says."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    tests = doctest.DocTestFinder(recurse=False).find(OBJECTS[name], name)
    for test in tests:
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 0 or name in {"Finding", "DeviceMismatchError", "DeviceCheckWarning"}


@pytest.mark.parametrize("name", OBJECTS)
def test_docstrings_describe_every_parameter(name):
    """Each parameter of a public function or class is described, and each function says what it raises."""
    made = OBJECTS[name]
    text = inspect.getdoc(made) or ""
    if not (isinstance(made, type) and issubclass(made, Warning)):  # the built-in class has no signature
        for parameter in inspect.signature(made).parameters:
            assert re.search(rf"^ +(\*\*)?{parameter}: ", text, flags=re.MULTILINE), f"{name}({parameter}=…)"
    assert isinstance(made, type) or "Raises:" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_blocks_parse(page):
    """Every Python block of every page is Python."""
    for block in blocks(page, "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_says_what_it_is(page):
    """No block is left out of these tests for having no language, or one that they do not know."""
    known = {"bash", "console", "python", "yaml", "text", "diff", "{eval-rst}", "{include}", "{toctree}"}
    assert {language for _, language, _ in FENCE.findall(page.read_text(encoding="utf-8"))} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    """Every link to a file of the project leads to one, and its anchor to a heading there."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"


def anchors(page):
    """The anchors of a page: its headings as GitHub and MyST spell them, and the named targets."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))


def test_every_rule_has_its_section():
    """Each rule that a report can name is a section of rules.md."""
    assert set(RULES) <= anchors(ROOT / "docs/rules.md")


def rules_by_message(page, prefix):
    """The rules that the section of each message links to."""
    text = page.read_text(encoding="utf-8")
    sections = re.findall(
        rf"^\({prefix}-([\w-]+)\)=\n## [^\n]+\n(.*?)(?=^\([\w-]+\)=$|^## )", text, re.MULTILINE | re.DOTALL
    )
    return {name: set(re.findall(r"rules\.md#([\w-]+)", section)) for name, section in sections}


def test_both_error_pages_send_to_the_same_rules():
    """Each message is on the English and on the Chinese page, with the same rules."""
    english = rules_by_message(ROOT / "docs/errors.md", "error")
    assert len(english) >= len(CATALOGUE)
    assert rules_by_message(ROOT / "docs/errors.zh-CN.md", "zh") == english


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.english)
def test_mistakes_beside_torch_are_real(case, tmp_path):
    """Each of the ten mistakes gives the message and the report that both error pages show."""
    message, report = both(case, tmp_path)
    for page, heading in (("errors.md", case.english), ("errors.zh-CN.md", case.chinese)):
        shown = entry(heading, message, report)
        # where this fails and the new words are right: python -m tests.helpers.beside
        assert shown in (ROOT / "docs" / page).read_text(encoding="utf-8"), f"{page} should show:\n{shown}"


def test_every_known_message_has_its_section_in_chinese():
    """Each message that `explain` recognises is a section of the Chinese error catalogue."""
    assert {f"zh-{message.id}" for message in CATALOGUE} <= anchors(ROOT / "docs/errors.zh-CN.md")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```console" in page.read_text(encoding="utf-8")], ids=lambda page: page.name
)
def test_page_works_when_followed(page, tmp_path):
    """Followed from top to bottom, a page's files and commands give the output that it shows."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page, "python", "yaml", "console"):
        if file := file_in(block):
            (tmp_path / file[0]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file[0]).write_text(file[1], encoding="utf-8")
        for command, expected in sessions(block):
            _, output = run(command, tmp_path)
            assert (command, missing(expected, output)) == (command, None), output


def test_shown_help_is_the_help(tmp_path):
    """A page that shows a command's help shows all of it, and nothing else."""
    shown = [one for page in PAGES for block in blocks(page, "console") for one in sessions(block)]
    helps = [(command, lines) for command, lines in shown if command.endswith(" --help")]
    assert helps
    for command, lines in helps:
        _, output = run(command, tmp_path)
        assert [plain(line) for line in output.splitlines() if line.strip()] == lines, command


def test_readme_shows_what_its_command_prints(tmp_path):
    """The report below the README's first command is the one that the command prints."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    readme = ROOT / "README.md"
    command = next(command for command in commands(readme) if command.startswith("lightning-devcheck"))
    shown = next(blocks(readme, "text"))
    _, output = run(command, tmp_path)
    assert missing([plain(line) for line in shown.splitlines() if line], output) is None, output


def test_chinese_readme_shows_the_report_of_the_tutorial():
    """The report of the Chinese README is the one that the tutorial's first run prints, which a test compares."""
    shown = list(blocks(ROOT / "README.zh-CN.md", "text"))[1]
    printed = "\n".join(blocks(ROOT / "docs/tutorial.md", "console"))
    assert missing([plain(line) for line in shown.splitlines() if line], printed) is None


def test_workflow_is_valid():
    """The GitHub Actions example is YAML with the keys that a workflow has, and its run is one of this page's."""
    yaml = pytest.importorskip("yaml")
    (workflow,) = [text for text in blocks(ROOT / "docs/ci.md", "yaml") if "runs-on" in text]
    data = yaml.safe_load(workflow)
    assert set(data) == {"name", True, "jobs"}  # YAML reads the key `on` as true
    steps = data["jobs"]["preflight"]["steps"]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert any(step.get("run", "").startswith("lightning-devcheck run ") for step in steps)


@pytest.mark.parametrize(
    "command", sorted({command for page in PAGES for command in commands(page)}), ids=lambda command: command[:60]
)
def test_command_runs(command, tmp_path):
    """Each command of a page is known to the project and does not fail for a wrong option or a missing file."""
    if any(command.startswith(words) for words in ELSEWHERE):
        return
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in filter(None, map(file_in, blocks(ROOT / "docs/tutorial.md", "python"))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "train.log").write_text(
        "Traceback (most recent call last):\nRuntimeError: Expected all tensors to be on the same device, "
        "but found at least two devices, cuda:0 and cpu!\n"
    )
    (tmp_path / "devices.json").write_text(lightning_devcheck.Report().to_json())
    code, output = run(command, tmp_path)
    assert code in (0, 1), output


def test_site_builds(tmp_path):
    """Sphinx builds the site without a warning."""
    for module in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(module)
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    api = (tmp_path / "site/api.html").read_text(encoding="utf-8")
    assert all(f"lightning_devcheck.{name}" in api for name in OBJECTS)
