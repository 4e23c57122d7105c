"""N9: what a harness started does not outlive it. Real processes, and real signals to a real harness process."""

# ruff: noqa: ASYNC220 - a test may start a process or look at a file while nothing else runs

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.deadline import Deadline

from penguin.environment import custody, custody_guard, lasting_mark
from penguin.environment.custody_guard import VARIABLE, Process
from penguin.environment.following import follow
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment, command_shell

HARNESS = """
import os, sys
from pathlib import Path
import anyio
from penguin.environment import custody
from penguin.environment.following import follow
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment

async def main(ledger, *cmds):
    sessions = CommandSessions(
        environment=ShellEnvironment(login_shell=False), custody_dir=Path(ledger) if ledger else None
    )
    for cmd in cmds:
        command = await sessions.start(cmd, Path("/"))
        said = []
        while "ready" not in "".join(said):
            await follow(command, said.append, 0.02)
        await sessions.keep(command)
    if os.environ.get("FORK") and os.fork() == 0:
        os.read(0, 1)  # until the test closes our standard input
        os._exit(0)
    print(custody.of_this_process().scope, custody.of_this_process().guard, flush=True)
    await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""

STUBBORN = "trap '' TERM INT HUP; echo ready; while :; do sleep 1000.91; done"
DETACHED = "setsid -f sleep 1000.92; echo ready; sleep 1000.92"
DAEMON = "(setsid sh -c 'trap \"\" TERM; (sleep 1000.93 & wait) & exit 0' &); echo ready; sleep 1000.93"
CLEARED = "env -i sleep 1000.94 & echo ready; sleep 1000.94"
LOST = "(env -i setsid sleep 1000.94 >/dev/null 2>&1 & ); echo ready; sleep 1000.94"


class Harness:
    """A harness process of its own, with commands running."""

    def __init__(self, *cmds: str, ledger: Path | None = None, **variables: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HARNESS), str(ledger or ""), *cmds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        self.scope, self.guard = words[0].decode(), int(words[1])
        self.pid = self._process.pid

    def members(self) -> list[Process]:
        return custody.members(self.scope)

    def sleeping(self, count: int) -> list[Process]:
        """The members, once so many are asleep: a shell is ready when it has forked them, which is earlier."""
        deadline = Deadline()
        while [each.command for each in self.members()].count("sleep") != count:
            deadline.check()
            time.sleep(0.005)
        return self.members()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(10)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        custody_guard.end_all(self.members, 0.0)


@pytest.fixture
def start() -> Iterator[Any]:
    started: list[Harness] = []

    def start(*cmds: str, **settings: Any) -> Harness:
        started.append(Harness(*cmds, **settings))
        return started[-1]

    yield start
    for harness in started:
        harness.close()


class Watch:
    """Waits for processes to end; they need not be our children."""

    def __init__(self, *pids: int) -> None:
        self._open = [os.pidfd_open(pid) for pid in pids]
        self.count = len(pids)

    def all_ended(self, seconds: float) -> bool:
        poller = select.poll()
        waiting = set(self._open)
        for descriptor in waiting:
            poller.register(descriptor, select.POLLIN)
        while waiting and (ready := poller.poll(seconds * 1000)):
            for descriptor, _ in ready:
                poller.unregister(descriptor)
                waiting.discard(descriptor)
        for descriptor in self._open:
            os.close(descriptor)
        return not waiting


@pytest.mark.parametrize(
    ("number", "cmds", "sleeping"),
    [(signal.SIGKILL, [STUBBORN, DETACHED, DAEMON, CLEARED], 7), (signal.SIGTERM, [DETACHED, CLEARED, LOST], 6)],
)
def test_N9_nothing_survives_a_killed_harness(
    start: Any, tmp_path: Path, number: signal.Signals, cmds: list[str], sleeping: int
) -> None:
    harness = start(*cmds, ledger=tmp_path)
    watch = Watch(harness.guard, *(each.pid for each in harness.sleeping(sleeping)))
    harness.signal(number)
    assert watch.all_ended(8)
    assert harness.members() == []
    assert list(tmp_path.iterdir()) == []


def test_N9_a_process_forked_from_the_harness_does_not_keep_the_guard_from_acting(start: Any) -> None:
    harness = start("echo ready; sleep 1000.95", FORK="stay")
    watch = Watch(harness.guard, *(each.pid for each in harness.members()))
    harness.signal(signal.SIGKILL)
    assert watch.all_ended(5)


def test_N9_the_next_harness_finishes_what_a_killed_guard_could_not(start: Any, tmp_path: Path) -> None:
    first = start(DETACHED, ledger=tmp_path)
    os.kill(first.guard, signal.SIGKILL)
    first.signal(signal.SIGKILL)
    left = first.members()
    assert len(left) >= 2
    assert (tmp_path / first.scope.rstrip(".")).exists()
    watch = Watch(*(each.pid for each in left))
    second = start("echo ready; sleep 1000.96", ledger=tmp_path)
    assert watch.all_ended(5)
    assert len(second.members()) >= 1


def test_N9_a_living_harness_is_left_alone(start: Any, tmp_path: Path) -> None:
    living = start("echo ready; exec sleep 1000.97", ledger=tmp_path)
    assert custody.end_left_behind(tmp_path) == 0
    assert len(living.members()) == 1
    (tmp_path / "broken").write_text("not an entry")
    elsewhere = (tmp_path / living.scope.rstrip(".")).read_text().replace(str(living.pid), "1", 1)
    (tmp_path / "0123456789abcdef").write_text(elsewhere.rsplit(" ", 1)[0] + " another-host/boot/pid\n")
    assert custody.end_left_behind(tmp_path) == 0
    assert len(living.members()) == 1


def test_N9_the_guard_carries_no_secret_and_holds_no_directory(start: Any) -> None:
    harness = start("echo ready; sleep 1000.98", OPENAI_API_KEY="sk-test")
    guard = Path("/proc", str(harness.guard))
    assert (guard / "environ").read_bytes() == b""
    assert os.getsid(harness.guard) == harness.guard


def test_N9_a_harness_inside_a_harness_is_in_the_outer_custody(start: Any) -> None:
    outer = custody.of_this_process().new_scope()
    inner = start(DETACHED, **custody.of_this_process().mark(outer))
    inside = {each.pid for each in custody.members(outer)}
    assert {inner.pid, inner.guard, *(each.pid for each in inner.members())} <= inside
    assert custody_guard.end_all(lambda: custody.members(outer), 0.2)
    assert inner.members() == []


def test_N9_a_marked_process_in_the_session_of_the_harness_does_not_take_it_along() -> None:
    ours = custody.of_this_process()
    scope = ours.new_scope()
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, **ours.mark(scope)})
    try:
        assert [each.pid for each in custody.members(scope)] == [child.pid]
        assert custody_guard.end_all(lambda: custody.members(scope), 1.0)
    finally:
        child.kill()
        child.wait()


def test_N9_numbers_do_not_run_into_each_other() -> None:
    ours = custody.of_this_process()
    child = subprocess.Popen(["sleep", "1000"], env={VARIABLE: f"{ours.scope}12."})
    try:
        assert custody.members(f"{ours.scope}1.") == []
        assert [each.pid for each in custody.members(f"{ours.scope}12.")] == [child.pid]
        assert [each.pid for each in custody.members(ours.scope)] == [child.pid]
    finally:
        child.kill()
        child.wait()


def test_N9_a_stopped_process_is_ended_by_TERM() -> None:
    ours = custody.of_this_process()
    scope = ours.new_scope()
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, **ours.mark(scope)})
    child.send_signal(signal.SIGSTOP)
    assert custody_guard.end_all(lambda: custody.members(scope), 5.0)
    assert child.wait(1) == -signal.SIGTERM


# ---------------------------------------------------------------- the mark that is not in the environment


CLEARED_SURVIVORS = [
    "env -i {} >/dev/null 2>&1 & exit 0",
    "env -i {} & exit 0",
    "env -i setsid {} >/dev/null 2>&1 & exit 0",
    "(env -i setsid {} >/dev/null 2>&1 &); exit 0",
    "(env -i setsid {} <&- >&- 2>&- &); exec >&- 2>&-",
]


@pytest.mark.anyio
@pytest.mark.parametrize("cmd", CLEARED_SURVIVORS)
@pytest.mark.parametrize("kept", [True, False])
async def test_N8_N9_D15_closing_ends_survivors_with_a_cleared_environment(
    tmp_path: Path, is_running: Any, long_sleep: str, cmd: str, kept: bool
) -> None:
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3)
    command = await sessions.start(cmd.format(long_sleep), tmp_path)
    assert await follow(command, lambda _text: None, 10) == "over"
    deadline = Deadline()
    while not is_running(long_sleep):  # it is forked, but may not have become what it is
        deadline.check()
        await anyio.sleep(0.005)
    survivors = await sessions.survivors_of(command)
    assert len({each.pid for each in survivors}) == len(survivors) >= 1
    if kept:
        await sessions.keep(command)
    else:
        sessions.forget(command)
    await sessions.aclose()
    assert not is_running(long_sleep)


@pytest.mark.anyio
async def test_N9_without_the_second_mark_what_was_seen_surviving_is_ended(
    tmp_path: Path, is_running: Any, long_sleep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custody_guard, "scope_in_limit", lambda _pid: "")
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3)
    command = await sessions.start(CLEARED_SURVIVORS[0].format(long_sleep), tmp_path)
    assert await follow(command, lambda _text: None, 10) == "over"
    assert len(await sessions.survivors_of(command)) == 1
    await sessions.keep(command)
    await sessions.aclose()
    assert not is_running(long_sleep)


@pytest.mark.anyio
async def test_N9_what_was_detached_on_purpose_is_left_alone(tmp_path: Path, is_running: Any, long_sleep: str) -> None:
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3)
    detached = f"{VARIABLE}= setsid -f sh -c 'echo $$ >pid; exec {long_sleep} >/dev/null 2>&1'"
    command = await sessions.start(f"{detached}; until test -s pid; do :; done", tmp_path)
    assert await follow(command, lambda _text: None, 10) == "over"
    await sessions.aclose()
    pid = int((tmp_path / "pid").read_text())
    try:
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.anyio
async def test_N6_the_second_mark_changes_nothing_a_command_sees(tmp_path: Path) -> None:
    (tmp_path / "start").write_text("echo start")
    base = {"PATH": os.environ["PATH"], "BASH_ENV": str(tmp_path / "start"), "BASH_FUNC_f%%": "() {  echo f\n}"}
    sessions = CommandSessions(environment=ShellEnvironment(base=base, login_shell=False))
    seen = []
    for shell_words in (lasting_mark.running, lambda arguments, _scope, _shell: arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lasting_mark, "running", shell_words)
            command = await sessions.start("f; echo $0 $# $-; ps -o args= -p $$; env", tmp_path)
        said: list[str] = []
        await follow(command, said.append, 10)
        sessions.forget(command)
        seen.append("".join(said).replace(command.launch.scope, "scope"))
    await sessions.aclose()
    assert seen[0] == seen[1]
    assert seen[0].startswith("start\nf\n")


def test_N9_a_harness_in_a_command_of_another_gets_a_mark_it_may_set() -> None:
    outer = custody.of_this_process().new_scope(custody.of_this_process().new_scope())
    code = "from penguin.environment import lasting_mark as m; print(m.new_token())"
    started = lasting_mark.running([sys.executable, "-c", code], outer, command_shell())
    tokens = {subprocess.run(started, capture_output=True, text=True, check=True).stdout.strip() for _ in range(3)}
    assert len(tokens) == 3
    assert all(f"{2**61:016x}" <= token < outer.partition(".")[0] for token in tokens)


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_N9_the_second_mark_names_the_scope(shell: str) -> None:
    ours = custody.of_this_process()
    scope = ours.new_scope(ours.new_scope())
    code = "from penguin.environment import custody_guard as g; print(g.scope_in_limit(0))"
    started = lasting_mark.running(["/usr/bin/env", "-i", sys.executable, "-c", code], scope, shell)
    assert subprocess.run(started, capture_output=True, text=True, check=True).stdout.strip() == scope


def test_N8_a_process_that_becomes_another_program_is_listed_once() -> None:
    ours = custody.of_this_process()
    scope = ours.new_scope()
    child = subprocess.Popen(
        ["sh", "-c", "read x; exec sleep 1000"], stdin=subprocess.PIPE, env={**os.environ, **ours.mark(scope)}
    )
    with child, contextlib.ExitStack() as cleaning:
        cleaning.callback(child.kill)
        (before,) = custody.members(scope)
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        deadline = Deadline()
        while (now := custody.members(scope))[0].command != "sleep":
            deadline.check()
            time.sleep(0.005)
        assert before.command == "sh"
        assert custody.still_alive([before]) == now
        assert custody_guard.joined([before], now) == now


@pytest.mark.anyio
async def test_N9_closing_a_session_ends_its_own_processes_only(
    tmp_path: Path, is_running: Any, long_sleep: str
) -> None:
    closing, other = (CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3) for _ in range(2))
    said: list[str] = []
    for cmd in (
        f"setsid -f {long_sleep}1 >/dev/null 2>&1; echo ready",
        f"(setsid sh -c 'trap \"\" TERM; {long_sleep}2; {long_sleep}2' >/dev/null 2>&1 &); echo ready",
    ):
        command = await closing.start(cmd, tmp_path)
        assert await follow(command, said.append, 10) == "over"
        closing.forget(command)
    marked = await closing.start(f"exec {long_sleep}3", tmp_path)
    await other.keep(await other.start(f"exec {long_sleep}4", tmp_path))
    mcp = subprocess.Popen(long_sleep.split(), env={**os.environ, **closing.custody_mark()})
    await closing.aclose()
    await closing.aclose()
    assert marked.returncode == -signal.SIGTERM
    assert mcp.wait(1) == -signal.SIGTERM
    assert not any(is_running(f"{long_sleep}{number}") for number in (1, 2, 3))
    assert is_running(f"{long_sleep}4")
    await other.aclose()
    assert not is_running(f"{long_sleep}4")


def test_N9_without_proc_the_noted_groups_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custody_guard, "_PROC", str(tmp_path / "no-proc"))
    assert not custody_guard.available()
    file = custody_guard.enter(tmp_path / "ledger", "0123.")
    child, stranger = (subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(2))
    try:
        custody_guard.note_group(file, child.pid)
        with file.open("a") as entry:
            entry.write(f"{stranger.pid} Thu_Jan_1_00:00:00_1970\n")
        assert custody_guard.end_left_behind(tmp_path / "ledger") == 0
        reaper = threading.Thread(target=child.wait)  # as init does when the harness is gone
        reaper.start()
        assert custody_guard.read_entry(file).end()
        reaper.join()
        assert child.returncode == -signal.SIGTERM
        assert stranger.poll() is None
    finally:
        for each in (child, stranger):
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
