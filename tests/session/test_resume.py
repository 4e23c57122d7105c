"""Recovering from any prefix of a trace (T7 to T11), and the reference traces."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_kit import text_of
from tests.support.recordings import Recording, recordings

from penguin.engine.ledger import Ledger
from penguin.protocol.builders import (
    approval_decision,
    request_begin,
    request_end,
    session_meta,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.codec import decode
from penguin.protocol.errors import ResumeError
from penguin.protocol.messages import (
    CompactionEnd,
    Message,
    RequestBegin,
    RequestEnd,
    Text,
    ToolCall,
    ToolCallOutput,
)
from penguin.session.resume import recover


@cache
def recorded() -> dict[str, Recording]:
    return recordings()


def assert_legal(messages: list[Message]) -> None:
    """Every call is answered once, directly after its turn, and nothing else is."""
    due: list[str] = []
    for message in messages:
        match message.payload:
            case ToolCall(tool_call_id=call_id):
                due.append(call_id)
            case ToolCallOutput(tool_call_id=call_id):
                assert call_id in due, f"an output of {call_id} without its call"
                due.remove(call_id)
            case Text(role="user"):
                assert not due, f"the user speaks before {due} were answered"
            case _:
                pass
    assert not due, f"never answered: {due}"


def write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.mark.parametrize("name", ["busy", "compacting"])
def test_T11_live_facts_equal_resumed_facts_at_every_record(name: str, tmp_path: Path) -> None:
    recording = recorded()[name]
    earlier: list[Path] = []
    for number, (lines, facts) in enumerate(zip(recording.files, recording.facts, strict=True), start=1):
        assert len(lines) == len(facts)
        for count in range(2, len(lines) + 1):
            path = write(tmp_path / f"cut_{number}.jsonl", lines[:count])
            ledger = Ledger()
            for file in [*earlier, path]:
                for line in file.read_bytes().splitlines():
                    ledger.observe(decode(line))
            assert ledger.facts() == facts[count - 1], f"file {number}, after record {count}: {lines[count - 1]!r}"
            assert_legal([*ledger.history, *ledger.carry_over])
        earlier.append(write(tmp_path / f"whole_{number}.jsonl", lines))


@pytest.mark.parametrize("name", ["busy", "compacting"])
@given(data=st.data())
def test_T11_every_prefix_cut_at_any_byte_resumes_to_a_legal_history(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = recorded()[name].files
    last = data.draw(st.integers(0, len(files) - 1), label="file")
    content = b"".join(line + b"\n" for line in files[last])
    cut = data.draw(st.integers(len(files[last][0]) + 1, len(content)), label="byte")
    folder = tmp_path_factory.mktemp("cut")
    paths = [write(folder / f"{number}.jsonl", lines) for number, lines in enumerate(files[:last])]
    newest = folder / f"{last}.jsonl"
    newest.write_bytes(content[:cut])
    recovered = recover([*paths, newest])
    assert_legal([*recovered.ledger.history, *recovered.ledger.carry_over])
    assert recovered.ledger.compacting is None
    shutil.rmtree(folder)


def test_T11_a_newest_file_without_a_readable_record_is_passed_over(tmp_path: Path) -> None:
    files = recorded()["compacting"].files
    first = write(tmp_path / "1.jsonl", files[0])
    (tmp_path / "2.jsonl").write_bytes(files[1][0][:20])
    recovered = recover([first, tmp_path / "2.jsonl"])
    assert recovered.file == first
    assert recovered.ledger.closed
    assert recovered.ledger.summary == "Sum one."


def test_T10_a_dangling_compaction_is_closed_as_failed(tmp_path: Path) -> None:
    lines = recorded()["compacting"].files[0]
    begin = next(number for number, line in enumerate(lines) if b"compaction_begin" in line)
    recovered = recover([write(tmp_path / "1.jsonl", lines[: begin + 3])])
    (repair,) = recovered.repairs
    assert isinstance(repair.payload, CompactionEnd)
    assert repair.payload.status == "failed"
    assert [text_of(message) for message in recovered.ledger.carry_over] == ["A"]


def test_resume_without_anything_to_read_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(b"")
    with pytest.raises(ResumeError, match=r"1\.jsonl"):
        recover([tmp_path / "1.jsonl"])
    with pytest.raises(ResumeError):
        recover([])


# --- T9, D36: three states of a call after a crash --------------------------------------------------

META = session_meta(session_id="s", provider="p", model_id="m", system_prompt="", workspace="/w")


def ledger_of(*messages: Message) -> Ledger:
    ledger = Ledger()
    for message in messages:
        ledger.observe(message)
    return ledger


def test_T9_D36_the_model_is_told_which_calls_never_started_and_which_have_an_unknown_outcome() -> None:
    ledger = ledger_of(
        META,
        user_text("go"),
        request_begin(),
        tool_call("exec_command", "{}", "done"),
        tool_call("exec_command", "{}", "running"),
        tool_call("exec_command", "{}", "waiting"),
        tool_call("exec_command", "{}", "denied"),
        approval_decision("allow", "done"),
        tool_call_output("fine", "done"),
        approval_decision("allow", "running"),
        request_end("completed"),
        approval_decision("deny", "denied"),
    )
    done, running, waiting, denied = [text_of(message) for message in ledger.carry_over]
    assert done == "fine"
    assert "unknown" in running
    assert "did not run" in waiting
    assert "denied" in denied
    assert ledger.unanswered == ["running", "waiting", "denied"]


def test_T9_D36_a_second_crash_gives_the_same_history() -> None:
    first: list[Message] = [
        META,
        user_text("go"),
        request_begin(),
        tool_call("exec_command", "{}", "a"),
        approval_decision("allow", "a"),
        request_end("completed"),
        user_text("continue"),
        request_begin(),
    ]
    before = ledger_of(*first).carry_over
    ledger = ledger_of(*first, request_end("completed"))
    assert "unknown" in text_of(ledger.history[2])
    assert [text_of(message) for message in ledger.history[2:]] != []
    assert "turn_aborted" in text_of(before[1])


def test_T8_an_output_that_lands_inside_the_next_request_belongs_to_nobody_any_more() -> None:
    ledger = ledger_of(
        META,
        user_text("go"),
        request_begin(),
        tool_call("exec_command", "{}", "a"),
        approval_decision("allow", "a"),
        request_end("completed"),
        user_text("continue"),
        request_begin(),
        tool_call_output("late", "a"),
        request_end("completed"),
    )
    assert [text_of(message) for message in ledger.history].count("late") == 0
    assert_legal(ledger.history)


def test_D40_the_same_call_id_in_different_turns_is_kept_apart() -> None:
    messages: list[Message] = [META, user_text("go")]
    for output in ("one", "two", "three"):
        messages += [
            request_begin(),
            tool_call("exec_command", "{}", "call_0"),
            request_end("completed"),
            approval_decision("allow", "call_0"),
            tool_call_output(output, "call_0"),
        ]
    ledger = ledger_of(*messages)
    assert [text_of(m) for m in ledger.history if isinstance(m.payload, ToolCallOutput)] == ["one", "two"]
    assert [text_of(m) for m in ledger.carry_over] == ["three"]
    assert_legal([*ledger.history, *ledger.carry_over])


def test_children_and_unknown_payloads_change_nothing() -> None:
    base: list[Message] = [META, user_text("go"), request_begin()]
    strange = decode(
        b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_msg","payload":{"type":"tool_list_ready"}}'
    )
    child = decode(
        b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"model_msg","origin":["c"],'
        b'"payload":{"type":"text","role":"user","text":"child"}}'
    )
    assert ledger_of(*base, strange, child).facts() == ledger_of(*base).facts()


@pytest.mark.golden
def test_B4_T14_every_reference_trace_is_recovered(golden_dir: Path) -> None:
    seen = 0
    for folder in sorted(path for path in golden_dir.iterdir() if path.is_dir()):
        sessions: dict[str, list[Path]] = {}
        for path in sorted(folder.glob("trace-*.jsonl")):
            sessions.setdefault(path.name.rsplit("_", 1)[0], []).append(path)
        for files in sessions.values():
            recovered = recover(files)
            assert_legal([*recovered.ledger.history, *recovered.ledger.carry_over])
            assert not recovered.warnings
            assert _of_the_model(recovered.ledger.history) == _committed(files[-1]), files[-1]
            seen += 1
    assert seen >= 20


def _of_the_model(history: list[Message]) -> list[str]:
    return [text_of(message) for message in history if getattr(message.payload, "role", "") == "assistant"]


def _committed(file: Path) -> list[str]:
    """What the model said in requests that completed, read off the lines without the ledger."""
    said: list[str] = []
    pending: list[str] = []
    for line in file.read_bytes().splitlines():
        message = decode(line)
        match message.payload:
            case RequestBegin():
                pending = []
            case RequestEnd(status=status):
                said += pending if status == "completed" else []
                pending = []
            case CompactionEnd(status="completed"):
                said = []
            case payload if getattr(payload, "role", "") == "assistant":
                pending.append(text_of(message))
            case _:
                pass
    return said


def _legal_from_the_start(recovered: Ledger) -> None:
    messages = [*recovered.history, *recovered.carry_over]
    assert_legal(messages)
    assert not messages or getattr(messages[0].payload, "role", None) == "user", "the model speaks first"


@pytest.mark.parametrize("name", ["busy", "compacting"])
def test_E25_T4_a_line_that_stands_twice_is_one(name: str, tmp_path: Path) -> None:
    lines = recorded()[name].files[0]
    whole = recover([write(tmp_path / "whole.jsonl", lines)]).ledger
    for number in range(1, len(lines)):
        path = write(tmp_path / "twice.jsonl", [*lines[: number + 1], *lines[number:]])
        ledger = recover([path]).ledger
        _legal_from_the_start(ledger)
        if b'"tool_call"' in lines[number]:
            assert ledger.facts() == whole.facts(), lines[number]


@pytest.mark.parametrize("name", ["busy", "compacting"])
def test_E25_T4_any_line_may_be_damaged(name: str, tmp_path: Path) -> None:
    lines = recorded()[name].files[0]
    for number in range(1, len(lines)):
        path = write(tmp_path / "damaged.jsonl", [*lines[:number], b"\x00\xff\x00", *lines[number + 1 :]])
        recovered = recover([path])
        _legal_from_the_start(recovered.ledger)
        assert [warning.line for warning in recovered.warnings] == [number + 1]


def test_E25_a_reply_whose_prompt_cannot_be_read_answers_a_note(tmp_path: Path) -> None:
    lines = [line for line in recorded()["busy"].files[0] if b'"text"' not in line or b'"user"' not in line]
    first = recover([write(tmp_path / "1.jsonl", lines)]).ledger.history[0]
    assert "could not be read" in text_of(first)


def test_T4_T7_a_newest_file_that_lost_its_first_line_is_an_error_and_not_forgotten(tmp_path: Path) -> None:
    files = recorded()["compacting"].files
    first = write(tmp_path / "1.jsonl", files[0])
    second = write(tmp_path / "2.jsonl", [b"\x00" * 9, *files[1][1:]])
    with pytest.raises(ResumeError, match=r"2\.jsonl.*would be forgotten"):
        recover([first, second])
