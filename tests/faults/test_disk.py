"""The disk refuses: the conversation goes on, says so, and what was written stays legal (T3, T5, T6, D37, D39)."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.command_line import Place
from tests.support.world import Plan, Violation, World

from penguin.engine.engine import TaskResult
from penguin.engine.ledger import Ledger
from penguin.session.resume import recover
from penguin.testing import call, say, serve_in_thread, stalled, turn
from penguin.trace.append_file import AppendFile
from penguin.trace.writer import TraceWriter

FULL, READ_ONLY, FORBIDDEN, BROKEN = errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO


class Disk:
    """Decides about each write: ``None`` lets it pass, a number of bytes takes so many, an error is raised.

    What is not scripted passes, or gets ``always``.
    """

    def __init__(self) -> None:
        self.script: deque[int | OSError | None] = deque()
        self.always: OSError | None = None
        self.refused = 0
        self._write = AppendFile.write

    def write(self, file: AppendFile, data: bytes) -> int:
        outcome = self.script.popleft() if self.script else self.always
        match outcome:
            case None:
                return self._write(file, data)
            case int(room):
                return self._write(file, data[: max(1, min(room, len(data)))])
            case error:
                self.refused += 1
                raise error


@contextlib.contextmanager
def a_disk() -> Iterator[Disk]:
    disk = Disk()

    def write(file: AppendFile, data: bytes) -> int:
        return disk.write(file, data)

    with mock.patch.object(AppendFile, "write", write):
        yield disk


@contextlib.contextmanager
def a_world(root: Path) -> Iterator[World]:
    world = World(root, "openai-chat")
    try:
        world.start()
        yield world
    finally:
        world.close()


def a_task(world: World, number: int) -> TaskResult:
    world.replies.append(
        Plan(turn(say(f"tok-say-{number}"), call("echo", {"text": f"tok-out-{number}"}, id=f"c{number}")))
    )
    result = world.run(f"Do tok-user-{number}")
    assert result is not None
    return result


@pytest.mark.parametrize("code", [FULL, READ_ONLY, FORBIDDEN, BROKEN], ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize("writes", [0, 1, 4, 11])
def test_T5_a_disk_that_refuses_for_a_while_loses_nothing(code: int, writes: int, tmp_path: Path) -> None:
    with a_disk() as disk, a_world(tmp_path) as world:
        disk.script += [None] * writes
        disk.always = OSError(code, os.strerror(code))
        troubled = a_task(world, 1)
        assert troubled.stop_reason == "completed"
        assert troubled.trace_error is not None
        assert os.strerror(code) in troubled.trace_error
        assert disk.refused
        disk.always = None
        healed = a_task(world, 2)
        assert healed.trace_error is None
        world.check()
        world.restart()
        assert a_task(world, 3).stop_reason == "completed"
        world.check()


outcomes = st.lists(
    st.sampled_from([None, None, None, 1, 7, 60, OSError(FULL, "full"), OSError(FORBIDDEN, "forbidden")]), max_size=40
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=outcomes, dies=st.booleans())
def test_T3_T5_any_pattern_of_refused_and_torn_writes_leaves_whole_lines(
    script: list[Any], *, dies: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Half lines are completed before anything else is written; a death in the middle leaves a legal history."""
    with a_disk() as disk, a_world(tmp_path_factory.mktemp("disk")) as world:
        disk.script += script
        assert a_task(world, 1).stop_reason == "completed"
        if dies:
            _die_with_what_waits(world, disk)
        disk.script.clear()
        assert a_task(world, 2).stop_reason == "completed"
        assert a_task(world, 3).trace_error is None
        world.check()


def _die_with_what_waits(world: World, disk: Disk) -> None:
    """What waits in memory is lost with the process, and was reported as not written."""
    session_id = world.open.id
    disk.script.clear()
    disk.always = OSError(FULL, "full")
    world.dead = True
    world.act(world.open.close())
    world.dead, disk.always = False, None
    world.seen, world.executed, world.asked = [], [], []
    world.provider.last = None
    files = world.files(session_id)
    if any(file.read_bytes().count(b"\n") for file in files):
        world.resume(session_id)
        world.excused |= set(world.open.engine.ledger.unanswered)
    else:
        world.start()


def test_T5_more_than_may_wait_ends_the_task_and_what_is_on_disk_stays_coherent(tmp_path: Path) -> None:
    little = mock.patch.object(TraceWriter.__init__, "__kwdefaults__", _small_memory())
    with a_disk() as disk, little, a_world(tmp_path) as world:
        a_task(world, 1)
        disk.always = OSError(FULL, os.strerror(FULL))
        world.replies.append(Plan(turn(call("echo", {"text": "x" * 9_000}, id="big"))))
        lost = world.run("Do tok-user-2")
        assert lost is not None
        assert lost.stop_reason == "failed"
        assert lost.trace_error is not None
        assert "no longer recorded" in lost.trace_error
        disk.always = None
        again = world.run("Do tok-user-3")
        assert again is not None
        assert again.stop_reason == "failed"
        recovered: Ledger = recover(world.files()).ledger
        assert recovered.turns == 2


def _small_memory() -> dict[str, Any]:
    return {**(TraceWriter.__init__.__kwdefaults__ or {}), "limit_bytes": 6_000}


def test_T5_a_failing_fsync_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    async def fails(file: AppendFile) -> None:
        raise OSError(BROKEN, os.strerror(BROKEN))

    with a_world(tmp_path) as world, mock.patch.object(AppendFile, "save", fails):
        result = a_task(world, 1)
    assert result.stop_reason == "completed"
    assert "may not survive a power cut" in str(result.trace_error)


def test_the_disk_of_these_tests_is_really_asked(tmp_path: Path) -> None:
    """A fake that is not in the way would make all of the above green."""
    with a_disk() as disk, a_world(tmp_path) as world:
        disk.always = OSError(FULL, "full")
        a_task(world, 1)
        assert disk.refused > 5
        assert not world.files()
        with pytest.raises(Violation, match="not in the trace"):
            world.check()
        disk.always = None


# --- a real small disk ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB; needs the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_T5_a_really_full_disk(small_disk: Path) -> None:
    with a_world(small_disk) as world:
        filler = small_disk / "filler"
        assert a_task(world, 1).trace_error is None
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)
        world.replies.append(Plan(turn(call("echo", {"text": "tok-out-9 " + "y" * 9_000}, id="big"))))
        full = world.run("Do tok-user-2")
        assert full is not None
        assert full.stop_reason == "completed"
        assert "No space left" in str(full.trace_error)
        filler.unlink()
        assert a_task(world, 3).trace_error is None
        world.check()


def test_T5_a_disk_that_becomes_read_only(small_disk: Path) -> None:
    with a_world(small_disk) as world:
        assert a_task(world, 1).trace_error is None
        # What is open keeps a file system writable, so the session is resumed on the read-only one.
        session_id = world.open.id
        world.act(world.open.close())
        world.session = None
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        world.resume(session_id)
        troubled = a_task(world, 2)
        assert troubled.stop_reason == "completed"
        assert "Read-only file system" in str(troubled.trace_error)
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        assert a_task(world, 3).trace_error is None
        world.check()


# --- two processes on one session ----------------------------------------------------------------------


def test_T6_D39_a_second_process_is_refused_and_the_first_is_not_disturbed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with serve_in_thread([stalled(turn(say("slow words")), after=60), "second"]) as provider:
        place.connect(provider.base_url)
        first = place.start("run", "-m", "hi")
        provider.wait_for_requests(1)
        second = place.run("run", "--resume", "latest", "-m", "me too")
        assert second.returncode == 1, second.stderr
        assert str(first.pid) in second.stderr
        assert "Traceback" not in second.stderr
        provider.release()
        output, errors = first.communicate(timeout=20)
        assert (first.returncode, output) == (0, b"slow words\n"), errors
        third = place.run("run", "--resume", "latest", "-m", "now me")
        assert (third.returncode, third.stdout) == (0, "second\n"), third.stderr
        assert provider.problems == []


def test_T6_the_lock_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with serve_in_thread([stalled(turn(say("slow words")), after=60), "second"]) as provider:
        place.connect(provider.base_url)
        first = place.start("run", "-m", "hi")
        provider.wait_for_requests(1)
        first.kill()
        first.communicate()
        second = place.run("run", "--resume", "latest", "-m", "go on")
        assert (second.returncode, second.stdout) == (0, "second\n"), second.stderr
        assert "hi" in str(provider.requests[-1].body["messages"])
        assert provider.problems == []
