"""A1: `dev.py` sets up once, needs no network the second time, and says what to do when it cannot."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
OLD_PYTHON = "#!/bin/sh\nexit 9\n"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`dev.py` as a module, at work on a copy of the lock files."""
    spec = importlib.util.spec_from_file_location("dev_under_test", ROOT / "dev.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for source in [ROOT / "pyproject.toml", *ROOT.glob("requirements*.txt")]:
        (tmp_path / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(module, "ROOT", tmp_path)
    servers = tmp_path / module.REFERENCE_SERVERS
    servers.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        (servers / name).write_bytes((ROOT / module.REFERENCE_SERVERS / name).read_bytes())
    for name, place in {"VENV": ".venv", "BIN": ".venv/bin", "PYTHON": ".venv/bin/python"}.items():
        monkeypatch.setattr(module, name, tmp_path / place)
    return module


class Commands:
    """Stands for the processes which `dev.py` starts: keeps what it was asked and answers as told."""

    def __init__(self, dev: ModuleType) -> None:
        self.asked: list[str] = []
        self.failing: tuple[str, ...] = ()
        self._bin: Path = dev.BIN

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        line = " ".join(command)
        self.asked.append(line)
        if "-m venv" in line:
            self._bin.mkdir(parents=True)
            (self._bin / "python").touch()
        if "requirements-uv.txt" in line and "-uv.txt" not in self.failing:
            (self._bin / "uv").touch()
        status = int(any(part in line for part in self.failing))
        return subprocess.CompletedProcess(command, status, stdout="the last words")

    def drained(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def commands(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Commands:
    fake = Commands(dev)
    monkeypatch.setattr(dev, "_captured", fake)
    return fake


def test_A1_the_first_set_up_installs_with_hashes_and_the_second_asks_nobody(
    dev: ModuleType, commands: Commands
) -> None:
    dev.set_up(dev.RUN)
    first = commands.drained()
    dev.set_up(dev.RUN)
    assert [line for line in first if "requirements" in line and "--require-hashes" not in line] == []
    assert any(line.endswith("-e .") or "-e . " in line for line in first)
    assert commands.drained() == []


def test_running_does_not_install_what_only_tests_need(dev: ModuleType, commands: Commands) -> None:
    dev.set_up(dev.RUN)
    assert not any("requirements-dev" in line for line in commands.drained())
    dev.set_up(dev.DEV)
    assert any("requirements-dev" in line for line in commands.drained())
    dev.set_up(dev.RUN)
    assert commands.drained() == []


def test_a_changed_lock_file_is_installed_without_making_the_environment_anew(
    dev: ModuleType, commands: Commands
) -> None:
    dev.set_up(dev.RUN)
    commands.drained()
    with (dev.ROOT / "requirements.txt").open("a") as lock:
        lock.write("# changed\n")
    dev.set_up(dev.RUN)
    again = commands.drained()
    assert any("-r requirements.txt" in line for line in again)
    assert not any("-m venv" in line for line in again)


def test_a_checkout_that_was_moved_gets_a_new_environment(dev: ModuleType, commands: Commands) -> None:
    dev.set_up(dev.RUN)
    commands.drained()
    (dev.VENV / ".penguin-venv").write_text("/elsewhere 3.11")
    (dev.BIN / "python").unlink()
    (dev.BIN / "uv").unlink()
    dev.BIN.rmdir()
    dev.set_up(dev.RUN)
    assert any("-m venv --clear" in line for line in commands.drained())


@pytest.mark.parametrize("failing", [("-uv.txt",), ("bin/uv pip",)])
def test_pip_does_the_work_where_uv_cannot(dev: ModuleType, commands: Commands, failing: tuple[str, ...]) -> None:
    commands.failing = failing
    dev.set_up(dev.RUN)
    assert any("-m pip install --require-hashes -r requirements-build.txt" in line for line in commands.drained())


def test_a_failed_set_up_is_explained_and_tried_again(dev: ModuleType, commands: Commands) -> None:
    commands.failing = ("requirements.txt",)
    with pytest.raises(dev.DevError, match=r"(?s)requirements.txt.*failed in.*package registry.*the last words"):
        dev.set_up(dev.RUN)
    commands.failing = ()
    commands.drained()
    dev.set_up(dev.RUN)
    assert any("requirements.txt" in line for line in commands.drained())


def test_an_old_python_hands_over_to_a_newer_one_on_the_path(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _script(tmp_path / "old" / "python3", OLD_PYTHON)
    new = tmp_path / "new" / "python3.12"
    new.parent.mkdir()
    new.symlink_to(sys.executable)
    started: list[list[str]] = []
    monkeypatch.setattr(dev.os, "execv", lambda _path, arguments: started.append(arguments))
    monkeypatch.setattr(dev.sys, "executable", str(old))
    monkeypatch.setattr(dev.sys, "argv", ["dev.py", "run", "--version"])
    monkeypatch.setenv("PATH", f"{old.parent}:{new.parent}")
    dev.ensure_interpreter()
    assert started == [[str(new), str(dev.ROOT / "dev.py"), "run", "--version"]]


def test_without_any_suitable_python_it_says_what_to_install(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _script(tmp_path / "old" / "python3", OLD_PYTHON)
    monkeypatch.setattr(dev.sys, "executable", str(old))
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(dev.DevError, match=r"older than Python 3\.11.*apt-get install python3 python3-venv"):
        dev.ensure_interpreter()


def test_every_check_runs_and_one_failure_fails_the_whole(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "set_up", lambda _level: None)
    monkeypatch.setattr(dev, "bring_system_packages", lambda: None)
    monkeypatch.setattr(dev, "bring_reference_servers", lambda: None)
    monkeypatch.setattr(dev, "_stages", lambda _arguments: [("first", ["false"]), ("second", ["true"])])
    assert dev.test([]) == 1
    assert [line[:13] for line in capsys.readouterr().out.splitlines()[-2:]] == ["FAILED first ", "ok     second"]


@pytest.fixture
def bare_machine(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with apt-get and root's rights, and nothing that the tests need."""
    monkeypatch.setattr(dev.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr(dev.os, "geteuid", lambda: 0)


@pytest.mark.usefixtures("bare_machine")
def test_root_gets_the_programs_that_the_tests_need(dev: ModuleType, commands: Commands) -> None:
    dev.bring_system_packages()
    assert commands.drained() == [
        "apt-get update",
        "apt-get install -y --no-install-recommends bubblewrap perl-base git",
    ]


@pytest.mark.usefixtures("bare_machine")
def test_nothing_is_asked_for_where_the_programs_are(
    dev: ModuleType, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev.shutil, "which", lambda name: f"/usr/bin/{name}")
    dev.bring_system_packages()
    assert commands.drained() == []


@pytest.mark.usefixtures("bare_machine")
def test_whoever_may_not_install_programs_is_told_which_and_goes_on(
    dev: ModuleType, commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev.os, "geteuid", lambda: 1000)
    dev.bring_system_packages()
    assert commands.drained() == []
    assert "tests that need it are skipped; as root: apt-get install" in capsys.readouterr().err


@pytest.mark.usefixtures("bare_machine")
def test_programs_that_cannot_be_installed_do_not_keep_the_tests_from_running(
    dev: ModuleType, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.failing = ("apt-get update",)
    dev.bring_system_packages()
    assert commands.drained() == ["apt-get update"]
    assert "that failed, and tests that need it are skipped" in capsys.readouterr().err


@pytest.fixture
def with_npm(dev: ModuleType, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A machine that has npm, and a checkout that is set up."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(dev.shutil, "which", lambda name: f"/usr/bin/{name}")
    dev.VENV.mkdir()
    return commands


def test_N20_the_reference_servers_are_installed_once_for_each_lock_file(dev: ModuleType, with_npm: Commands) -> None:
    dev.bring_reference_servers()
    (line,) = with_npm.drained()
    assert line.startswith(f"npm ci --prefix {dev.VENV}/mcp-servers --ignore-scripts ")
    dev.bring_reference_servers()
    assert with_npm.drained() == []
    (dev.ROOT / dev.REFERENCE_SERVERS / "package-lock.json").write_text("{}")
    dev.bring_reference_servers()
    assert with_npm.drained() == [line]


def test_without_npm_the_reference_servers_are_left_out_and_that_is_said(
    dev: ModuleType, with_npm: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(dev.shutil, "which", lambda _name: None)
    dev.bring_reference_servers()
    assert with_npm.drained() == []
    assert "no npm, tests against the MCP reference servers are skipped" in capsys.readouterr().err


def test_an_npm_that_fails_is_told_tried_again_and_fatal_only_on_a_build_server(
    dev: ModuleType, with_npm: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_npm.failing = ("npm ci",)
    dev.bring_reference_servers()
    told = capsys.readouterr().err
    assert "tests against the MCP reference servers are skipped: `npm ci" in told
    assert "the last words" in told
    monkeypatch.setenv("CI", "true")
    with pytest.raises(dev.DevError, match=r"(?s)npm ci.*the last words"):
        dev.bring_reference_servers()
    with_npm.failing = ()
    with_npm.drained()
    dev.bring_reference_servers()
    assert len(with_npm.drained()) == 1


def test_the_checks_come_in_order_and_pytest_gets_the_rest(dev: ModuleType) -> None:
    stages = dev._stages(["--long", "-k", "x"])
    assert [name for name, _ in stages] == ["ruff check", "ruff format", "mypy", "import-linter", "pytest"]
    assert stages[-1][1][-3:] == ["--long", "-k", "x"]


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["nonsense"], 2), (["--help"], 0)])
def test_without_a_known_command_it_shows_its_commands(
    dev: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int
) -> None:
    assert dev.main(arguments) == status
    shown = capsys.readouterr().out
    assert [name for name in dev.COMMANDS if f"python3 dev.py {name}" not in shown] == []


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path
