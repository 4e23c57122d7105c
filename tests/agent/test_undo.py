"""Undo, redo and diff of whole sessions: files, conversation, or both."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.checkpoint_kit import git, killed_after, picture
from tests.support.deadline import Deadline
from tests.support.engine_kit import allow, text_of

from penguin import create_agent
from penguin.agent.agent import Agent
from penguin.agent.sessions import delete_session
from penguin.agent.undo import FileChange, Undo, UndoReport, UndoWish
from penguin.environment.checkpoints.collect import collect
from penguin.environment.checkpoints.store import CheckpointStore
from penguin.protocol.errors import SessionBusy, SessionLocked, UndoConflict, UndoError
from penguin.session.session import Session
from penguin.testing import call, say, turn
from penguin.testing.scripted import ScriptedModel
from penguin.trace.check import check_trace
from penguin.trace.names import files_of

pytestmark = pytest.mark.anyio


def writes(**files: str) -> Any:
    """A turn that writes files through a command."""
    commands = "; ".join(
        f"mkdir -p $(dirname {name}); printf %s '{content}' > {name}" for name, content in files.items()
    )
    return turn(say("Working."), call("exec_command", {"cmd": commands, "description": "write"}))


def runs(command: str) -> Any:
    return turn(call("exec_command", {"cmd": command, "description": "run"}))


class Scene:
    """An agent with a workspace and a session that has done its tasks."""

    def __init__(self, agent: Agent, workspace: Path) -> None:
        self.agent = agent
        self.workspace = workspace

    async def tasks(self, *tasks: Iterable[Any], resume: str | None = None) -> str:
        """One task for each list of turns, with the prompts `task 1`, `task 2` …; the session's id."""
        script = ScriptedModel([reply for turns in tasks for reply in (*turns, "Done.")])
        async with await self._session(script, resume) as session:
            for number in range(1, len(tasks) + 1):
                await session.ask(f"task {number}", approve=allow)
            return session.id

    async def _session(self, script: ScriptedModel, resume: str | None) -> Session:
        if resume is not None:
            return await self.agent.resume_session(resume, model=script.factory())
        return await self.agent.create_session(model=script.factory(), workspace_dir=self.workspace)

    async def prompts(self, session_id: str) -> list[str]:
        """What a session remembers."""
        async with await self.agent.resume_session(session_id, model=ScriptedModel([]).factory()) as session:
            return [text_of(message) for message in session.engine.ledger.history]

    def write(self, name: str, content: str) -> None:
        (self.workspace / name).write_text(content)

    def read(self) -> dict[str, str]:
        files = [path for path in self.workspace.rglob("*") if path.is_file() and ".git" not in path.parts]
        return {str(path.relative_to(self.workspace)): path.read_text() for path in files}


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "a").write_text("a0")
    return Scene(await create_agent(root=tmp_path / "data"), workspace)


async def test_a_task_is_undone_and_redone_with_files_and_conversation(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")], [writes(a="a2", b="b2"), "Really."])
    before = files_of(scene.agent.paths.traces, source)[0].read_bytes()
    report = await scene.agent.undo()
    assert (report.session_id, report.number, report.title, report.done) == (source, 2, "task 2", True)
    assert scene.read() == {"a": "a1"}
    copy = report.conversation
    assert copy is not None
    assert copy != source
    history = await scene.prompts(copy)
    assert history[0] == "task 1"
    assert "task 2" not in history
    assert files_of(scene.agent.paths.traces, source)[0].read_bytes() == before
    assert check_trace(files_of(scene.agent.paths.traces, copy)[0]).damaged == 0

    again = await scene.agent.redo(copy)
    assert (again.number, again.conversation) == (2, source)
    assert scene.read() == {"a": "a2", "b": "b2"}
    assert "task 2" in await scene.prompts(source)


async def test_undo_again_goes_further_back_and_redo_all_the_way_forth(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")], [writes(a="a2")], [writes(a="a3")])
    way = [source]
    for expected in ("a2", "a1", "a0"):
        report = await scene.agent.undo(way[-1])
        assert scene.read() == {"a": expected}
        assert report.conversation is not None
        way.append(report.conversation)
    assert await scene.prompts(way[-1]) == []
    for expected, source in zip(("a1", "a2", "a3"), reversed(way[:-1]), strict=True):
        report = await scene.agent.redo(way.pop())
        assert report.conversation == source
        assert scene.read() == {"a": expected}


async def test_the_copy_goes_on_with_new_tasks_which_can_be_undone(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")], [writes(a="a2")])
    copy = (await scene.agent.undo(source)).conversation
    assert copy is not None
    await scene.tasks([writes(a="other")], resume=copy)
    assert [task.title for task in scene.agent.checkpoints(copy)] == ["task 1", "task 1"]
    with pytest.raises(UndoError, match="nothing to redo"):
        await scene.agent.redo(copy)
    await scene.agent.undo(copy)
    assert scene.read() == {"a": "a1"}


async def test_files_only_walks_back_in_the_same_session(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")], [writes(a="a2")])
    undo = partial(scene.agent.undo, source, conversation=False)
    assert (await undo()).conversation is None
    assert scene.read() == {"a": "a1"}
    await undo()
    assert scene.read() == {"a": "a0"}
    with pytest.raises(UndoError, match="undone already"):
        await undo()
    for expected in ("a1", "a2"):
        assert (await scene.agent.redo(source)).conversation is None
        assert scene.read() == {"a": expected}
    assert len(list(files_of(scene.agent.paths.traces, source))) == 1


async def test_conversation_only_leaves_the_files(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")], [writes(a="a2")])
    report = await scene.agent.undo(source, files=False)
    assert scene.read() == {"a": "a2"}
    assert report.files == []
    assert report.conversation is not None
    assert "task 2" not in await scene.prompts(report.conversation)
    assert (await scene.agent.redo(report.conversation)).conversation == source
    assert scene.read() == {"a": "a2"}


async def test_several_tasks_at_once_and_a_question_between_them(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")], [], [writes(b="b3")], [])
    assert [task.has_files for task in scene.agent.checkpoints(source)] == [True, False, True, False]
    report = await scene.agent.undo(source, to=2)
    assert (report.number, report.later) == (2, 2)
    assert scene.read() == {"a": "a1"}
    assert report.conversation is not None
    assert "task 2" not in await scene.prompts(report.conversation)
    report = await scene.agent.undo(source, to=4, files=False)
    assert report.conversation is not None
    assert "task 3" in await scene.prompts(report.conversation)
    with pytest.raises(UndoError, match="task 9"):
        await scene.agent.undo(source, to=9)


async def test_a_dry_run_changes_nothing_and_tells_everything(scene: Scene) -> None:
    scene.write("old", "x")
    source = await scene.tasks([runs("rm old; mkdir d; echo new > d/new; echo a1 > a; chmod 600 a; mkfifo pipe")])
    traces = scene.agent.paths.traces
    before = picture(scene.workspace), sorted(traces.rglob("*.jsonl"))
    report = await scene.agent.undo(source, dry_run=True)
    assert (picture(scene.workspace), sorted(traces.rglob("*.jsonl"))) == before
    assert not report.done
    assert [(each.path, each.change) for each in report.files] == [
        ("a", "modified"),
        ("d", "deleted"),
        ("d/new", "deleted"),
        ("old", "created"),
    ]
    assert [each.path for each in report.not_covered] == ["pipe"]
    with pytest.raises(UndoError, match="nothing to redo"):
        await scene.agent.redo(source)


async def test_what_others_changed_since_is_refused_and_named(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1", b="b1", c="c1")])
    scene.write("a", "mine")
    scene.write("unrelated", "mine")
    (scene.workspace / "b").unlink()
    with pytest.raises(UndoConflict) as caught:
        await scene.agent.undo(source)
    assert caught.value.paths == ["a"]  # b is gone, as it was before the task
    assert scene.read() == {"a": "mine", "c": "c1", "unrelated": "mine"}
    assert [each.path for each in (await scene.agent.undo(source, dry_run=True)).conflicts] == ["a"]
    report = await scene.agent.undo(source, force=True)
    assert scene.read() == {"a": "a0", "unrelated": "mine"}
    assert report.conversation is not None
    await scene.agent.redo(report.conversation)
    assert scene.read() == {"a": "mine", "c": "c1", "unrelated": "mine"}


async def test_what_others_changed_between_two_tasks_is_not_theirs_either(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")])
    scene.write("a", "mine")
    await scene.tasks([writes(b="b2")], resume=source)
    assert (await scene.agent.undo(source, dry_run=True)).conflicts == []
    with pytest.raises(UndoConflict, match="a"):
        await scene.agent.undo(source, to=1)


async def test_a_redo_is_refused_as_well(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1", b="b1")])
    await scene.agent.undo(source, conversation=False)
    scene.write("b", "mine")
    with pytest.raises(UndoConflict) as caught:
        await scene.agent.redo(source)
    assert caught.value.paths == ["b"]
    assert scene.read() == {"a": "a0", "b": "mine"}


async def test_two_sessions_in_one_workspace_undo_their_own(scene: Scene) -> None:
    one = await scene.tasks([writes(a="one")])
    two = await scene.tasks([writes(b="two")])
    await scene.agent.undo(one)
    assert scene.read() == {"a": "a0", "b": "two"}
    await scene.agent.undo(two)
    assert scene.read() == {"a": "a0"}


async def test_a_compaction_inside_the_task_is_undone_with_it(scene: Scene) -> None:
    script = ScriptedModel(
        [
            writes(a="a1"),
            "Done.",
            writes(a="a2"),
            "Done.",
            "[summary]All of it.[/summary]",
            writes(a="a3"),
            "Done.",
        ]
    )
    async with await scene.agent.create_session(model=script.factory(), workspace_dir=scene.workspace) as session:
        for number in (1, 2):
            await session.ask(f"task {number}", approve=allow)
        await session.compact()
        await session.ask("task 3", approve=allow)
    assert len(files_of(scene.agent.paths.traces, session.id)) == 2
    third = (await scene.agent.undo(session.id, dry_run=True)).number
    assert third == 3
    report = await scene.agent.undo(session.id, to=3)
    assert report.conversation is not None
    assert len(files_of(scene.agent.paths.traces, report.conversation)) == 2
    report = await scene.agent.undo(session.id, to=2)
    assert scene.read() == {"a": "a1"}
    assert report.conversation is not None
    assert len(files_of(scene.agent.paths.traces, report.conversation)) == 1
    history = await scene.prompts(report.conversation)
    assert history[0] == "task 1"
    assert "task 2" not in history


async def test_an_open_session_is_refused_unless_it_is_handed_over_idle(scene: Scene) -> None:
    script = ScriptedModel([writes(a="a1"), "Done.", runs("sleep 30"), "Done."])
    async with await scene.agent.create_session(model=script.factory(), workspace_dir=scene.workspace) as session:
        await session.ask("task 1", approve=allow)
        with pytest.raises(SessionLocked):
            await scene.agent.undo(session.id)
        async with session.run("task 2", approve=allow) as stream:
            async for _ in stream:
                with pytest.raises(SessionBusy):
                    await scene.agent.undo(session)
                break
        await scene.agent.undo(session, to=1, conversation=False)
        assert scene.read() == {"a": "a0"}


async def test_an_interrupted_task_can_be_undone(scene: Scene) -> None:
    script = ScriptedModel([runs("printf half > a; printf x > b; sleep 30"), "Done."])
    async with await scene.agent.create_session(model=script.factory(), workspace_dir=scene.workspace) as session:
        async with session.run("task 1", approve=allow) as stream:
            deadline = Deadline()
            while not (scene.workspace / "b").exists():
                deadline.check()
                await anyio.lowlevel.checkpoint()
        assert stream.result.stop_reason == "aborted"
    report = await scene.agent.undo(session.id)
    assert report.conflicts == []
    assert scene.read() == {"a": "a0"}


async def test_without_a_seen_end_undo_works_and_says_so(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")])
    record = next(scene.agent.paths.checkpoints.glob("sessions/*/0001.json"))
    text = record.read_text()
    assert '"after"' in text
    record.write_text(text[: text.index(',"after"')] + "}")
    report = await scene.agent.undo(source)
    assert any("was not seen" in note for note in report.notes)
    assert scene.read() == {"a": "a0"}


async def test_git_keeps_its_branch_and_its_commits(scene: Scene) -> None:
    git(scene.workspace, "init", "-q")
    git(scene.workspace, "add", ".")
    git(scene.workspace, "commit", "-qm", "first")
    command = "git -c user.name=a -c user.email=a@example.org commit -qam second"
    source = await scene.tasks([runs(f"printf a1 > a; {command}; git rev-parse HEAD > /dev/null")])
    head = (scene.workspace / ".git" / "logs" / "HEAD").read_text()
    assert head.count("\n") == 2
    await scene.agent.undo(source)
    assert scene.read() == {"a": "a0"}
    assert (scene.workspace / ".git" / "logs" / "HEAD").read_text() == head


async def test_the_diff_shows_text_modes_and_says_what_is_no_text(scene: Scene) -> None:
    scene.write("s", "one\ntwo\nthree\n")
    (scene.workspace / "bin").write_bytes(b"\0\1")
    (scene.workspace / os.fsdecode(b"\xff")).write_text("x")
    source = await scene.tasks(
        [runs("sed -i s/two/2/ s; chmod 755 s; printf '\\0\\2' > bin; ln -s s link; rm $(printf '\\377')")]
    )
    found = {change.path: change for change in await scene.agent.diff(source)}
    assert found["s"].diff == "mode 644 -> 755\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    assert found["bin"].diff is None
    assert found["link"] == FileChange("link", "created", "link", 1, "@@ -0,0 +1 @@\n+s")
    assert found["\udcff"].change == "deleted"
    assert await scene.agent.diff(source, to=1) == list(found.values())


async def test_children_are_covered_by_the_checkpoint_of_their_parent(scene: Scene) -> None:
    delegate = turn(call("run_subagent", {"prompt": "do it", "description": "child"}))
    script = ScriptedModel([delegate, "Done."])
    child = ScriptedModel([writes(a="by the child"), "Child done."])
    models = iter([script, child])
    made: list[ScriptedModel] = []

    def factory(config: Any) -> Any:
        made.append(next(models))
        return made[-1]

    async with await scene.agent.create_session(model=factory, workspace_dir=scene.workspace) as session:
        await session.ask("task 1", approve=allow)
    assert scene.read() == {"a": "by the child"}
    assert len(list(scene.agent.paths.checkpoints.glob("sessions/*"))) == 1
    await scene.agent.undo(session.id)
    assert scene.read() == {"a": "a0"}


async def test_a_workspace_that_is_gone_comes_back_only_by_force(scene: Scene, tmp_path: Path) -> None:
    source = await scene.tasks([writes(b="b1")])
    scene.workspace.rename(tmp_path / "moved")
    with pytest.raises(UndoConflict):
        await scene.agent.undo(source)
    assert not scene.workspace.exists()
    await scene.agent.undo(source, force=True)
    assert scene.read() == {"a": "a0"}


async def test_what_is_no_longer_kept_is_an_error_before_anything_changes(scene: Scene) -> None:
    source = await scene.tasks([writes(a="a1")])
    for manifest in scene.agent.paths.checkpoints.glob("*/manifests/*"):
        manifest.unlink()
    with pytest.raises(UndoError, match="no longer kept"):
        await scene.agent.undo(source)
    assert scene.read() == {"a": "a1"}


async def test_a_deleted_session_keeps_no_files(scene: Scene) -> None:
    kept, gone = await scene.tasks([writes(a="a1")]), await scene.tasks([writes(a="a2")])
    delete_session(scene.agent.paths, gone)
    sessions = scene.agent.paths.checkpoints / "sessions"
    assert [path.name for path in sessions.iterdir()] == [kept]
    collect(CheckpointStore(scene.agent.paths.checkpoints))
    contents = {path.read_text() for path in scene.agent.paths.checkpoints.glob("*/objects/*/*")}
    assert contents == {"a0", "a1"}


async def test_a_session_without_a_trace_and_one_that_changed_nothing(scene: Scene) -> None:
    source = await scene.tasks([])
    with pytest.raises(UndoError, match="no files to restore"):
        await scene.agent.undo(source, conversation=False)
    assert (await scene.agent.undo(source)).files == []
    script = ScriptedModel([writes(a="a1"), "Done."])
    async with await scene.agent.create_session(
        model=script.factory(), workspace_dir=scene.workspace, trace=False
    ) as session:
        await session.ask("task", approve=allow)
    assert not (scene.agent.paths.checkpoints / "sessions" / session.id).exists()


async def test_a_kill_at_any_moment_of_an_undo_is_made_good_by_the_next(scene: Scene) -> None:
    for name in ("b", "c"):
        scene.write(name, "0")
    source = await scene.tasks([writes(a="a1", d="d1"), runs("rm b; printf 1 > c")])
    undo = Undo(scene.agent.paths, scene.agent._fork_before)
    back, forth = {"a": "a0", "b": "0", "c": "0"}, {"a": "a1", "c": "1", "d": "d1"}
    steps = 0
    while killed_after(steps, lambda: undo.undo(source, UndoWish(conversation=False))):
        report: UndoReport = undo.undo(source, UndoWish(conversation=False))
        assert (report.conflicts, report.failures) == ([], [])
        assert scene.read() == back, steps
        undo.redo(source)
        assert scene.read() == forth, steps
        steps += 1
    assert steps > 10
    assert scene.read() == back
