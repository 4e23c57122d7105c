"""The checkpoints of one session: taken before a task's first change, compared with at its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec.structs import replace as changed

from penguin.detached import start_detached
from penguin.environment.checkpoints.limits import CheckpointConfig, Limits
from penguin.environment.checkpoints.records import SessionRecords, TaskRecord, timestamp
from penguin.environment.checkpoints.scan import Stopped, Wish
from penguin.environment.checkpoints.store import CheckpointStore, WorkspaceStore
from penguin.environment.function_tool import call_in_daemon_thread
from penguin.gathered import in_gathered_thread
from penguin.protocol.interfaces import TaskStart

_END_S = 2.0
"""How long (s) a task's end may be held up; what takes longer is noted as not seen."""

_NOT_NOTED = "the end of a task could not be noted for undo"

_log = logging.getLogger("penguin.environment")
Result = TypeVar("Result")


class TaskCheckpoints:
    """Takes at most one checkpoint a task, in a worker thread.

    Example::

        checkpoints = TaskCheckpoints(CheckpointConfig(directory), workspace, session_id)
        checkpoints.begin_task(TaskStart(context=1, records=1, requests=0, title="Fix the build"))
        note = await checkpoints.before_change()   # None, or why this task cannot be undone
        await checkpoints.end_task()
    """

    def __init__(self, config: CheckpointConfig, workspace: Path, session_id: str) -> None:
        self._config = config
        self._store = CheckpointStore(config.directory)
        self._workspace = workspace
        self._records = SessionRecords(self._store.sessions / session_id)
        self._taking = anyio.Lock()
        self._stopped = threading.Event()
        self._clearing = threading.Event()
        self._start: TaskStart | None = None
        self._record: TaskRecord | None = None
        self._said: set[str] = set()
        self._looked = False
        self._noted = anyio.Event()
        self._noted.set()

    def begin_task(self, start: TaskStart) -> None:
        """A task begins; nothing is written yet."""
        self._stopped.set()  # whatever an interrupted task left running in its thread
        self._stopped = threading.Event()
        self._start, self._record = start, None

    async def before_change(self) -> str | None:
        """Take the checkpoint of this task unless there is one.

        The result is what to tell when there can be none; each reason is told once a session. Never raises but a
        cancellation, which leaves the task without a checkpoint, as if it had not been asked for.
        """
        async with self._taking:
            await self._noted.wait()
            start, stopped = self._start, self._stopped
            if start is None or self._record is not None:
                return None
            try:
                self._record = await _in_thread(lambda: self._take(start, stopped))
            except BaseException:
                stopped.set()
                raise
        self._clear_away()
        return self._told_once(self._record.problem)

    async def end_task(self) -> None:
        """Note the task, and what it left behind if it changed anything. Never raises but a cancellation.

        Nobody waits for the note of a task that changed nothing; what comes next in this session does.
        """
        start, self._start = self._start, None
        if start is None:
            return
        self._clearing.set()
        await self._noted.wait()
        record = self._record
        if record is None:
            self._note_in_background(start)
            return
        stopped = threading.Event()
        try:
            await _in_thread(lambda: self._note_end(record, stopped))
        except Exception as error:  # noqa: BLE001 - the task is over, whatever is wrong with its note
            _log.warning(_NOT_NOTED, exc_info=error)
        finally:
            stopped.set()

    async def aclose(self) -> None:
        """Wait until the last task is noted."""
        await self._noted.wait()

    # --- in the worker thread -----------------------------------------------------------------------------

    def _take(self, start: TaskStart, stopped: threading.Event) -> TaskRecord:
        try:
            with self._store.adding(stopped):
                record = self._new_record(start)
                snapshot = self._part().take(self._wish(self._config.limits, stopped))
                top = next((each.why for each in snapshot.seen.manifest.skipped if not each.path), None)
                if top is not None:
                    return changed(record, problem=f"the workspace is not covered: {top}")
                record = changed(record, before=snapshot.name)
                if not stopped.is_set():
                    self._note(record)
                return record
        except Exception as error:  # noqa: BLE001 - a task goes on without a checkpoint, whatever is wrong with it
            _log.warning("no checkpoint was taken", exc_info=error)
            words = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
            return changed(self._new_record(start), problem=words)

    def _note_unchanged(self, start: TaskStart) -> None:
        # Without the store's lock: this names no content that could be cleared away.
        self._records.add(self._new_record(start))
        self._records.forget_steps()

    def _note_end(self, record: TaskRecord, stopped: threading.Event) -> None:
        with self._store.adding(stopped):
            self._note(changed(record, after=self._state_at_end(stopped)) if record.before else record)

    def _state_at_end(self, stopped: threading.Event) -> str:
        """The manifest of now; empty when that takes too long, since half of one would make changes up."""
        snapshot = self._part().take(self._wish(replace(self._config.limits, seconds=_END_S), stopped))
        return snapshot.name if snapshot.seen.in_time else ""

    def _part(self) -> WorkspaceStore:
        return self._store.of(self._workspace)

    def _new_record(self, start: TaskStart) -> TaskRecord:
        return TaskRecord(
            number=self._records.next_number(),
            workspace=str(self._workspace),
            started=timestamp(),
            title=start.title,
            context=start.context,
            records=start.records,
            requests=start.requests,
        )

    def _note(self, record: TaskRecord) -> None:
        self._records.write(record)
        self._records.forget_steps()

    def _wish(self, limits: Limits, stopped: threading.Event) -> Wish:
        return Wish(limits, (*self._config.excluded, self._config.directory), stopped=stopped)

    # --- around it ------------------------------------------------------------------------------------------

    def _told_once(self, problem: str) -> str | None:
        if not problem or problem in self._said:
            return None
        self._said.add(problem)
        return f"[no checkpoint: {problem}; the changes of this task cannot be undone]"

    def _note_in_background(self, start: TaskStart) -> None:
        self._noted = noted = anyio.Event()

        async def in_background() -> None:
            try:
                await in_gathered_thread(lambda: self._note_unchanged(start))
            except Exception as error:  # noqa: BLE001 - see above
                _log.warning(_NOT_NOTED, exc_info=error)
            finally:
                noted.set()

        start_detached(in_background, "note a task for undo")

    def _clear_away(self) -> None:
        """Old checkpoints go while the task works; nobody waits for it, and the next session takes up what it left."""
        if self._looked:
            return
        self._looked = True
        self._clearing = stopped = threading.Event()

        async def in_background() -> None:
            try:
                await _in_thread(lambda: _collect(self._store, stopped))
            except (OSError, Stopped) as error:
                why = "the task ended before" if isinstance(error, Stopped) else error
                _log.info("old checkpoints were not cleared away: %s", why)
            finally:
                stopped.set()

        start_detached(in_background, "clear away old checkpoints")


def _collect(store: CheckpointStore, stopped: threading.Event) -> None:
    from penguin.environment.checkpoints.collect import collect, is_due  # noqa: PLC0415 - seldom due, slow to import

    if is_due(store):
        collect(store, stopped=stopped)


async def _in_thread(work: Callable[[], Result]) -> Result:
    # Abandoned when cancelled: the thread sees its `stopped` event at the next file.
    return await call_in_daemon_thread(work, "penguin checkpoint")
