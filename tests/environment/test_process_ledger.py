"""What a resumed session knows of the background commands of before (E17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from penguin.environment.process_ledger import ProcessLedger
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment

pytestmark = pytest.mark.anyio


def sessions_of(file: Path) -> CommandSessions:
    return CommandSessions(environment=ShellEnvironment(login_shell=False), ledger=ProcessLedger(file))


async def kept(sessions: CommandSessions, cmd: str, directory: Path) -> str:
    return await sessions.keep(await sessions.start(cmd, directory), asked_for=True)


async def test_E17_ids_go_on_and_what_ended_with_the_program_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "scratchpad" / "processes.jsonl"
    first = sessions_of(file)
    assert [await kept(first, f"sleep 7{number}", tmp_path) for number in range(3)] == ["p1", "p2", "p3"]
    killed = first.find("p2")
    await first.end(killed)
    first.forget(killed)
    await first.aclose()
    second = sessions_of(file)
    assert [(note.process_id, note.cmd) for note in second.take_lost()] == [("p1", "sleep 70"), ("p3", "sleep 72")]
    assert await kept(second, "sleep 73", tmp_path) == "p4"
    await second.aclose()
    assert [note.process_id for note in sessions_of(file).take_lost()] == ["p4"]
    assert sessions_of(file).take_lost() == []


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "processes.jsonl"
    ledger = ProcessLedger(file)
    ledger.begin("one")
    file.write_bytes(file.read_bytes() + b'{"number":')
    again = ProcessLedger(file)
    assert [note.cmd for note in again.lost] == ["one"]
    assert again.begin("two").process_id == "p2"
    assert [note.cmd for note in ProcessLedger(file).lost] == ["one", "two"]


def test_a_place_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert ProcessLedger(tmp_path / "file" / "processes.jsonl").begin("one").process_id == "p1"
