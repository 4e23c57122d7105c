"""Sessions on disk: found, listed, exported, deleted, and nothing else touched (K8)."""

from __future__ import annotations

import io
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.session_files import CHILD, EVENING, MORNING, OLD, scratch, spoken, with_child, written

from penguin.agent.session_export import export_archive, export_records
from penguin.agent.sessions import (
    delete_session,
    family_of,
    find_session,
    idle_since,
    pointers,
    stored_session,
    stored_sessions,
)
from penguin.protocol.builders import subagent, user_text
from penguin.protocol.errors import ResumeError, SessionError, SessionLocked
from penguin.state.paths import AgentPaths, DataRoot
from penguin.trace.lock import SessionLock
from penguin.trace.names import files_of, lock_path


@pytest.fixture
def paths(tmp_path: Path) -> AgentPaths:
    return DataRoot(tmp_path / "data").project().agent()


def everything_below(directory: Path) -> set[str]:
    return {os.fspath(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


# ---------------------------------------------------------------- finding


def test_a_session_is_found_by_its_id_its_end_or_as_the_latest(paths: AgentPaths) -> None:
    written(paths, OLD, at=900)
    written(paths, MORNING, at=100)
    assert find_session(paths, MORNING) == MORNING
    assert find_session(paths, "0000000b") == MORNING
    assert find_session(paths, "-0000000b") == MORNING
    assert find_session(paths) == OLD


def test_an_end_that_fits_two_sessions_names_both(paths: AgentPaths) -> None:
    other = "session-2026-02-27-09-05-00-0000000b"
    written(paths, MORNING)
    written(paths, other)
    with pytest.raises(ResumeError, match=f"2 sessions end in 0000000b: {other}, {MORNING}"):
        find_session(paths, "0000000b")


@pytest.mark.parametrize("name", ["0b", "", "ffffffff", "../../etc", "*", OLD])
def test_what_is_no_session_is_not_found(paths: AgentPaths, name: str) -> None:
    written(paths, MORNING)
    with pytest.raises(ResumeError, match="there is no session"):
        find_session(paths, name)


def test_the_latest_session_is_never_a_subagents(paths: AgentPaths) -> None:
    with_child(paths, at=100)
    written(paths, CHILD, *spoken("count"), at=500)
    assert find_session(paths) == EVENING


def test_without_sessions_there_is_no_latest(paths: AgentPaths) -> None:
    with pytest.raises(ResumeError, match="no session in"):
        find_session(paths)


# ---------------------------------------------------------------- subagents


def test_a_subagents_session_knows_its_parent_and_words_alone_make_none(paths: AgentPaths) -> None:
    with_child(paths)
    written(paths, MORNING, user_text('{"type":"subagent","session_id":"' + OLD + '"}'))
    written(paths, OLD)
    assert {each.session_id: each.parent for each in stored_sessions(paths)} == {
        CHILD: EVENING,
        EVENING: None,
        MORNING: None,
        OLD: None,
    }


def test_a_pointer_from_another_agent_counts(paths: AgentPaths) -> None:
    written(paths.project.agent("boss"), MORNING, subagent(CHILD))
    written(paths, CHILD)
    assert stored_session(paths, CHILD).parent == MORNING


def test_the_subagents_of_a_fork_belong_to_nobody_alone(paths: AgentPaths) -> None:
    with_child(paths)
    written(paths, MORNING, subagent(CHILD))
    assert family_of(paths, EVENING) == [EVENING]
    delete_session(paths, MORNING)
    assert family_of(paths, EVENING) == [EVENING, CHILD]


# ---------------------------------------------------------------- open ones


def test_T6_an_open_session_has_an_owner_and_the_lock_of_a_dead_process_means_nothing(paths: AgentPaths) -> None:
    written(paths, MORNING)
    lock = lock_path(paths.traces, MORNING)
    with SessionLock(lock):
        owner = stored_session(paths, MORNING).owner
        assert owner is not None
        assert owner.pid == os.getpid()
        signed = lock.read_text()
    lock.write_text(signed.replace(str(os.getpid()), "999999999"))
    assert stored_session(paths, MORNING).owner is None


def test_T6_an_open_session_is_not_deleted_nor_the_parent_of_an_open_one(paths: AgentPaths) -> None:
    with_child(paths)
    scratch(paths, EVENING)
    for held in (EVENING, CHILD):
        before = everything_below(paths.path)
        with SessionLock(lock_path(paths.traces, held)), pytest.raises(SessionLocked):
            delete_session(paths, EVENING)
        assert everything_below(paths.path) == before


# ---------------------------------------------------------------- deleting


def test_a_deleted_session_takes_its_files_its_scratchpad_and_its_subagents_along(paths: AgentPaths) -> None:
    with_child(paths)
    written(paths, EVENING, index=2)
    written(paths, MORNING)
    scratch(paths, EVENING)
    scratch(paths, CHILD)
    kept = scratch(paths, MORNING)
    assert delete_session(paths, EVENING) == [EVENING, CHILD]
    assert [each.session_id for each in stored_sessions(paths)] == [MORNING]
    assert kept.exists()
    assert not paths.scratchpad(EVENING).exists()
    assert not paths.scratchpad(CHILD).exists()
    delete_session(paths, MORNING)
    assert list(paths.traces.iterdir()) == []


def test_deleting_never_follows_a_link_out_of_the_agent(paths: AgentPaths, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("precious")
    written(paths, MORNING)
    inside = scratch(paths, MORNING).parent
    (inside / "link").symlink_to(outside)
    written(paths, OLD)
    paths.scratchpad(OLD).symlink_to(outside)
    delete_session(paths, MORNING)
    delete_session(paths, OLD)
    assert (outside / "precious.txt").read_text() == "precious"
    assert list(stored_sessions(paths)) == []
    assert not paths.scratchpad(OLD).is_symlink()


def test_a_day_that_leads_elsewhere_is_left_alone(paths: AgentPaths, tmp_path: Path) -> None:
    file = written(paths, MORNING)
    elsewhere = tmp_path / "elsewhere"
    file.parent.rename(elsewhere)
    file.parent.symlink_to(elsewhere)
    with pytest.raises(SessionError, match="leads out of"):
        delete_session(paths, MORNING)
    assert (elsewhere / file.name).exists()


def test_traces_kept_on_another_disk_can_be_deleted(paths: AgentPaths, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    paths.path.mkdir(parents=True)
    paths.traces.symlink_to(tmp_path / "disk")
    file = written(paths, MORNING)
    delete_session(paths, MORNING)
    assert not file.exists()


def test_only_what_was_idle_long_enough_is_old_and_a_busy_subagent_keeps_its_parent(paths: AgentPaths) -> None:
    written(paths, OLD, at=100)
    written(paths, MORNING, at=100)
    written(paths, MORNING, index=2, at=900)
    with_child(paths, at=100)
    written(paths, CHILD, *spoken("count"), at=900)
    old = idle_since(paths, datetime.fromtimestamp(500, UTC), pointers(paths))
    assert [each.session_id for each in old] == [OLD]


# ---------------------------------------------------------------- exporting


def test_an_archive_holds_everything_and_unpacked_it_is_the_session(paths: AgentPaths, tmp_path: Path) -> None:
    with_child(paths)
    written(paths, EVENING, *spoken("go on"), index=2)
    inside = scratch(paths, EVENING)
    (inside.parent / "link").symlink_to("output.txt")
    written(paths, MORNING)
    out = io.BytesIO()
    export_archive(paths, EVENING, out)
    other = DataRoot(tmp_path / "other").project().agent()
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        assert {member.uname for member in archive} == {""}
        archive.extractall(other.path, filter="data")
    expected = {name for name in everything_below(paths.path) if MORNING not in name}
    assert everything_below(other.path) == expected
    assert [each.session_id for each in stored_sessions(other)] == [CHILD, EVENING]
    for mine, theirs in zip(files_of(paths.traces, EVENING), files_of(other.traces, EVENING), strict=True):
        assert mine.read_bytes() == theirs.read_bytes()
    assert (other.scratchpad(EVENING) / "images" / "link").read_text() == "long output\n"


def test_records_are_exported_as_they_were_stored(paths: AgentPaths) -> None:
    first, second = written(paths, EVENING, *spoken("a")), written(paths, EVENING, *spoken("b"), index=2)
    with second.open("ab") as file:
        file.write(b"damage\n" + b'{"timestamp":"2026')
    out = io.BytesIO()
    warnings = export_records(paths, EVENING, out)
    assert out.getvalue() == first.read_bytes() + second.read_bytes().partition(b"damage")[0]
    assert [warning.line for warning in warnings] == [5]
