"""What is noted of each task of a session, and of each undo: small JSON files, replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penguin.private import private_directory

_NUMBERED = re.compile(r"(\d{4,})\.json")


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task.

    Attributes:
        number: counts the tasks of the session from 1.
        workspace: where it worked.
        started: ISO 8601, UTC.
        title: the beginning of its prompt.
        context: which of the session's contexts it began in, from 1.
        records: how many records that context's trace had before it.
        requests: how many committed requests that context had before it.
        before: the manifest from before its first change; empty when it changed nothing, or none could be taken.
        after: the manifest from its end; empty when nobody saw its end.
        problem: why no checkpoint could be taken.
    """

    number: int
    workspace: str
    started: str
    title: str = ""
    context: int = 0
    records: int = 0
    requests: int = 0
    before: str = ""
    after: str = ""
    problem: str = ""


class UndoStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One undo that can be taken back.

    Attributes:
        number: the task that was undone with all later ones.
        session_id: the session whose conversation comes back.
        workspace: where files were restored; empty when none were.
        present: the manifest of what was there before; empty when no files were restored.
        restored: the manifest that was restored.
        at: ISO 8601, UTC.
        finished: whether all of it was done; a step that was cut short is done again by the next undo.
    """

    number: int
    session_id: str
    workspace: str = ""
    present: str = ""
    restored: str = ""
    at: str = ""
    finished: bool = False


class SessionRecords:
    """The records of one session, in a directory of their own.

    Example::

        records = SessionRecords(store.sessions / session_id)
        records.write(TaskRecord(number=records.next_number(), workspace="/w", started=timestamp()))
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def tasks(self) -> list[TaskRecord]:
        """The tasks in their order; a file that cannot be read is passed over."""
        found = []
        for _, path in self._numbered():
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=TaskRecord))
        return found

    def next_number(self) -> int:
        """The number of the next task."""
        return max((number for number, _ in self._numbered()), default=0) + 1

    def add(self, record: TaskRecord) -> None:
        """Note a task that changed nothing: at a third of what :meth:`write` costs, as a torn note is passed over.

        Raises:
            FileExistsError: the number is taken.
            OSError: the disk refuses.
        """
        with (private_directory(self.directory) / _file_name(record.number)).open("xb", buffering=0) as file:
            file.write(msgspec.json.encode(record))

    def write(self, record: TaskRecord) -> None:
        """Note a task, or replace what was noted of it.

        Raises:
            OSError: the disk refuses.
        """
        self._replace(_file_name(record.number), msgspec.json.encode(record))

    def steps(self) -> list[UndoStep]:
        """The undos that can be taken back, the last one last."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._steps.read_bytes(), type=list[UndoStep])
        return []

    def write_steps(self, steps: list[UndoStep]) -> None:
        """Replace the undos that can be taken back.

        Raises:
            OSError: the disk refuses.
        """
        if steps:
            self._replace(self._steps.name, msgspec.json.encode(steps))
        else:
            self.forget_steps()

    def forget_steps(self) -> None:
        """After a new task nothing is left to redo."""
        with contextlib.suppress(OSError):
            self._steps.unlink()

    def copy_to(self, other: SessionRecords, before: int) -> None:
        """Give another session, which was forked from this one, the tasks before a number.

        Raises:
            OSError: the disk refuses.
        """
        for record in self.tasks():
            if record.number < before:
                other.write(record)

    @property
    def _steps(self) -> Path:
        return self.directory / "undone.json"

    def _numbered(self) -> list[tuple[int, Path]]:
        try:
            paths = list(self.directory.iterdir())
        except OSError:
            return []
        return sorted((int(match[1]), path) for path in paths if (match := _NUMBERED.fullmatch(path.name)))

    def _replace(self, name: str, data: bytes) -> None:
        temporary = private_directory(self.directory) / f".{name}.{os.getpid()}-{os.urandom(4).hex()}"
        temporary.write_bytes(data)
        temporary.replace(self.directory / name)


def _file_name(number: int) -> str:
    return f"{number:04d}.json"


def timestamp() -> str:
    """Now, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
