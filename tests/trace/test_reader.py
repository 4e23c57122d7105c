from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import recorded_messages

from penguin.protocol.builders import assistant_text, session_meta, tool_call_output, user_text
from penguin.protocol.errors import TraceError
from penguin.protocol.messages import Message, SessionMeta, Text, Thinking, UnknownPayload
from penguin.trace.reader import TraceReader, read_trace
from penguin.trace.writer import TraceWriter

SESSION = "session-2026-03-01-09-05-00-00c0ffee"
META = session_meta(session_id=SESSION, provider="custom", model_id="m", system_prompt="s", workspace="/w")
ONE, TWO, THREE = (user_text(word) for word in ("one", "two", "three"))
HALF = TWO.line[:60]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / f"{SESSION}_001.jsonl"


def lines(*parts: Message | bytes) -> bytes:
    return b"".join(_bytes(part) + b"\n" for part in parts)


def _bytes(part: Message | bytes) -> bytes:
    return part if isinstance(part, bytes) else part.line


def told(reader: TraceReader) -> list[str]:
    """The texts of the records, the session_meta left out."""
    return [message.payload.text for message in reader if isinstance(message.payload, Text)]


def test_records_come_in_order_with_their_stored_bytes(trace: Path) -> None:
    trace.write_bytes(lines(META, ONE, TWO))
    reader = TraceReader(trace)
    seen = [(reader.line_number, reader.line, message.line) for message in reader]
    assert seen == [(1, META.line, META.line), (2, ONE.line, ONE.line), (3, TWO.line, TWO.line)]
    assert (reader.warnings, reader.torn) == ([], None)


def test_T4_a_torn_last_line_is_ignored(trace: Path) -> None:
    trace.write_bytes(lines(META, ONE) + HALF)
    reader = TraceReader(trace)
    assert told(reader) == ["one"]
    assert reader.warnings == []
    assert reader.torn is not None
    assert reader.torn.line == 3


def test_T4_a_damaged_line_is_skipped_with_a_warning_that_names_file_and_line(trace: Path) -> None:
    trace.write_bytes(lines(META, ONE, HALF, b"garbage", TWO))
    reader = TraceReader(trace)
    assert told(reader) == ["one", "two"]
    assert [str(warning).split(": ")[0] for warning in reader.warnings] == [f"{trace}:3", f"{trace}:4"]
    assert "not a JSON object" in reader.warnings[1].reason
    assert told(reader) == ["one", "two"], "a reader can be read again"
    assert len(reader.warnings) == 2


def test_T4_D37_a_complete_last_line_without_newline_counts(trace: Path) -> None:
    trace.write_bytes(lines(META, ONE) + TWO.line)
    reader = TraceReader(trace)
    assert told(reader) == ["one", "two"]
    assert reader.torn is None


def test_D37_a_torn_line_then_new_records_loses_nothing_that_was_whole(trace: Path) -> None:
    trace.write_bytes(lines(META, ONE) + HALF)
    writer = TraceWriter(trace.parent, SESSION, continue_file=trace)
    writer.append(TWO)
    writer.close()
    reader = TraceReader(trace)
    assert told(reader) == ["one", "two"]
    assert [warning.line for warning in reader.warnings] == [3]


def test_D37_a_record_that_an_older_writer_put_behind_a_torn_one_is_kept(trace: Path) -> None:
    trace.write_bytes(lines(META, ONE) + HALF + lines(TWO, THREE))
    reader = TraceReader(trace)
    seen = [reader.line for _ in reader]
    assert seen == [message.line for message in (META, ONE, TWO, THREE)]
    assert [(warning.line, warning.reason) for warning in reader.warnings] == [
        (3, "a torn record stands before this one")
    ]


@pytest.mark.parametrize(
    ("data", "warned", "torn"),
    [
        (lines(META, ONE) + TWO.line + b"\0" * 40, [], False),
        (lines(META, ONE, TWO) + b"\0" * 4096, [], True),
        (lines(META, ONE, TWO) + HALF + b"\0" * 40, [], True),
        (lines(META, ONE, b"\0" * 40, TWO), [3], False),
        (lines(META, ONE, HALF + b"\0" * 40, TWO), [3], False),
        (lines(META, ONE) + b"\0" * 40 + lines(TWO), [], False),
    ],
)
def test_T4_zero_bytes_left_by_a_power_cut_are_tolerated(
    trace: Path, data: bytes, warned: list[int], torn: bool
) -> None:
    trace.write_bytes(data)
    reader = TraceReader(trace)
    assert told(reader) == ["one", "two"]
    assert [warning.line for warning in reader.warnings] == warned
    assert (reader.torn is not None) == torn


def test_T4_a_byte_order_mark_windows_line_ends_and_empty_lines_are_tolerated(trace: Path) -> None:
    trace.write_bytes(b"\xef\xbb\xbf" + lines(META, b"", ONE, b"  ", TWO).replace(b"\n", b"\r\n"))
    reader = TraceReader(trace)
    assert told(reader) == ["one", "two"]
    assert reader.warnings == []


NOT_A_TRACE = [
    (b"", "empty"),
    (b"\n\n", "empty"),
    (lines(ONE, META), "no session_meta: its first record is a text"),
    (META.line[:40], "not a trace of Penguin.*line 1"),
    (b'{"type":"session","version":3,"cwd":"/x"}\n' * 3, "not a trace of Penguin.*line 1"),
    (b"\x1f\x8b\x08\x00\xff\xfe" * 50, "not a trace of Penguin"),
    (META.line.replace(b'"session_id"', b'"id"') + b"\n", "session_meta lacks a session_id"),
    (b'{"timestamp":"t","type":"event_msg","payload":{"type":"header"}}\n', "unknown type 'header'"),
]


@pytest.mark.parametrize(("data", "reason"), NOT_A_TRACE, ids=range(len(NOT_A_TRACE)))
def test_T4_what_is_no_trace_gives_a_typed_error_in_words(trace: Path, data: bytes, reason: str) -> None:
    trace.write_bytes(data)
    with pytest.raises(TraceError, match=reason) as caught:
        list(read_trace(trace))
    assert str(trace) in str(caught.value)


def test_T4_a_missing_file_and_a_directory_give_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        list(read_trace(tmp_path / "none.jsonl"))
    with pytest.raises(TraceError, match="directory"):
        list(read_trace(tmp_path))


def test_T4_a_long_foreign_file_is_given_up_early(trace: Path) -> None:
    trace.write_bytes(b'{"some":"log"}\n' * 100_000)
    reader = TraceReader(trace)
    with pytest.raises(TraceError):
        list(reader)
    assert reader.line_number == 100


def test_D38_a_trace_of_an_older_version_reads_with_defaults(trace: Path) -> None:
    trace.write_bytes(
        b'{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"session_id":"s","model_id":"m"}}\n'
        b'{"type":"model_msg","payload":{"type":"text","role":"user","text":"one"}}\n'
        b'{"type":"future_thing","payload":{"x":1}}\n'
        b'{"timestamp":"2026-01-02T03:04:06.000Z","type":"event_msg","payload":{"type":"tool_list_ready","tools":[]}}\n'
        b'{"type":"model_msg","payload":{"type":"thinking","role":"assistant","thinking":"t","signature":"AB"}}\n'
    )
    reader = TraceReader(trace)
    records = list(reader)
    assert [type(record.payload) for record in records] == [SessionMeta, Text, UnknownPayload, Thinking]
    assert [record.timestamp[17:19] for record in records] == ["05", "05", "06", "06"]
    assert [warning.line for warning in reader.warnings] == [3]
    assert "future_thing" in reader.warnings[0].reason


def test_D38_a_first_record_without_timestamp_takes_the_time_of_the_file(trace: Path) -> None:
    trace.write_bytes(b'{"type":"session_meta","payload":{"session_id":"s"}}\n')
    (record,) = read_trace(trace)
    assert record.timestamp.endswith("Z")
    assert len(record.timestamp) == 24


@given(st.lists(recorded_messages(), min_size=1, max_size=6), st.data())
def test_T4_every_prefix_cut_at_any_byte_gives_the_whole_records(
    tmp_path_factory: pytest.TempPathFactory, records: list[Message], data: st.DataObject
) -> None:
    whole = lines(META, *records)
    cut = data.draw(st.integers(len(META.line), len(whole)))
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    path.write_bytes(whole[:cut])
    complete = whole[:cut].split(b"\n")
    expected = [line for line in complete if line in {META.line, *(record.line for record in records)}]
    assert [message.line for message in read_trace(path)] == expected
    path.unlink()


def test_T15_reading_streams_memory_holds_one_record_not_the_file(trace: Path) -> None:
    record = tool_call_output("x" * 1_000_000, "c").line + b"\n"
    trace.write_bytes(lines(META) + record * 30)
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_trace(trace))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 31
    assert peak < 8_000_000


def test_T15_a_reader_that_is_left_reads_no_further(trace: Path) -> None:
    trace.write_bytes(lines(META, *(assistant_text(str(n)) for n in range(100))))
    reader = TraceReader(trace)
    assert len(list(itertools.islice(reader, 3))) == 3
    assert reader.line_number == 3
