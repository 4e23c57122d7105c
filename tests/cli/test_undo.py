"""``penguin sessions undo``, ``redo`` and ``diff``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.cli.conftest import Penguin
from tests.support.command_line import Place, Terminal
from tests.support.engine_kit import allow

from penguin import create_agent
from penguin.testing import call, turn
from penguin.testing.scripted import ScriptedModel


async def _work(root: Path, workspace: Path, command: str) -> str:
    agent = await create_agent(root=root)
    script = ScriptedModel([turn(call("exec_command", {"cmd": command, "description": "work"})), "Done."])
    async with await agent.create_session(model=script.factory(), workspace_dir=workspace) as session:
        await session.ask("Change\nthe files", approve=allow)
        return session.id


def work(root: Path, workspace: Path, command: str) -> str:
    """A session with one task that runs a command."""
    return anyio.run(partial(_work, root, workspace, command))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    found = tmp_path / "ws"
    found.mkdir()
    (found / "a.txt").write_text("one\ntwo\n")
    return found


@pytest.fixture
def session_id(tmp_path: Path, workspace: Path) -> str:
    return work(tmp_path / "home", workspace, "echo 2 > a.txt; mkdir d; touch d/new $'d/\\033[31m\\n'")


def test_back_and_forth(penguin: Penguin, session_id: str, workspace: Path) -> None:
    said = penguin("sessions", "undo", "--yes")
    assert said.status == 0, said.err
    *preview, copy = said.out.splitlines()
    assert preview[0] == "Undo task 1: Change the files"
    assert preview[2:6] == ["  ~ a.txt", "  - d/", "  - d/␛[31m\\n", "  - d/new"]
    assert copy.startswith("session-")
    assert f"penguin run --resume {copy[-8:]}" in said.err
    assert sorted(path.name for path in workspace.iterdir()) == ["a.txt"]
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"

    said = penguin("sessions", "redo", "--yes")
    assert said.status == 0, said.err
    assert said.out.splitlines()[-1] == session_id
    assert (workspace / "a.txt").read_text() == "2\n"
    assert penguin("sessions", "undo", "--list").out.splitlines()[1].split()[-3:] == ["Change", "the", "files"]


def test_the_diff_and_its_short_form(penguin: Penguin, session_id: str) -> None:
    out = penguin("sessions", "diff", session_id).out.splitlines()
    assert out[:5] == ["modified file a.txt", "@@ -1,2 +1 @@", "-one", "-two", "+2"]
    assert penguin("sessions", "diff", "--stat").out.splitlines()[:2] == ["  ~ a.txt  +1 -2", "  + d/"]


def test_K10_without_a_terminal_nothing_is_asked_and_nothing_done(
    penguin: Penguin, session_id: str, workspace: Path
) -> None:
    said = penguin("sessions", "undo")
    assert said.status == 2
    assert "--yes" in said.err
    assert "- d/new" in said.out
    assert penguin("sessions", "undo", "--dry-run").status == 0
    assert (workspace / "d" / "new").exists()


def test_what_is_in_the_way_is_named_and_goes_only_by_force(penguin: Penguin, session_id: str, workspace: Path) -> None:
    (workspace / "a.txt").write_text("mine")
    said = penguin("sessions", "undo", "--yes")
    assert said.status == 1
    assert "In the way:\n  a.txt: it was changed since" in said.out
    assert "nothing was changed" in said.err
    assert (workspace / "a.txt").read_text() == "mine"
    assert penguin("sessions", "undo", "--yes", "--force", "--files-only").status == 0
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"


def test_each_half_alone_but_not_neither(penguin: Penguin, session_id: str, workspace: Path) -> None:
    assert penguin("sessions", "undo", "--files-only", "--conversation-only").status == 2
    said = penguin("sessions", "undo", session_id, "--conversation-only", "--yes")
    assert (said.status, (workspace / "a.txt").read_text()) == (0, "2\n")
    said = penguin("sessions", "undo", session_id, "--files-only", "--yes")
    assert "session-" not in said.out.splitlines()[-1]
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"


def test_nothing_to_undo_or_redo_is_one_sentence(penguin: Penguin, tmp_path: Path, session_id: str) -> None:
    for said in (penguin("sessions", "redo", "--yes"), penguin("sessions", "undo", "--to", "7", "--yes")):
        assert said.status == 1
        assert said.err.startswith("penguin: ")
        assert "Traceback" not in said.err


def test_what_could_not_be_restored_is_the_exit_status(penguin: Penguin, tmp_path: Path, workspace: Path) -> None:
    work(tmp_path / "home", workspace, "mkdir d; touch d/x; mkfifo d/pipe")
    said = penguin("sessions", "undo", "--yes", "--files-only")
    assert said.status == 1
    assert "some of it could not be restored:\n  d: the directory still holds" in said.err


def test_on_a_terminal_a_person_is_asked(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.workspace / "a.txt").write_text("one\n")
    work(place.home, place.workspace, "echo 2 > a.txt")
    with Terminal(place, "sessions", "undo") as terminal:
        terminal.wait_for(r"Undo this\?")
        terminal.type("n\n")
        assert terminal.end() == 0
    assert (place.workspace / "a.txt").read_text() == "2\n"
    with Terminal(place, "sessions", "undo") as terminal:
        terminal.wait_for(r"Undo this\?")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert (place.workspace / "a.txt").read_text() == "one\n"
