"""What is built and installed: contents, metadata, entry points, and what a bare installation can do."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import lightning_devcheck
from lightning_devcheck._version import __version__

ROOT = Path(__file__).parents[1]

pytest.importorskip("build", reason="needs the build package")


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The wheel, the source distribution, and a folder where the wheel is installed without its dependencies."""
    folder = tmp_path_factory.mktemp("packaging")
    # a build writes into its source tree
    ignore = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "shared", "lightning_logs")
    source = shutil.copytree(ROOT, folder / "source", ignore=ignore)
    call("-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source))
    (wheel,), (sdist,) = (sorted((folder / "dist").glob(end)) for end in ("*.whl", "*.tar.gz"))
    site = folder / "site"
    call("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    return {"wheel": wheel, "sdist": sdist, "site": site}


def call(*arguments, cwd=None, path=None):
    """Run Python with these arguments; it must succeed. Returns what it wrote."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"PYTHONPATH": str(path)} if path else {})}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def metadata(dist):
    with zipfile.ZipFile(dist["wheel"]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(wheel.read(name).decode())


def test_wheel_holds_the_package_and_nothing_else(dist):
    """Every module and the marker of types are in the wheel; tests, docs and examples are not."""
    with zipfile.ZipFile(dist["wheel"]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = Path(lightning_devcheck.__file__).parent
    modules = {f"lightning_devcheck/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")}
    assert names == modules | {"lightning_devcheck/py.typed"}


def test_source_distribution_can_be_built_from(dist):
    """The source distribution holds what a build needs and the licence."""
    with tarfile.open(dist["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"setup.cfg", "pyproject.toml", "README.md", "LICENSE", "lightning_devcheck/__init__.py"} <= names


def test_metadata_renders_on_an_index(dist):
    """Twine has nothing to say about the two files."""
    pytest.importorskip("twine")
    output = call("-m", "twine", "check", "--strict", str(dist["wheel"]), str(dist["sdist"]))
    assert output.count("PASSED") == 2


def test_version_stands_in_one_place(dist):
    """The built version is that of ``_version.py``, and no other file repeats it."""
    assert metadata(dist)["Version"] == lightning_devcheck.__version__ == __version__
    for name in ("setup.cfg", "pyproject.toml", "CITATION.cff", "docs/conf.py", "README.md"):
        assert __version__ not in (ROOT / name).read_text(encoding="utf-8"), name


def test_three_runtime_dependencies(dist):
    """Without an extra, pip installs torch, pytorch-lightning and torchmetrics and what they need."""
    required = [line for line in metadata(dist).get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in required) == ["pytorch-lightning", "torch", "torchmetrics"]


def test_console_script_and_module_run_from_the_wheel(dist):
    """``lightning-devcheck`` and ``python -m lightning_devcheck`` show their help from an installed wheel."""
    output = call("-m", "lightning_devcheck", "--help", cwd=dist["site"], path=dist["site"])
    for word in ("run", "scan", "explain"):
        assert word in output
    assert call(str(dist["site"] / "bin" / "lightning-devcheck"), "--help", path=dist["site"]) == output


def test_entry_points_name_what_exists(dist):
    """Each entry point of the wheel can be loaded."""
    code = (
        "from importlib.metadata import distribution as d\n"
        "for point in d('lightning-devcheck').entry_points: print(point.group, callable(point.load()))"
    )
    lines = call("-c", code, cwd=dist["site"], path=dist["site"]).splitlines()
    assert "console_scripts True" in lines
    assert "lightning.pytorch.callbacks_factory True" in lines
    assert "pytorch_lightning.callbacks_factory True" in lines


def link_runtime_dependencies(folder):
    """Fill a folder with links to what an installation without extras brings, as pip would resolve it."""
    folder.mkdir()
    wanted = [(name, "") for name in ("torch", "pytorch-lightning", "torchmetrics")]
    for name, extra in wanted:  # grows while it is read
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # a local build of torch leaves out what it does not need
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))))
        for requirement in map(Requirement, found.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                new = [(requirement.name, extra) for extra in ("", *requirement.extras)]
                wanted += [pair for pair in new if pair not in wanted]
    return folder


def test_runs_with_runtime_dependencies_only(dist, tmp_path):
    """With runtime dependencies alone, all public names import and a simulated loss is checked."""
    code = """
import importlib.util, torch, lightning_devcheck
for name in lightning_devcheck.__all__:
    assert getattr(lightning_devcheck, name) is not None
with lightning_devcheck.simulate_cuda(devices=1):
    model = torch.nn.Linear(2, 1).to("cuda")
    print(lightning_devcheck.check_devices(model(torch.ones(1, 2, device="cuda")).mean().cpu(), model).findings[0].rule)
print([name for name in ("pytest", "matplotlib", "jsonargparse", "lightning") if importlib.util.find_spec(name)])
"""
    path = f"{dist['site']}{os.pathsep}{link_runtime_dependencies(tmp_path / 'runtime')}"
    output = call("-S", "-W", "ignore", "-c", code, cwd=tmp_path, path=path)
    assert output.splitlines()[-2:] == ["loss-device", "[]"]
