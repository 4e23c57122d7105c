from __future__ import annotations

from pathlib import Path

import pytest

from penguin.protocol.builders import (
    abort,
    approval_decision,
    assistant_text,
    compaction_begin,
    compaction_end,
    request_begin,
    request_end,
    session_meta,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.errors import TraceError
from penguin.protocol.messages import Message
from penguin.trace.check import TraceReport, check_trace

META = session_meta(session_id="s", provider="custom", model_id="m", system_prompt="", workspace="/w")
PROMPT: list[Message] = [META, user_text("go"), request_begin()]
CALLED: list[Message] = [*PROMPT, tool_call("ls", "{}", "c1"), tool_call("ls", "{}", "c2"), request_end("completed")]
DONE: list[Message] = [*PROMPT, assistant_text("done"), request_end("completed")]
COMPACTING = compaction_begin("manual", "summarize", context=1, turns=1)


def checked(path: Path, *parts: Message | bytes, tail: bytes = b"") -> TraceReport:
    data = b"".join((part if isinstance(part, bytes) else part.line) + b"\n" for part in parts)
    path.write_bytes(data + tail)
    return check_trace(path)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "s_001.jsonl"


@pytest.mark.parametrize(
    ("records", "ending"),
    [
        ([META, user_text("go")], "prompt"),
        (PROMPT, "request"),
        ([*PROMPT, assistant_text("half")], "request"),
        (DONE, "complete"),
        (CALLED, "tool"),
        ([*CALLED, tool_call_output("a", "c1"), tool_call_output("b", "c2")], "prompt"),
        ([*PROMPT, request_end("aborted"), abort()], "aborted"),
        ([*DONE, COMPACTING, request_begin(), assistant_text("summary")], "compaction"),
        ([*DONE, COMPACTING, compaction_end("manual", "summarize", "completed")], "compacted"),
        ([*DONE, COMPACTING, compaction_end("manual", "summarize", "failed")], "complete"),
    ],
)
def test_T4_check_says_in_the_middle_of_what_a_file_ends(trace: Path, records: list[Message], ending: str) -> None:
    report = checked(trace, *records)
    assert report.ending == ending
    assert report.records == len(records)
    assert not report.damaged


def test_T4_check_names_the_calls_nobody_answered(trace: Path) -> None:
    report = checked(trace, *CALLED, approval_decision("allow", "c1"), tool_call_output("a", "c2"))
    assert report.calls_without_output == ["c1"]
    assert report.orphan_outputs == []


def test_T4_a_call_of_a_request_that_did_not_commit_is_owed_no_output(trace: Path) -> None:
    failed: list[Message] = [
        *PROMPT,
        tool_call("ls", "{}", "c1"),
        request_end("failed"),
        request_begin(),
        request_end("completed"),
    ]
    assert checked(trace, *failed).calls_without_output == []
    assert checked(trace, *failed, tool_call_output("late", "c1")).orphan_outputs == [8]
    assert checked(trace, *PROMPT, tool_call("ls", "{}", "c1")).calls_without_output == []


def test_T4_check_names_requests_without_end_and_second_answers(trace: Path) -> None:
    report = checked(trace, *PROMPT, *CALLED[2:], tool_call_output("a", "c1"), tool_call_output("again", "c1"))
    assert report.unclosed_requests == [3]
    assert report.orphan_outputs == [9]
    assert report.calls_without_output == ["c2"]


def test_T4_check_reports_damage_a_torn_end_and_unknown_types(trace: Path) -> None:
    unknown = b'{"timestamp":"t","type":"event_msg","payload":{"type":"tool_list_ready"}}'
    report = checked(trace, META, unknown, b"garbage", unknown, tail=b'{"half')
    assert report.unknown == {"tool_list_ready": 2}
    assert [warning.line for warning in report.warnings] == [3, 5]
    assert (report.ending, report.damaged) == ("torn", True)
    text = "\n".join(report.lines())
    assert f"damaged: {trace}:3: the line is not a JSON object" in text
    assert "unknown type: tool_list_ready (2)" in text
    assert "in the middle of a record" in text


def test_T4_check_of_no_trace_is_a_typed_error(trace: Path) -> None:
    with pytest.raises(TraceError):
        checked(trace)


@pytest.mark.golden
def test_T14_the_golden_traces_are_undamaged(golden_dir: Path) -> None:
    paths = sorted(golden_dir.glob("*/trace-*.jsonl"))
    assert len(paths) >= 25
    for path in paths:
        report = check_trace(path)
        assert (report.warnings, report.unclosed_requests, report.orphan_outputs) == ([], [], []), path
        assert set(report.unknown) == {"tool_list_ready"}
        assert report.session_id in path.name
        killed = path.parent.name == "resume_kill_mid_tool"
        assert report.calls_without_output == (["call_a"] if killed else [])
