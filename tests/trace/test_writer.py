from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from penguin.protocol.builders import (
    assistant_text,
    partial_text,
    request_begin,
    session_meta,
    tool_call_output,
    user_text,
    with_origin,
)
from penguin.protocol.messages import Message
from penguin.trace.writer import TraceWriter

SESSION = "session-2026-03-01-09-05-00-00c0ffee"


def meta(system_prompt: str = "You help.") -> Message:
    return session_meta(
        session_id=SESSION, provider="custom", model_id="m", system_prompt=system_prompt, workspace="/w"
    )


@pytest.fixture
def day(tmp_path: Path) -> Path:
    return tmp_path / "traces" / "2026-03-01"


@pytest.fixture
def blocked_day(day: Path) -> Path:
    """A directory that cannot be made, until the file in its way is unlinked."""
    day.parent.mkdir()
    day.write_text("in the way")
    return day


def texts(path: Path) -> list[str]:
    """The text of each record that has one, or its payload type."""
    lines = path.read_bytes().decode().split("\n")
    assert lines.pop() == "", "the last line ends with a newline"
    payloads = [json.loads(line)["payload"] for line in lines]
    return [payload.get("text", payload.get("type", "session_meta")) for payload in payloads]


def trouble(writer: TraceWriter) -> str:
    return writer.error or ""


def lost(writer: TraceWriter) -> bool:
    return writer.lost


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """A disk that is full once a file has `limit` bytes: it takes part of a write, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def fsyncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts real fsync calls by what they were for."""
    calls: list[str] = []
    really = os.fsync

    def counted(fd: int) -> None:
        calls.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        really(fd)

    monkeypatch.setattr(os, "fsync", counted)
    return calls


# ------------------------------------------------------------------------------------------ T1, T2


def test_T1_no_file_appears_for_a_session_meta_alone(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(meta())
    assert writer.path is None
    writer.close()
    assert not day.exists()


def test_T1_session_meta_comes_first_and_with_the_next_record(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(meta())
    writer.append(user_text("hi"))
    assert writer.path == day / f"{SESSION}_001.jsonl"
    assert texts(writer.path) == ["session_meta", "hi"]


def test_T1_a_newer_session_meta_replaces_the_one_held_back(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(meta("old"))
    writer.append(meta("new"))
    writer.append(user_text("hi"))
    assert writer.path is not None
    assert b'"old"' not in writer.path.read_bytes()


def test_T1_each_context_gets_the_next_index_lazily(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(meta())
    writer.append(user_text("one"))
    writer.open_new_file()
    writer.append(meta())
    assert [path.name for path in day.iterdir()] == [f"{SESSION}_001.jsonl"]
    writer.open_new_file()
    writer.append(meta())
    writer.append(user_text("two"))
    assert sorted(path.name[-9:] for path in day.iterdir()) == ["001.jsonl", "002.jsonl"]
    assert texts(day / f"{SESSION}_002.jsonl") == ["session_meta", "two"]


def test_T1_two_contexts_never_share_a_file(day: Path) -> None:
    day.mkdir(parents=True)
    taken = day / f"{SESSION}_001.jsonl"
    taken.write_text("another context\n")
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("hi"))
    assert taken.read_text() == "another context\n"
    assert writer.path == day / f"{SESSION}_002.jsonl"


def test_T2_partials_and_messages_of_children_are_not_recorded(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("mine"))
    writer.append(partial_text("delta", "mi"))
    writer.append(with_origin(assistant_text("the child's"), "session-child"))
    writer.append(request_begin())
    assert writer.path is not None
    assert texts(writer.path) == ["mine", "request_begin"]


def test_files_and_directories_are_private(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("hi"))
    assert writer.path is not None
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(place.stat().st_mode) for place in (day, day.parent)] == [0o700, 0o700]


# ---------------------------------------------------------------------------------------------- T3


def test_T3_each_record_is_one_write_however_large(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    really = os.write

    def watched(fd: int, data: bytes) -> int:
        writes.append(bytes(data))
        return really(fd, data)

    monkeypatch.setattr(os, "write", watched)
    writer = TraceWriter(day, SESSION)
    large = tool_call_output("x" * 3_000_000, "call_1")
    for message in (user_text("hi"), large):
        writer.append(message)
    assert writes[1] == large.line + b"\n"
    assert len(writes) == 2


def test_T3_the_line_of_the_message_is_shared_not_made_again(day: Path) -> None:
    message = user_text("hi")
    message.__dict__["line"] = b'{"made":"once"}'
    writer = TraceWriter(day, SESSION)
    writer.append(message)
    assert writer.path is not None
    assert writer.path.read_bytes() == b'{"made":"once"}\n'


@pytest.mark.parametrize("tail", [b'{"timestamp":"2026-03-01T', b'{"half":\0\0\0\0'])
def test_T3_D37_a_torn_last_line_cannot_swallow_the_next_record(day: Path, tail: bytes) -> None:
    first = TraceWriter(day, SESSION)
    first.append(meta())
    first.append(user_text("one"))
    first.close()
    path = day / f"{SESSION}_001.jsonl"
    with path.open("ab") as file:
        file.write(tail)
    writer = TraceWriter(day, SESSION, continue_file=path)
    assert path.read_bytes().endswith(tail), "nothing is touched before the first record"
    writer.append(user_text("two"))
    lines = path.read_bytes().split(b"\n")
    assert lines[2] == tail
    assert json.loads(lines[3])["payload"]["text"] == "two"


def test_T3_D37_a_complete_line_without_its_newline_gets_it(day: Path) -> None:
    day.mkdir(parents=True)
    path = day / f"{SESSION}_001.jsonl"
    path.write_bytes(meta().line + b"\n" + user_text("one").line)
    writer = TraceWriter(day, SESSION, continue_file=path)
    writer.append(user_text("two"))
    assert texts(path) == ["session_meta", "one", "two"]


def test_T3_continuing_a_whole_file_adds_no_empty_line_and_new_files_follow_its_index(day: Path) -> None:
    day.mkdir(parents=True)
    path = day / f"{SESSION}_007.jsonl"
    path.write_bytes(meta().line + b"\n")
    writer = TraceWriter(day, SESSION, continue_file=path)
    assert writer.path == path
    writer.append(user_text("more"))
    writer.open_new_file()
    writer.append(user_text("next"))
    assert texts(path) == ["session_meta", "more"]
    assert writer.path == day / f"{SESSION}_008.jsonl"


def test_T3_a_written_record_survives_a_killed_process(day: Path) -> None:
    program = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from penguin.protocol.builders import user_text
        from penguin.trace.writer import TraceWriter
        writer = TraceWriter(Path(sys.argv[1]), sys.argv[2])
        for number in range(100):
            writer.append(user_text(str(number)))
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    killed = subprocess.run([sys.executable, "-c", program, str(day), SESSION], check=False, timeout=30)
    assert killed.returncode == -9
    assert texts(day / f"{SESSION}_001.jsonl") == [str(number) for number in range(100)]


@pytest.mark.anyio
async def test_T3_sync_saves_the_file_and_its_directory_entry_once(day: Path, fsyncs: list[str]) -> None:
    writer = TraceWriter(day, SESSION)
    await writer.sync()
    assert fsyncs == []
    writer.append(user_text("hi"))
    await writer.sync()
    assert fsyncs == ["file", "directory", "directory"]
    await writer.sync()
    writer.append(user_text("more"))
    await writer.sync()
    assert fsyncs == ["file", "directory", "directory", "file"]
    assert trouble(writer) == ""


@pytest.mark.anyio
async def test_T3_overlapping_syncs_share_one_fsync(day: Path, fsyncs: list[str]) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("hi"))
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(writer.sync)
    assert fsyncs.count("file") == 1


@pytest.mark.anyio
async def test_T3_records_of_the_earlier_file_are_saved_too(day: Path, fsyncs: list[str]) -> None:
    before = open_files()
    writer = TraceWriter(day, SESSION)
    for number in range(5):
        writer.append(user_text(str(number)))
        writer.open_new_file()
    writer.append(user_text("last"))
    await writer.sync()
    assert fsyncs.count("file") == 6
    assert open_files() == before + 1, "only the current file stays open"
    writer.close()
    writer.close()
    assert open_files() == before


@pytest.mark.anyio
async def test_T3_fsync_can_be_switched_off(day: Path, fsyncs: list[str]) -> None:
    writer = TraceWriter(day, SESSION, fsync=False)
    writer.append(user_text("hi"))
    writer.open_new_file()
    writer.append(user_text("more"))
    await writer.sync()
    assert fsyncs == []


@pytest.mark.anyio
async def test_a_cancelled_sync_leaves_the_writer_usable(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("hi"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await writer.sync()
    writer.append(user_text("more"))
    await writer.sync()
    assert trouble(writer) == ""
    assert not writer._file.unsaved


@pytest.mark.anyio
async def test_an_interruption_does_not_wait_for_a_disk_that_hangs(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate = anyio.Event(), threading.Event()

    def hangs(fd: int) -> None:
        anyio.from_thread.run_sync(entered.set)
        gate.wait(5)

    writer = TraceWriter(day, SESSION)
    writer.append(user_text("hi"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", hangs)
        async with anyio.create_task_group() as group:
            group.start_soon(writer.sync)
            await entered.wait()
            began = time.monotonic()
            group.cancel_scope.cancel()
        assert time.monotonic() - began < 3
        gate.set()
    await writer.sync()
    assert trouble(writer) == ""
    assert texts(day / f"{SESSION}_001.jsonl") == ["hi"]


# ---------------------------------------------------------------------------------------------- T5


def test_T5_records_wait_in_order_while_the_disk_refuses_and_are_written_when_it_allows(blocked_day: Path) -> None:
    writer = TraceWriter(blocked_day, SESSION)
    writer.append(meta())
    writer.append(user_text("one"))
    writer.append(user_text("two"))
    assert trouble(writer)
    assert "2 record(s) wait in memory" in trouble(writer)
    assert str(blocked_day) in trouble(writer)
    blocked_day.unlink()
    writer.append(user_text("three"))
    assert trouble(writer) == ""
    assert not writer.lost
    assert texts(blocked_day / f"{SESSION}_001.jsonl") == ["session_meta", "one", "two", "three"]


@pytest.mark.anyio
async def test_T5_sync_retries_what_waits(blocked_day: Path) -> None:
    writer = TraceWriter(blocked_day, SESSION)
    writer.append(user_text("one"))
    await writer.sync()
    assert trouble(writer)
    blocked_day.unlink()  # noqa: ASYNC240 - nothing else runs meanwhile
    await writer.sync()
    assert trouble(writer) == ""
    assert texts(blocked_day / f"{SESSION}_001.jsonl") == ["one"]


def test_T5_half_a_line_on_a_full_disk_is_completed_later(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("one"))
    path = writer.path
    assert path is not None
    size = path.stat().st_size
    with file_size_limit(size + 20):
        writer.append(user_text("two"))
        writer.append(user_text("three"))
        assert path.stat().st_size == size + 20, "the disk took part of the line"
        assert trouble(writer)
        assert "File too large" in trouble(writer)
    writer.append(user_text("four"))
    assert trouble(writer) == ""
    assert texts(path) == ["one", "two", "three", "four"]


def test_T5_records_of_two_contexts_wait_for_their_own_files(blocked_day: Path) -> None:
    writer = TraceWriter(blocked_day, SESSION)
    writer.append(user_text("one"))
    writer.open_new_file()
    writer.append(user_text("two"))
    blocked_day.unlink()
    writer.append(user_text("three"))
    assert texts(blocked_day / f"{SESSION}_001.jsonl") == ["one"]
    assert texts(blocked_day / f"{SESSION}_002.jsonl") == ["two", "three"]


def test_T5_a_full_device_is_reported_in_words(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, SESSION, continue_file=Path("/dev/full"))
    writer.append(user_text("one"))
    assert trouble(writer)
    assert "No space left on device" in trouble(writer)
    writer.close()
    assert "were not written" in trouble(writer)


def test_T5_beyond_the_limit_recording_ends_and_what_came_before_is_kept(blocked_day: Path) -> None:
    writer = TraceWriter(blocked_day, SESSION, limit_bytes=1_000)
    writer.append(user_text("one"))
    assert not lost(writer)
    writer.append(user_text("x" * 1_000))
    assert lost(writer)
    assert "no longer recorded" in trouble(writer)
    blocked_day.unlink()
    writer.append(user_text("never"))
    writer.close()
    assert texts(blocked_day / f"{SESSION}_001.jsonl") == ["one"]


def test_T5_a_record_larger_than_the_limit_is_fine_on_a_working_disk(day: Path) -> None:
    writer = TraceWriter(day, SESSION, limit_bytes=10)
    writer.append(user_text("x" * 1_000))
    assert trouble(writer) == ""
    assert not writer.lost


@pytest.mark.anyio
async def test_T5_a_failing_fsync_stays_reported(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    writer = TraceWriter(day, SESSION)
    writer.append(user_text("one"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        await writer.sync()
    await writer.sync()
    assert "may not survive a power cut: Input/output error" in trouble(writer)


@pytest.mark.anyio
async def test_T5_a_file_deleted_while_in_use_is_reported(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("one"))
    assert writer.path is not None
    writer.path.unlink()
    await writer.sync()
    assert "deleted while in use" in trouble(writer)


def test_append_never_raises_not_even_for_a_record_that_is_no_json(day: Path) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("one"))
    writer.append(
        session_meta(
            session_id=SESSION,
            provider="p",
            model_id="m",
            system_prompt="",
            workspace="/w",
            tools=[_tool(loop)],
        )
    )
    assert "cannot be written as JSON" in trouble(writer)


def test_a_record_after_close_is_reported_as_lost(day: Path) -> None:
    writer = TraceWriter(day, SESSION)
    writer.append(user_text("one"))
    writer.close()
    writer.append(user_text("two"))
    assert writer.lost
    assert texts(day / f"{SESSION}_001.jsonl") == ["one"]


def _tool(parameters: dict[str, Any]) -> Any:
    from penguin.protocol.messages import ToolDefinition  # noqa: PLC0415 - only this test needs it

    return ToolDefinition("t", "d", parameters)
