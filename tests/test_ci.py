"""What CI runs is what the README says, and every file names the same lowest versions."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
TEST_COMMAND = "pip install -c constraints.txt '.[test]' && pytest"


def text_of(name):
    """The text of a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def lowest():
    """The lowest versions that setup.cfg allows, by package; Python's is one of them."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    options = setup["options"]
    required = map(Requirement, options["install_requires"].split())
    versions = {one.name: str(one.specifier).removeprefix(">=") for one in required}
    return {"python": options["python_requires"].removeprefix(">="), **versions}


@pytest.mark.parametrize("name", ["README.md", ".ci/run"])
def test_the_test_command_is_the_same(name):
    """README and CI hold the same test command, word for word."""
    assert TEST_COMMAND in text_of(name).splitlines()


@pytest.mark.parametrize("name", ["run", "oldest", "environment"])
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_ci_scripts_are_shell(name):
    """Each script of CI is one that bash can read, and CI reaches it."""
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / name)], check=True, timeout=60)
    assert name == "run" or f"bash .ci/{name}" in text_of(".ci/run") + text_of(".ci/oldest")


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_readme_names_the_lowest_versions(name):
    """Both READMEs name the lowest versions that setup.cfg allows."""
    words = text_of(name)
    for package, version in lowest().items():
        spelled = rf"{package}(?: \(?[^,，、]*\)?)? {re.escape(version)}(?![\d.]\d)"
        assert re.search(spelled, words, re.IGNORECASE), (package, version)


def test_badges_are_true():
    """Each badge of the README says what setup.cfg says."""
    versions = lowest()
    versions["lightning"] = versions["pytorch-lightning"]
    badges = dict(re.findall(r"badge/(python|torch|lightning)-([\d.]+)%2B-", text_of("README.md")))
    assert badges == {name: versions[name] for name in ("python", "torch", "lightning")}
    assert "license = Apache-2.0" in text_of("setup.cfg")
    assert "badge/license-Apache--2.0-" in text_of("README.md")


def test_compatibility_table_names_the_lowest_versions():
    """The table of versions has the lowest ones of setup.cfg."""
    rows = dict(re.findall(r"^\| ([\w-]+)[^|]*\| ([\d.]+) \|", text_of("docs/compatibility.md"), re.MULTILINE))
    assert {name.lower(): version for name, version in rows.items()} == lowest()


def test_both_lightnings_have_one_lowest_version():
    """The two namespaces of Lightning are tested from the same version on."""
    bounds = dict(re.findall(r"^ +(lightning|pytorch-lightning)>=(.+)$", text_of("setup.cfg"), re.MULTILINE))
    assert bounds["lightning"] == bounds["pytorch-lightning"] == lowest()["pytorch-lightning"]
