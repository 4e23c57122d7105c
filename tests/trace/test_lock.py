from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from penguin.protocol.errors import SessionLocked
from penguin.trace.lock import SessionLock, lock_owner

# Takes the lock, starts a command that outlives it if told to, says so, and then stays until it is killed.
HOLDER = textwrap.dedent(
    """
    import subprocess, sys
    from pathlib import Path
    from penguin.protocol.errors import SessionLocked
    from penguin.trace.lock import SessionLock
    lock = SessionLock(Path(sys.argv[1]))
    try:
        lock.acquire()
    except SessionLocked as error:
        print("refused:", error, flush=True)
        sys.exit(3)
    if "child" in sys.argv:
        print(subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL).pid, flush=True)
    print("held", flush=True)
    sys.stdin.read()
    """
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "2026-03-01" / "session-2026-03-01-09-05-00-00c0ffee.lock"


class Holder:
    """Another process that opens the session."""

    def __init__(self, path: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline()) if words else None
        self.said = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def leave(self) -> int:
        self.process.communicate("", timeout=10)
        return self.process.returncode


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    started: list[Holder] = []
    yield started
    for holder in started:
        holder.kill()
        if holder.child:
            os.kill(holder.child, signal.SIGKILL)


def test_T6_D39_a_second_process_is_refused_and_told_who_holds_the_session(path: Path, holders: list[Holder]) -> None:
    holders.append(Holder(path))
    assert holders[0].said == "held"
    with pytest.raises(SessionLocked) as caught:
        SessionLock(path).acquire()
    assert f"process {holders[0].process.pid} on {socket.gethostname()} since 20" in str(caught.value)
    holders.append(Holder(path))
    assert holders[1].said.startswith("refused: The session is in use by process")
    assert holders[1].process.wait(10) == 3


def test_T6_D39_a_killed_process_leaves_no_lock_behind(path: Path, holders: list[Holder]) -> None:
    holders.append(Holder(path))
    holders[0].kill()
    assert path.exists(), "the file of the dead process is still there"
    with SessionLock(path) as lock:
        assert lock.held
        owner = lock_owner(path)
        assert owner is not None
        assert owner.pid == os.getpid()


def test_T6_a_command_that_outlives_the_session_does_not_keep_its_lock(path: Path, holders: list[Holder]) -> None:
    holders.append(Holder(path, "child"))
    assert holders[0].said == "held"
    holders[0].kill()
    assert holders[0].child is not None
    os.kill(holders[0].child, 0)  # it lives
    with SessionLock(path) as lock:
        assert lock.held


def test_T6_a_second_open_in_the_same_process_is_refused(path: Path) -> None:
    with SessionLock(path) as first:
        with pytest.raises(SessionLocked, match=f"process {os.getpid()}"):
            SessionLock(path).acquire()
        assert first.held
        first.acquire()
    with SessionLock(path) as again:
        assert again.held


def test_T6_release_removes_the_file_and_may_be_repeated(path: Path, holders: list[Holder]) -> None:
    lock = SessionLock(path)
    lock.acquire()
    assert path.stat().st_mode & 0o777 == 0o600
    lock.release()
    lock.release()
    assert not path.exists()
    assert not lock.held
    holders.append(Holder(path))
    assert holders[0].said == "held"
    assert holders[0].leave() == 0


def test_T6_a_lock_file_deleted_by_hand_is_not_deleted_again_under_its_new_owner(path: Path) -> None:
    first, second = SessionLock(path), SessionLock(path)
    first.acquire()
    path.unlink()
    second.acquire()
    first.release()
    assert path.exists()
    with pytest.raises(SessionLocked):
        SessionLock(path).acquire()
    second.release()


def test_T6_an_owner_that_removes_its_file_in_this_moment_does_not_let_two_in(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = SessionLock(path)
    leaving.acquire()
    really = os.open

    def open_then_the_owner_leaves(file: Path, flags: int, mode: int = 0o777) -> int:
        fd = really(file, flags, mode)
        leaving.release()
        return fd

    monkeypatch.setattr(os, "open", open_then_the_owner_leaves)
    late = SessionLock(path)
    late.acquire()
    monkeypatch.undo()
    assert path.exists(), "the lock is on the file others will open"
    with pytest.raises(SessionLocked):
        SessionLock(path).acquire()
    late.release()


def test_T5_T6_a_disk_that_takes_no_lock_file_does_not_stop_the_session(tmp_path: Path) -> None:
    (tmp_path / "day").write_text("in the way")
    lock = SessionLock(tmp_path / "day" / "s.lock")
    lock.acquire()
    assert not lock.held
    assert "cannot be locked" in (lock.error or "")
    (tmp_path / "day").unlink()
    lock.acquire()
    assert (lock.held, lock.error) == (True, None)
    lock.release()


def test_T6_a_full_disk_costs_only_the_owner_s_name(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        lock = SessionLock(path)
        lock.acquire()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert lock.held
    with pytest.raises(SessionLocked, match="in use by another process"):
        SessionLock(path).acquire()
    lock.release()


def test_no_lock_file_no_owner(tmp_path: Path) -> None:
    assert lock_owner(tmp_path / "none.lock") is None
