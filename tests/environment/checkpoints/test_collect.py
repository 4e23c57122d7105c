"""Clearing away: by age, by size, and never what somebody still needs."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from tests.support.checkpoint_kit import Keeper, killed_after

from penguin.environment.checkpoints.collect import Retention, collect, is_due
from penguin.environment.checkpoints.manifest import MissingContent
from penguin.environment.checkpoints.records import SessionRecords, TaskRecord, UndoStep
from penguin.environment.checkpoints.scan import Stopped

DAY = 86_400


def noted(keeper: Keeper, session: str, *, days_ago: float = 0, step: str = "") -> str:
    """A checkpoint of the present tree that a record names."""
    name = keeper.take()
    records = SessionRecords(keeper.store.sessions / session)
    records.write(TaskRecord(number=1, workspace=str(keeper.workspace), started="", before=name))
    if step:
        records.write_steps([UndoStep(number=1, session_id=session, workspace=str(keeper.workspace), present=step)])
    moment = time.time() - days_ago * DAY
    os.utime(records.directory, (moment, moment))
    return name


def held(keeper: Keeper) -> set[str]:
    return {path.read_text() for path in (keeper.part.directory / "objects").rglob("*") if path.is_file()}


def test_old_sessions_go_with_what_only_they_had(keeper: Keeper) -> None:
    keeper.write("a", "shared")
    keeper.write("b", "old")
    old = noted(keeper, "s1", days_ago=31)
    keeper.write("b", "new")
    new = noted(keeper, "s2", days_ago=29)
    assert collect(keeper.store) >= len("old")
    assert held(keeper) == {"shared", "new"}
    assert keeper.paths(new) == [b"a", b"b"]
    with pytest.raises(MissingContent):
        keeper.manifest(old)
    assert [path.name for path in keeper.store.sessions.iterdir()] == ["s2"]


def test_too_much_goes_the_oldest_first_and_the_newest_never(keeper: Keeper) -> None:
    for number in range(4):
        keeper.write("a", f"content {number}")
        noted(keeper, f"s{number}", days_ago=4 - number)
    collect(keeper.store, Retention(total_bytes=20))
    assert held(keeper) == {"content 2", "content 3"}
    collect(keeper.store, Retention(total_bytes=0))
    assert held(keeper) == {"content 3"}


def test_what_a_redo_needs_stays(keeper: Keeper) -> None:
    keeper.write("a", "before the undo")
    present = keeper.take()
    keeper.write("a", "now")
    noted(keeper, "s", step=present)
    collect(keeper.store)
    assert held(keeper) == {"before the undo", "now"}


def test_a_checkpoint_after_it_keeps_again_what_was_cleared_away(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penguin.environment.checkpoints.scan.settled", lambda *_: True)
    keeper.write("b", "two")
    noted(keeper, "young")
    keeper.write("a", "one")
    noted(keeper, "old", days_ago=40)
    collect(keeper.store)
    assert held(keeper) == {"two"}
    name = noted(keeper, "later")
    keeper.write("a", "changed")
    assert keeper.restore(name) == []
    assert (keeper.workspace / "a").read_text() == "one"


def test_a_workspace_nobody_needs_any_more_goes_whole(keeper: Keeper) -> None:
    keeper.write("a", "x")
    noted(keeper, "s", days_ago=40)
    collect(keeper.store)
    assert not keeper.part.directory.exists()
    keeper.restore(keeper.take())


def test_nothing_goes_while_somebody_adds(keeper: Keeper) -> None:
    keeper.write("a", "x")
    noted(keeper, "s", days_ago=40)
    with keeper.store.adding():
        assert collect(keeper.store) == 0
    assert held(keeper) == {"x"}


def test_whoever_adds_waits_for_the_clearing_and_can_be_told_to_stop(keeper: Keeper) -> None:
    stopped = threading.Event()
    stopped.set()
    with keeper.store.alone() as alone:
        assert alone
        with pytest.raises(Stopped), keeper.store.adding(stopped):
            raise AssertionError("it did not wait")


def test_it_stops_when_told_and_goes_on_another_time(keeper: Keeper) -> None:
    keeper.write("a", "x")
    noted(keeper, "s", days_ago=1)
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Stopped):
        collect(keeper.store, stopped=stopped)
    assert is_due(keeper.store)
    collect(keeper.store)
    assert not is_due(keeper.store)


def test_it_is_due_once_a_day(keeper: Keeper) -> None:
    assert is_due(keeper.store)
    collect(keeper.store)
    assert not is_due(keeper.store)
    moment = time.time() - 2 * DAY
    os.utime(keeper.directory / ".collected", (moment, moment))
    assert is_due(keeper.store)


def test_a_kill_at_any_moment_loses_nothing_that_is_named(keeper: Keeper) -> None:
    steps = 0
    while True:
        keeper.write("a", "kept")
        for number in range(3):
            keeper.write("b", f"old {number}")
            noted(keeper, f"old{number}", days_ago=40)
        (keeper.workspace / "b").unlink()
        name = noted(keeper, "young")
        if not killed_after(steps, lambda: collect(keeper.store)):
            break
        keeper.write("a", "changed")
        assert keeper.restore(name) == [], steps
        assert keeper.restore(keeper.take()) == []
        steps += 1
    assert steps > 3
    assert held(keeper) == {"kept"}


def test_debris_of_killed_checkpoints_goes_too(keeper: Keeper) -> None:
    keeper.write("a", "x")
    noted(keeper, "s")
    debris = [keeper.part.directory / "objects" / "tmp-1-abc", keeper.part.directory / "manifests" / "tmp-1-abc"]
    for path in debris:
        Path(path).write_text("half")
    collect(keeper.store)
    assert not any(path.exists() for path in debris)
    assert held(keeper) == {"x"}
