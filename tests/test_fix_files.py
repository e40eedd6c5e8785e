"""Which files a fix may touch, and how they are written."""

from __future__ import annotations

import importlib.util
import inspect
import io
import linecache
import os
import runpy
import stat
import subprocess
import sys

import pytest

from lightning_devcheck._fix.overlay import Overlay, digest_of, lay_over, read_ran
from lightning_devcheck._fix.places import Places
from lightning_devcheck._fix.project import project_of, refusal, write_refusal, write_whole
from lightning_devcheck._report.records import Edit, Origin
from lightning_devcheck._simulate.patch import Patches


@pytest.fixture
def source(tmp_path):
    """A file of a project, and what a run read of it."""
    path = tmp_path / "model.py"
    path.write_bytes(b"a = 1\n")
    return path, {str(path): {digest_of(b"a = 1\n")}}


def test_a_file_that_ran_may_be_edited(source, tmp_path):
    """The project's own file, as it ran, is edited."""
    path, ran = source
    assert refusal(path, tmp_path, ran) == ""
    assert write_refusal(path) == ""


def test_a_file_that_has_changed(source, tmp_path):
    """A file that somebody has changed since the run is left alone."""
    path, ran = source
    path.write_bytes(b"a = 2\n")
    assert refusal(path, tmp_path, ran) == f"{path} has changed since the run"


def test_a_file_that_changed_between_processes(source, tmp_path):
    """Where two processes of a run read different contents, nobody knows what was proven."""
    path, ran = source
    ran[str(path)].add(digest_of(b"a = 3\n"))
    assert refusal(path, tmp_path, ran) == f"{path} has changed since the run"


def test_a_file_that_was_not_read(source, tmp_path):
    """Code that came from elsewhere, under the name of a file, says nothing of that file."""
    path, _ = source
    assert refusal(path, tmp_path, {}) == f"{path} was not read from the disk by the run"


def test_a_file_of_another_project(source, tmp_path):
    """What is not below the project is not touched: a symbolic link out of it leads there too."""
    path, ran = source
    root = tmp_path / "project"
    root.mkdir()
    (root / "model.py").symlink_to(path)
    real = (root / "model.py").resolve()
    assert refusal(real, root, ran) == f"{path} is not below {root}"


def test_an_installed_file(tmp_path):
    """An installed file is not touched, also where it lies below the project."""
    path = tmp_path / "env" / "site-packages" / "other" / "model.py"
    assert refusal(path, tmp_path, {}) == f"{path} is installed, not the project's own"


def test_a_file_that_is_gone(source, tmp_path):
    """A file that is no longer there is not made anew."""
    path, ran = source
    path.unlink()
    assert refusal(path, tmp_path, ran) == f"{path} is no file"


def test_a_read_only_file(source):
    """What nobody may write is not replaced."""
    path, _ = source
    path.chmod(0o444)
    assert write_refusal(path) == f"{path} is read-only"


def test_a_hard_link(source, tmp_path):
    """A file with two names would be torn into two."""
    path, _ = source
    os.link(path, tmp_path / "again.py")
    assert "has another name (a hard link)" in write_refusal(path)


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.cfg"])
def test_the_project_of_a_script(tmp_path, mark):
    """The project is the nearest marked folder above the script."""
    (tmp_path / mark).touch()
    inner = tmp_path / "src" / "train"
    inner.mkdir(parents=True)
    assert project_of(inner / "train.py") == tmp_path.resolve()


def test_a_launcher_belongs_to_no_project(tmp_path, monkeypatch):
    """Below an installed launcher the project is that of the working directory."""
    (tmp_path / "setup.cfg").touch()
    monkeypatch.chdir(tmp_path)
    launcher = tmp_path.parent / "site-packages" / "torch" / "run.py"
    assert project_of(launcher) == tmp_path.resolve()


def test_writing_keeps_the_mode(source):
    """A script that may be executed still may, and no other file is left behind."""
    path, _ = source
    path.chmod(0o755)
    write_whole(path, b"a = 2\n")
    assert path.read_bytes() == b"a = 2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(28, "No space left on device"), PermissionError(1, "not permitted")]
)
@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_an_interrupt_in_the_middle(source, monkeypatch, error, step):
    """Whatever happens on the way, the old file is whole and nothing else is there."""
    path, _ = source

    def fail(*args):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write_whole(path, b"a = 2\n")
    assert path.read_bytes() == b"a = 1\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.fixture
def overlaid(tmp_path):
    """A module on the disk, compiled, of which a run sees another text."""
    path = tmp_path / "overlaid_model.py"
    path.write_text("def value():\n    return 1\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(path)], check=True)
    folder = tmp_path / "run"
    folder.mkdir()
    lay_over(folder, {path: b"# edited\n\ndef value():\n    return 2\n"})
    return path, folder


def load(path):
    """Import a file under a name of its own."""
    spec = importlib.util.spec_from_file_location("overlaid_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_import_sees_the_overlay(overlaid):
    """The edited text is compiled, inspected and shown; the disk and its compiled files stay as they are."""
    path, folder = overlaid
    before = {file: file.read_bytes() for file in path.parent.rglob("*.py*")}
    with Patches(Overlay(folder).stand_ins()):
        module = load(path)
        assert module.value() == 2
        assert inspect.getsource(module.value) == "def value():\n    return 2\n"
    linecache.clearcache()
    assert {file: file.read_bytes() for file in path.parent.rglob("*.py*")} == before
    assert load(path).value() == 1
    assert read_ran(folder) == {str(path): {digest_of(b"# edited\n\ndef value():\n    return 2\n")}}


def test_a_script_sees_the_overlay(overlaid):
    """`runpy`, which runs scripts and the main module of spawned processes, reads the edited text."""
    path, folder = overlaid
    with Patches(Overlay(folder).stand_ins()):
        assert runpy.run_path(str(path))["value"]() == 2
    assert runpy.run_path(str(path))["value"]() == 1
    assert io.open_code.__module__ in ("io", "_io")


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_see_the_overlay(overlaid, method):
    """Processes that `multiprocessing` starts see the edited text, however it starts them."""
    path, folder = overlaid
    script = path.parent / "main.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "from pathlib import Path\n"
        "from overlaid_model import value\n"
        "if __name__ == '__main__':\n"
        "    from lightning_devcheck._fix.overlay import start\n"
        "    start(sys.argv[1])\n"
        "    sys.modules.pop('overlaid_model')\n"
        "    from overlaid_model import value\n"
        "    with multiprocessing.get_context(sys.argv[2]).Pool(1) as pool:\n"
        "        print(pool.apply(value))\n"
    )
    command = [sys.executable, str(script), str(folder), method]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout == "2\n", result.stderr


@pytest.mark.parametrize(("line", "before"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 4), (6, 4), (7, 5), (8, 7), (9, 8)])
def test_lines_before_the_edits(tmp_path, line, before):
    """Each line of an edited file is told by the one that stood in its place."""
    name = str(tmp_path / "model.py")
    edits = [
        Edit(name, 2, 0, 2, 0, "", "new\n"),
        Edit(name, 4, 0, 4, 1, "x", "x\ny"),
        Edit(name, 5, 0, 6, 1, "a\nb", "ab"),
    ]
    assert Places.of(edits).before(Origin(name, line)) == (os.path.realpath(name), before)
