from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from penguin.trace.names import (
    created_at,
    files_of,
    index_of,
    is_session_id,
    lock_path,
    new_session_id,
    session_of,
    trace_path,
)

SESSION = "session-2026-03-01-09-05-07-00c0ffee"


def test_T1_a_session_id_is_local_time_and_eight_hex_digits() -> None:
    moment = datetime(2026, 3, 1, 9, 5, 7).astimezone()
    assert new_session_id(moment, lambda size: "00c0ffee"[: 2 * size]) == SESSION
    assert created_at(SESSION) == moment
    assert re.fullmatch(r"session-\d{4}(-\d\d){5}-[0-9a-f]{8}", new_session_id())
    assert new_session_id() != new_session_id()
    assert is_session_id(new_session_id())


def test_T1_all_files_of_a_session_lie_in_the_day_of_its_creation() -> None:
    assert trace_path(Path("/t"), SESSION, 1) == Path(f"/t/2026-03-01/{SESSION}_001.jsonl")
    assert trace_path(Path("/t"), SESSION, 1234).name == f"{SESSION}_1234.jsonl"
    assert lock_path(Path("/t"), SESSION) == Path(f"/t/2026-03-01/{SESSION}.lock")


@pytest.mark.parametrize(
    "text",
    ["", "session", "../etc", SESSION + "/..", SESSION + "\n", SESSION.upper(), "session-2026-02-31-09-05-07-00c0ffee",
     "session-٢٠٢٦-03-01-09-05-07-00c0ffee"],
)  # fmt: skip
def test_what_is_no_session_id_is_refused(text: str) -> None:
    assert not is_session_id(text)


def test_a_path_is_never_made_of_something_else() -> None:
    with pytest.raises(ValueError, match="no session id"):
        trace_path(Path("/t"), "../../etc/passwd", 1)


def test_T1_names_are_read_back_the_reference_traces_too() -> None:
    for name in (f"{SESSION}_012.jsonl", f"trace-{SESSION}_012.jsonl"):
        assert (session_of(Path(name)), index_of(Path(name))) == (SESSION, 12)
    assert (session_of(Path("notes.jsonl")), index_of(Path("notes.jsonl"))) == (None, None)


def test_T1_files_come_in_the_order_of_their_indexes(tmp_path: Path) -> None:
    assert files_of(tmp_path, SESSION) == []
    day = trace_path(tmp_path, SESSION, 1).parent
    day.mkdir()
    other = "session-2026-03-01-09-05-07-00c0ffef"
    for name in (f"{SESSION}_1000.jsonl", f"{SESSION}_002.jsonl", f"{SESSION}_001.jsonl", f"{SESSION}.lock"):
        (day / name).touch()
    (day / f"{other}_001.jsonl").touch()
    assert [index_of(path) for path in files_of(tmp_path, SESSION)] == [1, 2, 1000]
