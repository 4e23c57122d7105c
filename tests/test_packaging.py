"""A5: the wheel and the sdist are whole, and the wheel, installed where nothing else is, runs the demo."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
UV = Path(sys.executable).parent / "uv"


class Distributions(NamedTuple):
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The sdist, and the wheel made from it: a file the sdist lacks is then missing from the wheel too."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return Distributions(wheel, sdist)


def package_files() -> set[str]:
    files = (path for path in (SOURCE / "penguin").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE).as_posix() for path in files}


def test_A5_the_wheel_holds_every_file_of_the_package_and_nothing_else(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == package_files()
    assert "penguin/py.typed" in names
    assert "penguin/llm/catalog.toml" in names


def test_A5_the_wheel_carries_licence_and_command(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        commands = configparser.ConfigParser()
        commands.read_string(wheel.read(entry_points).decode())
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    assert dict(commands["console_scripts"]) == {"penguin": "penguin.cli.main:main"}


def test_A5_the_sdist_holds_source_tests_and_locks_and_no_stray_directory(built: Distributions) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"src/{name}" for name in package_files()} <= names
    assert {"dev.py", "requirements.txt", "requirements-dev.txt", "tests/test_packaging.py", "LICENSE"} <= names
    allowed = {"src", "tests", "decisions", "docs", "bench"}
    assert {name.partition("/")[0] for name in names if "/" in name} <= allowed


@pytest.fixture(scope="module")
def clean_environment(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` directory of a fresh environment that holds the wheel and its locked requirements."""
    if not UV.exists():
        pytest.skip("no uv here, so its cache cannot fill a clean environment without the network")
    home = tmp_path_factory.mktemp("clean")
    python = home / "venv" / "bin" / "python"
    requirements = str(ROOT / "requirements.txt")
    _uv("venv", "--python", sys.executable, str(home / "venv"))
    filled = _uv("pip", "install", "--python", str(python), "--require-hashes", "-r", requirements)
    if filled.returncode != 0:
        pytest.skip(f"uv's cache lacks the locked requirements: {filled.stderr.strip().splitlines()[0]}")
    installed = _uv("pip", "install", "--python", str(python), "--no-deps", str(built.wheel))
    assert installed.returncode == 0, installed.stderr
    return python.parent


def _uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    return subprocess.run(
        [str(UV), "--offline", *arguments], env=environment, check=False, capture_output=True, text=True
    )


def _penguin(bin_dir: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        # No trace of the environment that runs the tests: neither its packages nor its virtual environment.
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
        "HOME": str(cwd),
        "TMPDIR": str(cwd),
        "PENGUIN_HOME": str(cwd / "data"),
        "PATH": os.pathsep.join([str(bin_dir), "/usr/local/bin", "/usr/bin", "/bin"]),
    }
    return subprocess.run(
        [str(bin_dir / "penguin"), *arguments], cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )


def test_A5_the_installed_wheel_answers_with_its_version(clean_environment: Path, tmp_path: Path) -> None:
    done = _penguin(clean_environment, tmp_path, "--version")
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] in done.stdout


def test_A5_the_installed_wheel_runs_the_demo(clean_environment: Path, tmp_path: Path) -> None:
    done = _penguin(clean_environment, tmp_path, "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    # What the person is told to do next must be there, and the trace it names must exist.
    assert "penguin trace show" in done.stdout
    named = re.findall(r"/\S+\.jsonl", done.stdout)
    assert named, done.stdout
    assert all(Path(trace).stat().st_size > 0 for trace in named)


def test_a_python_without_the_package_does_not_see_it(clean_environment: Path, tmp_path: Path) -> None:
    """The clean environment proves something only when it cannot see the checkout."""
    where = [str(clean_environment / "python"), "-c", "import penguin; print(penguin.__file__)"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert not Path(found.strip()).is_relative_to(ROOT)
    assert shutil.which("penguin", path=str(clean_environment))
