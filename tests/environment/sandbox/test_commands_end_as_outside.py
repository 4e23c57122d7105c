"""N25, N6-N11: a confined command ends, is interrupted, waits and is killed exactly as one outside: the same tests."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.environment.tools import test_exec_command, test_input_command

from penguin.environment import custody
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Services
from penguin.environment.tools.definitions import EXEC_COMMAND

pytestmark = pytest.mark.anyio

DIFFERENT = {
    # about the tools, not about commands
    *("test_N7_the_grace_period_is_two_seconds", "test_N6_the_definition_is_what_the_specification_says"),
    *("test_N7_the_definitions_are_short", "test_an_environment_of_its_own_ends_its_commands_when_closed"),
    "test_D22_commands_do_not_see_what_the_harness_keeps",
    # below, with the difference
    *("test_N6_a_command_leads_its_own_session_and_group", "test_N6_a_terminal_on_request"),
    *("test_D21_the_workspace_itself_may_go", "test_no_descriptor_and_no_zombie_stays"),
    # how long it takes is measured by bench/sandbox.py
    "test_N6_no_wait_after_the_exit",
    # about text, which no sandbox sees
    "test_D20_a_progress_bar_collapses",
}


@pytest.fixture
async def commands(make_sandbox: Any, tmp_path: Path) -> AsyncIterator[CommandSessions]:
    # The tests talk to their commands through files beside the workspace.
    sandbox = make_sandbox("workspace-write", writable=(str(tmp_path),))
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3, sandbox=sandbox)
    yield sessions
    await sessions.aclose()


def _take_over(module: Any) -> None:
    for name, value in vars(module).items():
        is_fixture = type(value).__name__ == "FixtureFunctionDefinition"
        if is_fixture or (name.startswith("test_") and inspect.isfunction(value) and name not in DIFFERENT):
            globals()[name] = value


_take_over(test_exec_command)
_take_over(test_input_command)


async def test_N6_its_session_has_no_number_inside(run: Any) -> None:
    """It leads one outside, without a terminal of the user's; numbers of that are not told in its namespace."""
    assert (await run("ps -o pgid=,sid= -p $$")).split() == ["0", "0"]


async def test_N6_the_terminal_on_request_has_another_name(run: Any) -> None:
    seen = await run("test -t 0 && test -t 1 && test -t 2 && tty && echo hello >/dev/tty && stty size", tty=True)
    assert seen.splitlines() == ["/dev/console", "hello", "40 120"]
    assert await run("kill -HUP $$", tty=True) == "[killed by SIGHUP]"


async def test_D21_the_workspace_can_be_emptied_and_not_removed(run: Any, workspace: Path) -> None:
    (workspace / "file").touch()
    await run("rm -rf $PWD")
    assert not (workspace / "file").exists()
    assert await run("pwd") == f"{workspace}\n"


async def test_N8_no_descriptor_and_no_keeper_stays(run: Any, commands: CommandSessions) -> None:
    await run("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for cmd in ("exit 3", "kill -SEGV $$", "sleep 1000 & echo $!"):
        await run(cmd)
    await run("cat", tty=True, run_in_background=True)
    await commands.aclose()
    # fewer than before: names that were held are let go
    assert len(list(Path("/proc/self/fd").iterdir())) < before
    assert not custody.members(commands._scope)


@pytest.mark.parametrize("number", [1, 2, 9, 10, 11, 13, 15])
async def test_N25_every_death_by_signal_is_told_from_an_exit_code(run: Any, number: int) -> None:
    name = signal.Signals(number).name
    assert await run(f"kill -{number} $$") == f"[killed by {name}]"
    assert (await run(f"exit {128 + number}")).startswith(f"[exit code: {128 + number}")


async def test_N25_a_command_sees_the_descriptors_it_was_given_and_no_other(run: Any) -> None:
    # ls has a fourth, for the directory
    assert await run("ls /proc/self/fd") == "0\n1\n2\n3\n"


async def test_N25_the_environment_is_the_same(run: Any, make_desk: Any) -> None:
    outside = CommandSessions(environment=ShellEnvironment(login_shell=False))
    desk = make_desk(builtin=[EXEC_COMMAND], services=Services(command_sessions=outside))
    plain = (await desk.call("exec_command", cmd="env | sort", description="test")).output
    await outside.aclose()
    confined = await run("env | sort")
    differing = {line.partition("=")[0] for line in {*plain.splitlines()} ^ {*confined.splitlines()}}
    assert differing <= {"PENGUIN_CUSTODY", "PYTEST_CURRENT_TEST"}


async def test_N9_N25_custody_sees_what_runs_inside(run: Any, commands: CommandSessions) -> None:
    await run("sleep 1000.25 & disown", yield_time_ms=5000)
    names = {process.command for process in custody.members(commands._scope)}
    assert names >= {"sleep", "bwrap"}


def test_N9_N25_nothing_survives_a_harness_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    script = f"""
import anyio
from pathlib import Path
from penguin.environment import custody
from penguin.environment.processes import CommandSessions
from penguin.environment.sandbox.command_sandbox import CommandSandbox
from penguin.environment.sandbox.settings import SandboxSettings
from penguin.environment.following import follow

async def main():
    workspace = Path({str(tmp_path / "ws")!r})
    sandbox = CommandSandbox(SandboxSettings("workspace-write"), workspace, private=Path({str(tmp_path / "p")!r}))
    sessions = CommandSessions(sandbox=sandbox)
    cmd = "PENGUIN_CUSTODY= setsid -f sleep 1000.77; trap '' TERM; echo up; sleep 1000.77"
    command = await sessions.start(cmd, workspace)
    await follow(command, lambda text: print(text, end="", flush=True), 60)

anyio.run(main)
"""
    harness = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == "up\n"
        harness.kill()
    deadline = time.monotonic() + 20
    while any(b"1000.77" in _command_line(entry) for entry in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
