"""N9: what a harness started does not outlive it. Real processes, and real signals to a real harness process."""

# ruff: noqa: ASYNC220 - a test may start a process while nothing else runs

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penguin.environment import custody, custody_guard
from penguin.environment.custody_guard import VARIABLE, Process
from penguin.environment.following import follow
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment

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
    [(signal.SIGKILL, [STUBBORN, DETACHED, DAEMON, CLEARED], 7), (signal.SIGTERM, [DETACHED, CLEARED], 4)],
)
def test_N9_nothing_survives_a_killed_harness(
    start: Any, tmp_path: Path, number: signal.Signals, cmds: list[str], sleeping: int
) -> None:
    harness = start(*cmds, ledger=tmp_path)
    members = harness.members()
    assert [each.command for each in members].count("sleep") == sleeping
    watch = Watch(harness.guard, *(each.pid for each in members))
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


@pytest.mark.anyio
async def test_N9_closing_a_session_ends_its_own_processes_only(tmp_path: Path, is_running: Any) -> None:
    closing, other = (CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3) for _ in range(2))
    said: list[str] = []
    for cmd in (
        "setsid -f sleep 1000.81 >/dev/null 2>&1; echo ready",
        "(setsid sh -c 'trap \"\" TERM; sleep 1000.82; sleep 1000.82' >/dev/null 2>&1 &); echo ready",
    ):
        command = await closing.start(cmd, tmp_path)
        assert await follow(command, said.append, 10) == "over"
        closing.forget(command)
    marked = await closing.start("exec sleep 1000.83", tmp_path)
    await other.keep(await other.start("exec sleep 1000.84", tmp_path))
    mcp = subprocess.Popen(["sleep", "1000.85"], env={**os.environ, **closing.custody_mark()})
    await closing.aclose()
    await closing.aclose()
    assert marked.returncode == -signal.SIGTERM
    assert mcp.wait(1) == -signal.SIGTERM
    assert not any(is_running(f"sleep 1000.8{number}") for number in (1, 2, 3))
    assert is_running("sleep 1000.84")
    await other.aclose()
    assert not is_running("sleep 1000.84")


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
