"""N6, N8, N11 and the shell cases D15-D22, with real processes."""

from __future__ import annotations

import inspect
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.support.deadline import Deadline

from penguin.environment import following
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Services
from penguin.environment.tools.definitions import EXEC_COMMAND

pytestmark = pytest.mark.anyio

SOON = 10.0
"""Seconds that even a busy machine does not need for what should be a moment; the commands would take far longer."""


@pytest.fixture
def run(shell: Any) -> Callable[..., Any]:
    async def run(cmd: str, **args: Any) -> str:
        answer = await shell.call("exec_command", cmd=cmd, description="test", **args)
        return str(answer.output)

    return run


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Children inherit ignored signals, and a test run started with ``&`` ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------- N6


def test_N7_the_grace_period_is_two_seconds() -> None:
    assert inspect.signature(CommandSessions).parameters["grace"].default == 2.0


def test_N6_the_definition_is_what_the_specification_says() -> None:
    parameters = EXEC_COMMAND.parameters
    assert list(parameters["properties"]) == [
        "cmd", "description", "workdir", "yield_time_ms", "run_in_background", "tty",
    ]  # fmt: skip
    assert parameters["required"] == ["cmd", "description"]
    assert len(msgspec.json.encode(EXEC_COMMAND.for_the_model())) / 4 <= 250
    assert EXEC_COMMAND.permission == "rw"


async def test_N6_output_and_error_come_in_order(run: Any) -> None:
    assert await run("echo one; echo two >&2; echo three") == "one\ntwo\nthree\n"


async def test_N6_says_the_exit_code_when_it_tells_something(run: Any) -> None:
    assert await run("echo out; exit 3") == "out\n[exit code: 3]"
    assert await run("true") == "[exit code: 0]"
    assert await run("kill -SEGV $$") == "[killed by SIGSEGV]"
    killed = await run("bash -c 'kill -KILL $$'; exit $?")
    assert killed.endswith("\n[exit code: 137, a process in it was killed by SIGKILL]")


async def test_N6_output_is_streamed_as_it_comes(shell: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def open_the_gate() -> None:
        deadline = Deadline()
        while "first\n" not in shell.deltas:
            deadline.check()
            await anyio.lowlevel.checkpoint()
        await anyio.Path(gate).write_text("go\n")

    async with anyio.create_task_group() as group:
        group.start_soon(open_the_gate)
        answer = await shell.call("exec_command", cmd=f"echo first; cat {gate}", description="test")
    assert shell.deltas == ["first\n", "go\n"]
    assert answer.output == "first\ngo\n"


async def test_N6_there_is_nothing_to_read_and_no_terminal(run: Any) -> None:
    assert await run("cat; test -t 0 || echo none; (: </dev/tty) 2>/dev/null || echo no terminal") == (
        "none\nno terminal\n"
    )


async def test_N6_a_command_leads_its_own_session_and_group(run: Any) -> None:
    pid, group, session = (await run("ps -o pid=,pgid=,sid= -p $$")).split()
    assert pid == group == session != str(os.getsid(0))


async def test_N6_workdir_is_relative_to_the_workspace(run: Any, workspace: Path) -> None:
    (workspace / "sub dir").mkdir()
    assert await run("pwd") == f"{workspace}\n"
    assert await run("pwd", workdir="sub dir") == f"{workspace}/sub dir\n"
    assert await run("pwd", workdir="/") == "/\n"


async def test_N6_nothing_carries_over_to_the_next_command(run: Any, workspace: Path) -> None:
    await run("cd /; export CARRIED=1")
    assert await run("pwd; echo ${CARRIED-unset}") == f"{workspace}\nunset\n"


async def test_N6_a_terminal_on_request(run: Any) -> None:
    seen = await run("test -t 0 && test -t 1 && test -t 2 && tty && echo hello >/dev/tty && stty size", tty=True)
    terminal, greeting, size = seen.splitlines()
    assert terminal.startswith("/dev/pts/")
    assert (greeting, size) == ("hello", "40 120")
    assert await run("exit 4", tty=True) == "[exit code: 4]"


async def test_N6_the_fixed_environment_keeps_programs_from_waiting_for_keys(run: Any) -> None:
    names = "TERM NO_COLOR PAGER GIT_PAGER GIT_EDITOR EDITOR GIT_TERMINAL_PROMPT VISUAL SSH_ASKPASS_REQUIRE"
    values = await run(f"for name in {names}; do echo ${{!name}}; done")
    assert values.split() == ["dumb", "1", "cat", "cat", "true", "true", "0", "true", "never"]
    assert await run("export TERM=xterm; echo $TERM") == "xterm\n"


async def test_N6_no_wait_after_the_exit(run: Any) -> None:
    # The quickest counts: on a busy machine any one of them may have to wait for a processor.
    durations = [math.inf]
    while min(durations) > 0.05 and len(durations) < 200:
        began = time.monotonic()
        await run("true")
        durations.append(time.monotonic() - began)
    assert min(durations) <= 0.05


async def test_N6_a_command_that_cannot_be_started_says_why(run: Any) -> None:
    assert "could not be started" in await run("echo nul \0 byte")


# ---------------------------------------------------------------- N7, as far as this tool goes


async def test_N7_a_command_that_outlives_its_time_goes_to_the_background(run: Any, commands: CommandSessions) -> None:
    output = await run("echo so far; exec sleep 100", yield_time_ms=1_000)
    assert output == "so far\n[still running after 1 s, now in the background as process p1]"
    assert [(each.process_id, each.words) for each in commands.states()] == [("p1", "running")]


async def test_N7_in_the_background_from_the_start(shell: Any, run: Any, commands: CommandSessions) -> None:
    began = time.monotonic()
    assert "in the background as process p1" in await run("sleep 100", run_in_background=True)
    assert time.monotonic() - began < SOON
    assert commands.states()[0].asked_for_background
    assert "p1: sleep 100" in commands.context_notes()
    assert shell.environment.context_notes() == commands.context_notes()


# ---------------------------------------------------------------- N8


async def test_N8_D15_a_background_child_does_not_hold_the_call(
    run: Any, commands: CommandSessions, is_running: Any
) -> None:
    began = time.monotonic()
    output = await run("sleep 1000 & echo started")
    assert time.monotonic() - began < SOON
    assert output.startswith("started\n[exit code: 0; still running in the background as process p1: sleep (pid ")
    pid = int(output.rpartition("(pid ")[2].rstrip(")]"))
    assert await run("echo next") == "next\n"
    await commands.aclose()
    assert not is_running(pid)


async def test_N8_a_survivor_that_does_not_hold_the_pipe_is_listed_too(run: Any) -> None:
    began = time.monotonic()
    output = await run("sleep 1000 >/dev/null 2>&1 & echo started")
    assert "still running in the background as process p1: sleep" in output
    assert time.monotonic() - began < SOON


async def test_N8_what_a_short_lived_grandchild_still_writes_is_not_lost(run: Any) -> None:
    assert await run("echo hi > >(sed s/h/H/)") == "Hi\n"


async def test_N8_a_survivor_that_never_stops_writing_does_not_hold_the_call(run: Any) -> None:
    began = time.monotonic()
    assert "still running in the background as process p1: yes" in await run("yes & exit 0")
    assert time.monotonic() - began < SOON


# ---------------------------------------------------------------- the shell cases


def _stubborn(sleep: str) -> str:
    return f"echo begun; trap '' TERM INT; sh -c \"trap '' TERM INT; {sleep}\" & wait; {sleep}"


async def test_D16_a_command_that_ignores_TERM_ends_with_its_time_limit(
    make_desk: Any, commands: CommandSessions, is_running: Any, long_sleep: str
) -> None:
    limited = msgspec.structs.replace(EXEC_COMMAND, timeout_ms=1_000)
    desk = make_desk(builtin=[limited], services=Services(command_sessions=commands))
    began = time.monotonic()
    answer = await desk.call("exec_command", cmd=_stubborn(long_sleep), description="test")
    assert time.monotonic() - began < SOON
    assert answer.stop_reason == "timeout"
    assert answer.output.startswith("begun\n")
    assert not is_running(long_sleep)


async def test_D16_and_with_an_interruption(shell: Any, is_running: Any, long_sleep: str) -> None:
    began = time.monotonic()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_interrupt_when, scope, lambda: "begun\n" in shell.deltas)
            await shell.call("exec_command", cmd=_stubborn(long_sleep), description="test")
    assert time.monotonic() - began < SOON
    answer = shell.answer()
    assert (answer.stop_reason, answer.output.splitlines()[0]) == ("aborted", "begun")
    assert not is_running(long_sleep)


async def test_an_interrupted_command_may_say_its_last_words(shell: Any) -> None:
    farewell = 'trap "echo farewell; exit" TERM; echo begun; while :; do sleep 0.01; done'
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_interrupt_when, scope, lambda: "begun\n" in shell.deltas)
            await shell.call("exec_command", cmd=farewell, description="test")
    assert shell.answer().output.splitlines().count("farewell") == 1


async def test_N9_an_interruption_reaches_detached_grandchildren(shell: Any, is_running: Any, long_sleep: str) -> None:
    cmd = f"setsid -f {long_sleep}; (setsid sh -c '{long_sleep} & wait' &); echo begun; {long_sleep}"
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_interrupt_when, scope, lambda: "begun\n" in shell.deltas)
            await shell.call("exec_command", cmd=cmd, description="test")
    assert not is_running(long_sleep)


async def _interrupt_when(scope: anyio.CancelScope, ready: Callable[[], bool]) -> None:
    deadline = Deadline()
    while not ready():
        deadline.check()
        await anyio.lowlevel.checkpoint()
    scope.cancel()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_D17_git_opens_no_editor(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "vi")
    monkeypatch.setenv("GIT_EDITOR", "vi")
    identity = "git -c user.name=t -c user.email=t@example.com"
    output = await run(
        f"git init -q g && cd g && {identity} commit --allow-empty -qm one"
        f" && {identity} commit --allow-empty --amend; echo rc=$?"
    )
    assert output.endswith("rc=0\n")
    assert await run("EDITOR=ed; echo $EDITOR") == "ed\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("configured", ["sequence.editor", "core.editor"])
async def test_D17_git_opens_no_editor_for_a_rebase(make_desk: Any, tmp_path: Path, configured: str) -> None:
    names = ("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR")
    theirs = dict.fromkeys(names, f"touch {tmp_path}/opened; false")
    environment = ShellEnvironment(base=os.environ | theirs, login_shell=False)
    sessions = CommandSessions(environment=environment)
    desk = make_desk(builtin=[EXEC_COMMAND], services=Services(command_sessions=sessions))
    git = "git -c user.name=t -c user.email=t@example.com"
    repository = f"git init -q g && cd g && git config {configured} false"
    commits = f"{git} commit --allow-empty -qm one && echo a >f && git add f && {git} commit -qm two"
    rebase = f"{git} rebase -q -i HEAD~1; echo rc=$?; GIT_SEQUENCE_EDITOR=false {git} rebase -q -i HEAD~1; echo rc=$?"
    answer = await desk.call("exec_command", cmd=f"{repository} && {commits} && {rebase}", description="test")
    await sessions.aclose()
    assert answer.output.startswith("rc=0\n")
    assert answer.output.endswith("rc=1\n")  # an explicit setting inside the command still wins
    assert not (tmp_path / "opened").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_D17_git_asks_for_no_password(make_desk: Any, tmp_path: Path) -> None:
    asking = tmp_path / "ask"
    asking.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    asking.chmod(0o755)
    theirs = {"GIT_ASKPASS": str(asking), "SSH_ASKPASS": str(asking)}
    sessions = CommandSessions(environment=ShellEnvironment(base=os.environ | theirs, login_shell=False))
    desk = make_desk(builtin=[EXEC_COMMAND], services=Services(command_sessions=sessions))
    cmd = "printf 'protocol=https\\nhost=h.example\\n' | git -c credential.helper= credential fill"
    answer = await desk.call("exec_command", cmd=cmd, description="test")
    await sessions.aclose()
    assert "terminal prompts disabled" in answer.output
    assert not (tmp_path / "asked").exists()


async def test_D18_output_that_is_not_utf8(run: Any) -> None:
    assert await run(r"printf 'a\xff\xfe\x00b\n'; printf '\xf0'") == "a\ufffd\ufffdb\n\ufffd"
    binary = await run("head -c 300 /bin/ls; printf '\\t\\001\\177\\r\\n'")
    assert "[exit code" not in binary
    assert not set(binary) & {*map(chr, range(32)), "\x7f"} - {"\t", "\n", "\r"}


async def test_D19_unbounded_output_costs_neither_memory_nor_the_end(run: Any, scratchpad: Path) -> None:
    output = await run("yes | head -c 33554432; echo the end")
    assert len(output) < 17_000
    assert "output cut" in output
    (archive,) = (scratchpad / "truncated-tool-output").iterdir()
    assert archive.stat().st_size <= 8 * 1024 * 1024
    assert archive.read_bytes().endswith(b"y\nthe end\n")


async def test_D19_endless_output_ends_with_the_time_limit(make_desk: Any, commands: CommandSessions) -> None:
    limited = msgspec.structs.replace(EXEC_COMMAND, timeout_ms=200)
    desk = make_desk(builtin=[limited], services=Services(command_sessions=commands))
    began = time.monotonic()
    answer = await desk.call("exec_command", cmd="yes", description="test")
    assert answer.stop_reason == "timeout"
    assert time.monotonic() - began < SOON


async def test_D20_a_progress_bar_collapses(run: Any) -> None:
    script = r"for i in $(seq 0 499); do printf '\rstep %3d/500' $i; done; echo; printf 'dos\r\nline\n'"
    assert await run(script) == "step 499/500\ndos\r\nline\n"


async def test_N11_an_unfinished_line_is_shown_after_a_silence(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.05)
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def answer_the_question() -> None:
        deadline = Deadline()
        while "Proceed? " not in shell.deltas:
            deadline.check()
            await anyio.lowlevel.checkpoint()
        await anyio.Path(gate).write_text("yes\n")

    async with anyio.create_task_group() as group:
        group.start_soon(answer_the_question)
        answer = await shell.call("exec_command", cmd=f"printf 'Proceed? '; cat {gate}", description="test")
    assert answer.output == "Proceed? yes\n"


async def test_D21_the_next_command_works_when_its_directory_is_gone(run: Any, workspace: Path) -> None:
    await run("mkdir -p w/x && cd w/x && rm -rf $PWD")
    assert await run("echo hello") == "hello\n"
    assert await run("echo hello", workdir="w/x") == (
        f"[tool error] workdir {workspace}/w/x does not exist; the command was not run. "
        f"The nearest directory is {workspace}/w."
    )
    assert await run("cd / && pwd") == "/\n"


async def test_D21_the_workspace_itself_may_go(run: Any, workspace: Path) -> None:
    await run("rm -rf $PWD")
    output = await run("pwd")
    assert output.startswith(f"{workspace.parent}\n[the workspace {workspace} no longer exists")


async def test_D22_commands_do_not_see_what_the_harness_keeps(
    make_desk: Any, monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    for name, value in {
        "OPENAI_API_KEY": "sk-test-1", "ANTHROPIC_API_KEY": "sk-test-2", "MY_PROVIDER_SECRET": "sk-test-3",
        "ALLOWED_API_KEY": "passed", "GH_TOKEN": "t", "PENGUIN_SERVER_PASSWORD": "sk-test-4",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    environment = ShellEnvironment(
        hidden={"MY_PROVIDER_SECRET"}, allowed={"ALLOWED_API_KEY"}, vault={"VAULTED": "v"}, login_shell=False
    )
    sessions = CommandSessions(environment=environment)
    desk = make_desk(builtin=[EXEC_COMMAND], services=Services(command_sessions=sessions))
    seen = str((await desk.call("exec_command", cmd="env", description="test")).output)
    await sessions.aclose()
    assert "sk-test" not in seen
    names = {line.partition("=")[0] for line in seen.splitlines()}
    assert {"PATH", "HOME", "GH_TOKEN", "ALLOWED_API_KEY", "VAULTED", "PENGUIN_CUSTODY"} <= names
    assert [name for name in names if name.startswith("PENGUIN_")] == ["PENGUIN_CUSTODY"]


# ---------------------------------------------------------------- with nothing lent


async def test_an_environment_of_its_own_ends_its_commands_when_closed(make_desk: Any, is_running: Any) -> None:
    desk = make_desk(builtin=[EXEC_COMMAND])
    output = (await desk.call("exec_command", cmd="sleep 1000 & echo $!", description="test")).output
    pid = int(output.splitlines()[0])
    assert is_running(pid)
    await desk.environment.aclose()
    await desk.environment.aclose()
    assert not is_running(pid)
    assert "The session is closed" in (await desk.call("exec_command", cmd="true", description="test")).output
