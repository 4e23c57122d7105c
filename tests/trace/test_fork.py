"""A new session from an old one's records (T13), and counts over them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.engine_kit import text_of
from tests.support.recordings import recordings

from penguin.engine.ledger import Ledger
from penguin.protocol.builders import (
    approval_decision,
    request_begin,
    request_end,
    session_meta,
    subagent,
    thinking,
    tool_call,
    tool_call_output,
    user_text,
    with_origin,
)
from penguin.protocol.errors import ResumeError
from penguin.protocol.messages import Message, SessionMeta, Thinking
from penguin.trace.fork import ForkPlan, fork_trace
from penguin.trace.names import file_name, new_session_id
from penguin.trace.reader import read_trace
from penguin.trace.stats import stats_of

OLD = "session-2026-01-02-03-04-05-abcdef01"
META = session_meta(session_id=OLD, provider="p", model_id="m", system_prompt="s", workspace="/w")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("source")
    return [
        _write(folder / f"{name}.jsonl", recording.files[0])
        for name, recording in recordings().items()
        if name == "busy"
    ]


def _write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def ledger_of(paths: list[Path]) -> Ledger:
    ledger = Ledger()
    for path in paths:
        for message in read_trace(path):
            ledger.observe(message)
    return ledger


def test_T13_the_whole_session_is_copied_line_by_line_under_a_new_id(source: list[Path], tmp_path: Path) -> None:
    before = source[0].read_bytes()
    new_id = new_session_id()
    (copy,) = fork_trace(source, ForkPlan(new_id, tmp_path))
    assert copy.name == file_name(new_id, 1)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.read_bytes().splitlines()[1:] == before.splitlines()[1:]
    assert source[0].read_bytes() == before
    forked, original = ledger_of([copy]), ledger_of(source)
    assert forked.meta is not None
    assert original.meta is not None
    assert forked.meta.session_id == new_id
    assert forked.meta.system_prompt == original.meta.system_prompt
    assert forked.facts() == original.facts()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_T13_from_a_committed_request_with_the_answers_to_its_calls(
    source: list[Path], tmp_path: Path, at: int
) -> None:
    ledger = ledger_of(fork_trace(source, ForkPlan(new_session_id(), tmp_path, at_request=at)))
    assert ledger.turns == at
    assert ledger.unanswered == []
    first = [text_of(message) for message in ledger.carry_over]
    assert (len(first) == 3) == (at == 1)


def test_T13_a_request_that_does_not_exist_leaves_no_file(source: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match="cannot be forked at 99"):
        fork_trace(source, ForkPlan(new_session_id(), tmp_path, at_request=99))
    assert not list(tmp_path.rglob("*.jsonl"))


def test_T11_T13_before_any_record_the_copy_is_the_session_as_it_was_then(source: list[Path], tmp_path: Path) -> None:
    records = [message for message in read_trace(source[0]) if not message.origin]
    live = Ledger()
    for count, record in enumerate(records, start=1):
        live.observe(record)
        assert (live.contexts, live.records) == (1, count)
        copies = fork_trace([*source, tmp_path / "later"], ForkPlan(new_session_id(), tmp_path, before=(1, count)))
        assert len(copies) == 1
        assert ledger_of(copies).facts() == live.facts()
        copies[0].unlink()


def test_records_of_children_in_a_foreign_trace_do_not_count(tmp_path: Path) -> None:
    meta = session_meta(session_id=OLD, provider="p", model_id="m", system_prompt="s", workspace="/w", tools=[])
    records: list[Message] = [meta, with_origin(user_text("a child's"), "child"), user_text("one"), user_text("two")]
    ledger = Ledger()
    for record in records[:3]:
        ledger.observe(record)
    place = (ledger.contexts, ledger.records)
    source = _write(tmp_path / "source.jsonl", [record.line for record in records])
    (copy,) = fork_trace([source], ForkPlan(new_session_id(), tmp_path, before=place))
    assert [text_of(message) for message in read_trace(copy)][1:] == ["a child's", "one"]


def test_T13_another_model_drops_the_fidelity_and_nothing_else(source: list[Path], tmp_path: Path) -> None:
    plan = ForkPlan(new_session_id(), tmp_path, provider="q", model_id="n", drop_fidelity=True)
    (copy,) = fork_trace(source, plan)
    meta, *records = read_trace(copy)
    assert isinstance(meta.payload, SessionMeta)
    assert (meta.payload.provider, meta.payload.model_id) == ("q", "n")
    thoughts = [record.payload for record in records if isinstance(record.payload, Thinking)]
    assert thoughts
    assert b"fidelity" not in copy.read_bytes()
    assert b"S1==" in source[0].read_bytes()


def test_T13_local_files_are_copied_and_their_markers_point_to_the_copies(tmp_path: Path) -> None:
    old, new = tmp_path / "scratchpad" / "old", tmp_path / "scratchpad" / "new"
    old.mkdir(parents=True)
    (old / "pasted.png").write_bytes(b"png")
    meta = session_meta(session_id=OLD, provider="p", model_id="m", system_prompt="", workspace="/w")
    prompt = user_text(f"[attached image: {old}/pasted.png]\nWhat is this?")
    source = _write(tmp_path / "1.jsonl", [meta.line, prompt.line])
    (copy,) = fork_trace([source], ForkPlan(new_session_id(), tmp_path, scratchpads=(old, new)))
    *_, copied = read_trace(copy)
    assert f"{new}/pasted.png" in text_of(copied)
    assert (new / "pasted.png").read_bytes() == b"png"


def test_T14_unknown_fields_of_the_configuration_record_stay(tmp_path: Path) -> None:
    meta = session_meta(session_id=OLD, provider="p", model_id="m", system_prompt="", workspace="/w")
    line = meta.line.replace(b'"payload":{', b'"payload":{"from_the_future":[1,2],')
    source = _write(tmp_path / "1.jsonl", [line, user_text("hi").line])
    (copy,) = fork_trace([source], ForkPlan(new_session_id(), tmp_path))
    assert b'"from_the_future":[1,2]' in copy.read_bytes()


def test_stats_count_what_happened(source: list[Path]) -> None:
    stats = stats_of(read_trace(source[0]))
    assert stats.requests == 5
    assert stats.retries == 1
    assert stats.tool_calls["echo"] == 4
    assert stats.denied == 1
    assert stats.aborts == 2
    assert stats.tokens.total > 0
    assert stats.cached_share == pytest.approx(stats.tokens.cache_read / (stats.tokens.total - stats.tokens.output))


def test_T13_the_answers_behind_the_pointer_to_a_subagent_are_copied(tmp_path: Path) -> None:
    records: list[Message] = [
        META,
        user_text("go"),
        request_begin(),
        tool_call("run_subagent", "{}", "a"),
        tool_call("exec_command", "{}", "b"),
        request_end("completed"),
        approval_decision("allow", "a"),
        subagent("child"),
        tool_call_output("done", "b"),
        tool_call_output("found", "a"),
        request_begin(),
    ]
    path = _write(tmp_path / "a.jsonl", [record.line for record in records])
    ledger = ledger_of(fork_trace([path], ForkPlan(new_session_id(), tmp_path / "copy", at_request=1)))
    assert [text_of(message) for message in ledger.carry_over] == ["found", "done"]


def test_T13_E25_what_the_model_said_keeps_its_bytes_when_local_files_move(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    said: list[Message] = [
        thinking(f"It is in {old}/a.txt", fidelity={"signature": "s"}),
        tool_call("ls", f'{{"p":"{old}"}}', "a"),
    ]
    records: list[Message] = [META, *said, tool_call_output(f"kept in {old}/a.txt", "a")]
    path = _write(tmp_path / "a.jsonl", [record.line for record in records])
    (copy,) = fork_trace([path], ForkPlan(new_session_id(), tmp_path / "copy", scratchpads=(old, new)))
    lines = copy.read_bytes().splitlines()
    assert lines[1:3] == [record.line for record in said]
    assert f"kept in {new}/a.txt".encode() in lines[3]
