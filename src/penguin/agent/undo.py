"""Going back to before a task, and forth again: files from checkpoints, the conversation by a fork."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace as changed

from penguin.agent.checkpoint_places import checkpoint_config
from penguin.environment.checkpoints.changes import Change, Conflict, Reversal, Span
from penguin.environment.checkpoints.manifest import Entry, Manifest, MissingContent, Skipped, shown
from penguin.environment.checkpoints.records import SessionRecords, TaskRecord, UndoStep, timestamp
from penguin.environment.checkpoints.restore import Restore
from penguin.environment.checkpoints.scan import Seen, Wish
from penguin.environment.checkpoints.store import CheckpointStore, Snapshot, WorkspaceStore
from penguin.environment.checkpoints.text_diff import text_diff
from penguin.protocol.errors import UndoConflict, UndoError
from penguin.state.paths import AgentPaths
from penguin.trace.names import files_of

ChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
_GONE = "the workspace directory is not there any more"
_NOTHING = Manifest([])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A task one can go back to before.

    Attributes:
        session_id: the session it was given in.
        number: counts the session's tasks from 1.
        title: the beginning of its prompt.
        started: ISO 8601, UTC.
        workspace: where it worked.
        has_files: whether the files from before it are kept; a task that changed nothing needs none.
        problem: why they are not, if they should be.
    """

    session_id: str
    number: int
    title: str
    started: str
    workspace: Path
    has_files: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that changes.

    Attributes:
        path: relative to the workspace; a name that is no text has surrogate escapes, as in :func:`os.fsdecode`.
        change: what happens to it.
        kind: ``file``, ``link`` or ``directory``.
        size: bytes afterwards, before when it is deleted.
        diff: the hunks of a unified diff, only from ``diff``; ``None`` for what is no text.
    """

    path: str
    change: ChangeKind
    kind: str
    size: int
    diff: str | None = None


@dataclass(frozen=True, slots=True)
class PathNote:
    """Something to know about one path."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class UndoReport:
    """What an undo or a redo does, or did.

    Attributes:
        session_id: the session it was asked of.
        number: the first task that is undone, or comes back.
        title: the beginning of that task's prompt.
        later: how many later tasks go or come with it.
        workspace: where files change; ``None`` when none are touched.
        files: what happens to each of them.
        conflicts: what would be destroyed although nobody asked to undo it.
        not_covered: what is left as it is, because no checkpoint covers it.
        notes: what else one should know before saying yes.
        failures: what could not be done.
        conversation: the session to go on with, once it is done; ``None`` when the conversation stays as it is.
        done: whether anything was done; not after a dry run.
    """

    session_id: str
    number: int
    title: str = ""
    later: int = 0
    workspace: Path | None = None
    files: list[FileChange] = field(default_factory=list)
    conflicts: list[PathNote] = field(default_factory=list)
    not_covered: list[PathNote] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[PathNote] = field(default_factory=list)
    conversation: str | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class UndoWish:
    """What to take back: ``to`` names a task by its number, otherwise the last one that is not undone yet."""

    to: int | None = None
    files: bool = True
    conversation: bool = True
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _FilePlan:
    """How a workspace gets from what it is to what it shall be; ``restored`` names the latter."""

    part: WorkspaceStore
    present: Snapshot
    restored: str
    todo: list[Change]
    conflicts: list[Conflict]
    not_covered: list[Skipped]
    gone: bool

    def apply(self, *, force: bool) -> list[PathNote]:
        """Do it; what could not be done."""
        if self.gone:
            self.part.workspace.mkdir(parents=True, exist_ok=True)
        restore = Restore(self.part.workspace, self.part.objects, self.present.seen, force=force)
        return [PathNote(os.fsdecode(failure.path), failure.why) for failure in restore.apply(self.todo)]


class Undo:
    """Undo for the sessions of one agent; blocking, so an event loop calls it in a thread.

    ``fork`` makes a session that is another one up to a place, given as a context and a number of records. Whoever
    calls :meth:`undo` and :meth:`redo` sees to it that no task of the session runs meanwhile.
    """

    def __init__(self, paths: AgentPaths, fork: Callable[[str, tuple[int, int]], str]) -> None:
        self._config = checkpoint_config(paths)
        self._store = CheckpointStore(paths.checkpoints)
        self._traces = paths.traces
        self._fork = fork

    # --- questions --------------------------------------------------------------------------------------

    def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """The tasks of a session, oldest first."""
        return [
            Checkpoint(
                session_id,
                task.number,
                task.title,
                task.started,
                Path(task.workspace),
                has_files=bool(task.before),
                problem=task.problem,
            )
            for task in self._records(session_id).tasks()
        ]

    def diff(self, session_id: str, to: int | None = None) -> list[FileChange]:
        """What a task and all that came after it changed, in the order of the paths.

        Raises:
            UndoError: there is no such task, or its checkpoint is no longer kept.
        """
        with self._store.adding():
            plan = self._plan_files(self._chosen(session_id, UndoWish(to)))
            if plan is None:
                return []
            return [_described(Change(each.path, each.new, each.old), plan.part) for each in plan.todo]

    # --- back -------------------------------------------------------------------------------------------

    def undo(self, session_id: str, wish: UndoWish) -> UndoReport:
        """Go back to before a task; with ``dry_run`` only say what that would do.

        Raises:
            UndoError: there is nothing to undo, or what it needs is no longer kept.
            UndoConflict: others changed since what it would restore, and ``force`` is not set.
        """
        with self._store.adding():
            tasks = self._chosen(session_id, wish)
            plan = self._plan_files(tasks) if wish.files else None
            report = _report(session_id, tasks, plan)
            if plan is None and not wish.conversation:
                raise UndoError("; ".join(["there are no files to restore", *report.notes]))
            if wish.conversation:
                report.notes.append(_about_conversation(tasks))
            if wish.dry_run:
                return report
            _refuse_conflicts(report, force=wish.force)
            return self._undone(session_id, tasks[0], plan, wish, report)

    def _undone(
        self, session_id: str, task: TaskRecord, plan: _FilePlan | None, wish: UndoWish, report: UndoReport
    ) -> UndoReport:
        records = self._records(session_id)
        step = self._step(session_id, task, plan)
        earlier = [each for each in records.steps() if each.finished]
        # Noted before anything is touched: if we are killed the next undo takes this one up.
        records.write_steps([*earlier, step])
        failures = plan.apply(force=wish.force) if plan else []
        step = changed(step, finished=True)
        if not wish.conversation:
            records.write_steps([*earlier, step])
            return replace(report, failures=failures, done=True)
        copy = self._fork(session_id, (max(1, task.context), max(1, task.records)))
        others = self._records(copy)
        records.copy_to(others, before=task.number)
        others.write_steps([step])
        records.write_steps(earlier)
        return replace(report, failures=failures, conversation=copy, done=True)

    def _step(self, session_id: str, task: TaskRecord, plan: _FilePlan | None) -> UndoStep:
        step = UndoStep(number=task.number, session_id=session_id, at=timestamp())
        if plan is None:
            return step
        step = changed(step, workspace=str(plan.part.workspace), present=plan.present.name, restored=plan.restored)
        begun = self._unfinished(session_id)
        if begun is None or (begun.number, begun.workspace) != (step.number, step.workspace):
            return step
        # What a killed undo left is half of one state and half of another; what was there before it comes back.
        return changed(step, present=begun.present, restored=begun.restored)

    def _unfinished(self, session_id: str) -> UndoStep | None:
        return next((step for step in self._records(session_id).steps() if not step.finished), None)

    # --- and forth --------------------------------------------------------------------------------------

    def redo(self, session_id: str, *, force: bool = False, dry_run: bool = False) -> UndoReport:
        """Take the last undo back that led to this session, or was done in it.

        Raises:
            UndoError: there is nothing to redo, or what it needs is no longer kept.
            UndoConflict: others changed since what it would restore, and ``force`` is not set.
        """
        with self._store.adding():
            records = self._records(session_id)
            steps = records.steps()
            if not steps:
                raise UndoError(f"there is nothing to redo in {session_id}: no undo led to it, or a task ran since")
            step = steps[-1]
            plan = self._plan_redo(step) if step.present else None
            tasks = [task for task in self._records(step.session_id).tasks() if task.number >= step.number]
            report = replace(_report(session_id, tasks, plan), number=step.number)
            if dry_run:
                return report
            _refuse_conflicts(report, force=force)
            failures = plan.apply(force=force) if plan else []
            records.write_steps(steps[:-1])
            return replace(report, failures=failures, conversation=self._source_of(step, session_id), done=True)

    def _source_of(self, step: UndoStep, session_id: str) -> str | None:
        """The session an undo copied, if it was one of the conversation and the session was not deleted since."""
        files = files_of(self._traces, step.session_id) if step.session_id != session_id else []
        if not files:
            return None
        # It is the one to go on with, so it becomes the latest; its copy was written to after it.
        os.utime(files[-1])
        return step.session_id

    def _plan_redo(self, step: UndoStep) -> _FilePlan:
        """An undo is a change like another: from what was present to what it restored."""
        part = self._store.of(Path(step.workspace))
        with _kept_no_longer():
            return self._plan(part, [(step.present, step.restored)])

    # --- which tasks, which files -----------------------------------------------------------------------

    def _chosen(self, session_id: str, wish: UndoWish) -> list[TaskRecord]:
        """The tasks to go back before, the oldest first."""
        records = self._records(session_id)
        noted, begun = records.tasks(), self._unfinished(session_id)
        if not noted:
            raise UndoError(f"no task of {session_id} is known here, so there is nothing to undo")
        tasks = [task for task in noted if not wish.files or task.number < _undone_from(records, session_id)]
        if not tasks:
            raise UndoError(f"all tasks of {session_id} are undone already")
        first = wish.to or (begun.number if begun else tasks[-1].number)
        if all(task.number != first for task in tasks):
            raise UndoError(f"task {first} of {session_id} is not there to undo; there are {_numbers(tasks)}")
        return [task for task in tasks if task.number >= first]

    def _plan_files(self, tasks: list[TaskRecord]) -> _FilePlan | None:
        """The way back to before these tasks; ``None`` when none of them changed anything that is kept."""
        changing = [task for task in tasks if task.before]
        if not changing:
            return None
        if len({task.workspace for task in changing}) > 1:
            raise UndoError("these tasks worked in different workspaces; undo them one after the other, the last first")
        part = self._store.of(Path(changing[0].workspace))
        with _kept_no_longer():
            return self._plan(part, [(task.before, task.after) for task in changing])

    def _plan(self, part: WorkspaceStore, named: list[tuple[str, str]]) -> _FilePlan:
        """The way back over stretches of work, each named by its manifests, the second may be unknown."""
        trees = [(part.manifest(before), part.manifest(after) if after else None) for before, after in named]
        gone = not part.workspace.is_dir()
        # Of a directory that is not there any more all comes back, whoever removed it.
        spans = [Span(before, after) for before, after in trees] if not gone else [Span(trees[0][0])]
        present = self._present(part, frozenset().union(*(_to_look_for(span) for span in spans)))
        reversal = Reversal(spans, present.seen.manifest)
        return _FilePlan(
            part,
            present,
            part.keep(reversal.result(present.seen.manifest)),
            reversal.todo,
            [Conflict(b"", _GONE)] if gone else reversal.conflicts,
            [*trees[0][0].skipped, *present.seen.manifest.skipped],
            gone,
        )

    def _present(self, part: WorkspaceStore, kept: frozenset[bytes]) -> Snapshot:
        """The workspace as it is, kept for a redo; what is to be restored is part of it at any size."""
        if not part.workspace.is_dir():
            return Snapshot(part.keep(_NOTHING), Seen(_NOTHING, {}, set(), []))
        limits = replace(self._config.limits, seconds=math.inf)
        return part.take(Wish(limits, (*self._config.excluded, self._config.directory), kept))

    def _records(self, session_id: str) -> SessionRecords:
        return SessionRecords(self._store.sessions / session_id)


def _undone_from(records: SessionRecords, session_id: str) -> float:
    """The first task whose files are undone while the conversation still has it."""
    undone = [step.number for step in records.steps() if step.finished and step.session_id == session_id]
    return min(undone, default=math.inf)


def _numbers(tasks: list[TaskRecord]) -> str:
    return ", ".join(str(task.number) for task in tasks[-10:])


def _to_look_for(span: Span) -> set[bytes]:
    return span.touched() if span.after is not None else set(span.before)


@contextlib.contextmanager
def _kept_no_longer() -> Iterator[None]:
    try:
        yield
    except MissingContent as error:
        raise UndoError(f"the files from before this task cannot be restored: {error}") from error


def _refuse_conflicts(report: UndoReport, *, force: bool) -> None:
    if force or not report.conflicts:
        return
    first = ", ".join(shown(os.fsencode(each.path)) or "the workspace" for each in report.conflicts[:5])
    more = f" and {len(report.conflicts) - 5} more" if len(report.conflicts) > 5 else ""  # noqa: PLR2004
    raise UndoConflict(
        f"nothing was changed, because others changed since what would be restored: {first}{more}."
        " Look at them, then force it if they may go",
        [each.path for each in report.conflicts],
    )


def _report(session_id: str, tasks: list[TaskRecord], plan: _FilePlan | None) -> UndoReport:
    notes = [f"task {task.number} has no checkpoint: {task.problem}" for task in tasks if task.problem]
    if any(task.before and not task.after for task in tasks):
        notes.append("the end of a task was not seen, so what others changed after it cannot be told apart")
    first = tasks[0] if tasks else TaskRecord(number=0, workspace="", started="")
    report = UndoReport(session_id, first.number, first.title, max(0, len(tasks) - 1), notes=notes)
    if plan is None:
        return report
    left = {each.path: each.why for each in plan.not_covered}
    return replace(
        report,
        workspace=plan.part.workspace,
        files=[_described(change) for change in plan.todo],
        conflicts=[PathNote(os.fsdecode(each.path), each.why) for each in plan.conflicts],
        not_covered=[PathNote(os.fsdecode(path), why) for path, why in sorted(left.items())],
    )


def _about_conversation(tasks: list[TaskRecord]) -> str:
    return "the conversation goes on in a copy that ends before this task; this session stays as it is" + (
        "" if tasks[0].context else " (where it began is not known: the copy begins anew)"
    )


def _described(change: Change, part: WorkspaceStore | None = None) -> FileChange:
    kind: ChangeKind = "created" if change.old is None else "deleted" if change.new is None else "modified"
    entry = change.new or change.old
    assert entry is not None  # noqa: S101 - a change has a side
    text = _diff_of(change, part) if part is not None else None
    return FileChange(os.fsdecode(change.path), kind, entry.kind, entry.size, text)


def _diff_of(change: Change, part: WorkspaceStore) -> str | None:
    sides = [_content(entry, part) for entry in (change.old, change.new)]
    if None in sides:
        return None
    old, new = (side or b"" for side in sides)
    lines = [_mode_line(change)] if change.old and change.new and change.old.mode != change.new.mode else []
    hunks = text_diff(old, new)
    return None if hunks is None else "\n".join([*lines, *([hunks] if hunks else [])])


def _mode_line(change: Change) -> str:
    return f"mode {change.old.mode:o} -> {change.new.mode:o}" if change.old and change.new else ""


def _content(entry: Entry | None, part: WorkspaceStore) -> bytes | None:
    """What to compare; nothing for what is not there, ``None`` for what cannot be read."""
    if entry is None or entry.kind == "directory":
        return b""
    if entry.kind == "link":
        return entry.content + b"\n"
    try:
        return part.objects.read(entry.content) if entry.size <= _MOST_COMPARED else None
    except MissingContent:
        return None


_MOST_COMPARED = 1024 * 1024
