"""N6, D22: what a command's environment is made of, with a real bash as login shell."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from penguin.environment import shell_environment
from penguin.environment.following import follow
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import FIXED, ShellEnvironment, command_shell, login_shell_of

NO_MARK: dict[str, str] = {}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer for start-up files than a user is to wait."""
    monkeypatch.setattr(shell_environment, "CAPTURE_TIMEOUT", 30.0)


def captured(home: Path, profile: str, base: dict[str, str] | None = None, **settings: Any) -> ShellEnvironment:
    home.mkdir(exist_ok=True)
    (home / ".bash_profile").write_text(profile)
    start = {"HOME": str(home), "SHELL": command_shell(), "PATH": "/usr/bin:/bin"} | (base or {})
    environment = ShellEnvironment(base=start, **settings)
    environment.capture(NO_MARK)
    return environment


def test_N6_start_up_files_of_the_login_shell_count(tmp_path: Path) -> None:
    environment = captured(tmp_path, "export FROM_PROFILE='two\nlines'\necho noise\nNOT_EXPORTED=1")
    variables = environment.variables(NO_MARK)
    assert variables["FROM_PROFILE"] == "two\nlines"
    assert environment.problem is None
    assert not {"NOT_EXPORTED", "SHLVL", "PWD", "_", "noise"} & variables.keys()
    assert FIXED.items() <= variables.items()


def test_N6_they_are_read_once(tmp_path: Path) -> None:
    environment = captured(tmp_path, f"echo run >>{tmp_path}/log")
    environment.capture(NO_MARK)
    assert (tmp_path / "log").read_text() == "run\n"


def test_N6_an_activated_virtual_environment_stays_in_front(tmp_path: Path) -> None:
    environment = captured(tmp_path, "PATH=/opt/own/bin:/usr/bin", {"PATH": "/venv/bin:/usr/bin"})
    assert environment.variables(NO_MARK)["PATH"] == "/venv/bin:/opt/own/bin:/usr/bin"


@pytest.mark.parametrize("profile", ["SLEEP", "exit 3", "kill -9 $$"])
def test_N6_a_broken_start_up_file_is_told_and_keeps_nothing_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, is_running: Any, long_sleep: str
) -> None:
    if profile == "SLEEP":
        monkeypatch.setattr(shell_environment, "CAPTURE_TIMEOUT", 0.3)
    environment = captured(tmp_path, profile.replace("SLEEP", long_sleep), {"KEPT": "yes"})
    assert environment.captured
    assert environment.problem is not None
    assert "could not be read" in environment.problem
    assert environment.variables(NO_MARK)["KEPT"] == "yes"
    assert not is_running(long_sleep)


def test_N6_a_daemon_of_a_start_up_file_holds_nothing_up(tmp_path: Path, long_sleep: str) -> None:
    environment = captured(tmp_path, f"({long_sleep} & echo $! >{tmp_path}/pid); export LATE=1")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert environment.variables(NO_MARK)["LATE"] == "1"
    assert environment.problem is None


def test_D22_secrets_are_taken_away_wherever_they_come_from(tmp_path: Path) -> None:
    environment = captured(
        tmp_path,
        "export OPENAI_API_KEY=sk-test NAMED=sk-test",
        {"ANTHROPIC_AUTH_TOKEN": "sk-test", "PENGUIN_HOME": "sk-test", "MY_API_KEY": "passed", "GH_TOKEN": "t"},
        hidden=["NAMED"],
        allowed=["MY_*"],
        vault={"PAGER": "mine", "SECRET": "v"},
    )
    variables = environment.variables({"PENGUIN_CUSTODY": "id"})
    assert "sk-test" not in variables.values()
    assert (variables["MY_API_KEY"], variables["GH_TOKEN"], variables["PENGUIN_CUSTODY"]) == ("passed", "t", "id")
    assert (variables["PAGER"], variables["SECRET"]) == ("mine", "v")


def test_N6_a_shell_that_does_not_speak_sh_is_not_asked() -> None:
    assert login_shell_of({"SHELL": "/usr/sbin/nologin"}) == command_shell()
    assert login_shell_of({"SHELL": "/no/such/bash"}) == command_shell()
    assert login_shell_of({"SHELL": "/bin/sh"}) == "/bin/sh"


@pytest.mark.anyio
async def test_N6_two_first_commands_share_one_capture(tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_text(f"echo run >>{tmp_path}/log; export CAPTURED=1")
    base = {"HOME": str(tmp_path), "SHELL": command_shell(), "PATH": "/usr/bin:/bin"}
    sessions = CommandSessions(environment=ShellEnvironment(base=base))
    said: list[str] = []

    async def run() -> None:
        command = await sessions.start("echo $CAPTURED", tmp_path)
        assert await follow(command, said.append, 10) == "over"
        sessions.forget(command)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(run)
    await sessions.aclose()
    assert "".join(said) == "1\n1\n"
    assert (tmp_path / "log").read_text() == "run\n"


def test_N6_a_slow_login_shell_may_give_back_its_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed outright, the start-up files of a version manager leave a lock that blocks every later shell."""
    lock = tmp_path / "lock"
    (tmp_path / ".bash_profile").write_text(f"trap 'rm -f {lock}; exit 1' TERM EXIT\ntouch {lock}\nsleep 60 & wait\n")
    monkeypatch.setattr(shell_environment, "CAPTURE_TIMEOUT", 0.5)
    monkeypatch.setattr(shell_environment, "_END_GRACE", 30.0)
    environment = ShellEnvironment(base={"HOME": str(tmp_path), "SHELL": "/bin/bash", "PATH": "/usr/bin:/bin"})
    environment.capture({})
    assert "timed out" in (environment.problem or "")
    assert not lock.exists()
