from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from penguin.protocol.builders import assistant_text, image_url, session_meta, user_text
from penguin.protocol.messages import Message
from penguin.trace.index import latest_session, list_sessions
from penguin.trace.names import trace_path

OLD = "session-2026-02-28-23-59-59-00000001"
MORNING = "session-2026-03-01-09-05-00-00000002"
EVENING = "session-2026-03-01-20-00-00-00000003"


def written(traces: Path, session_id: str, index: int, *records: Message, at: float = 0) -> Path:
    path = trace_path(traces, session_id, index)
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = session_meta(session_id=session_id, provider="custom", model_id="m", system_prompt="", workspace="/w")
    path.write_bytes(b"".join(message.line + b"\n" for message in (meta, *records)))
    os.utime(path, (at, at))
    return path


def test_sessions_are_listed_newest_first_with_what_a_person_recognises(tmp_path: Path) -> None:
    written(tmp_path, OLD, 1, user_text("old"), at=500)
    written(tmp_path, MORNING, 1, image_url("data:x"), user_text("Fix\n  the " + "long " * 40), at=100)
    written(tmp_path, MORNING, 2, user_text("summary"), at=200)
    written(tmp_path, EVENING, 1, assistant_text("no prompt"), at=300)
    evening, morning, old = list_sessions(tmp_path)
    assert [summary.session_id for summary in (evening, morning, old)] == [EVENING, MORNING, OLD]
    assert morning.title == "Fix the long long long long long long long long long long lo"
    assert len(morning.title) == 60
    assert (morning.files, morning.workspace, morning.provider, morning.model_id) == (2, "/w", "custom", "m")
    assert morning.modified.timestamp() == 200
    assert (morning.created.hour, morning.created.minute) == (9, 5)
    assert (evening.title, evening.problem) == ("", None)
    assert old.title == "old"


def test_an_unreadable_session_is_listed_with_its_problem(tmp_path: Path) -> None:
    written(tmp_path, MORNING, 1).write_bytes(b"garbage\n")
    (summary,) = list_sessions(tmp_path)
    assert summary.session_id == MORNING
    assert "not a trace" in (summary.problem or "")


def test_the_latest_session_is_the_one_written_to_last(tmp_path: Path) -> None:
    assert latest_session(tmp_path / "none") is None
    assert latest_session(tmp_path) is None
    written(tmp_path, OLD, 1, at=500)
    written(tmp_path, MORNING, 1, at=100)
    assert latest_session(tmp_path) == OLD
    written(tmp_path, MORNING, 2, at=600)
    assert latest_session(tmp_path) == MORNING


def test_strange_names_are_passed_over(tmp_path: Path) -> None:
    day = written(tmp_path, MORNING, 1, user_text("a")).parent
    (tmp_path / "readme").touch()
    for name in (
        "notes_001.jsonl",
        "session-x_001.jsonl",
        f"{OLD}_001.jsonl",
        "session-2026-03-01-99-00-00-00000002_001.jsonl",
    ):
        (day / name).touch()
    assert [summary.session_id for summary in list_sessions(tmp_path)] == [MORNING]


def test_only_the_head_of_a_file_is_read_and_only_of_the_sessions_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, OLD, 1).write_bytes(b"never read")
    with written(tmp_path, EVENING, 1, user_text("title")).open("ab") as file:
        file.truncate(4_000_000_000)
    (summary,) = itertools.islice(list_sessions(tmp_path), 1)
    assert summary.title == "title"
