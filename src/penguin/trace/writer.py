"""Writing the trace: every record on disk the moment it happens, whatever the disk says (T1-T5)."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import anyio

from penguin.protocol.builders import is_partial
from penguin.protocol.messages import Message, SessionMeta
from penguin.trace.append_file import AppendFile
from penguin.trace.names import index_of

_MEGABYTE = 1024 * 1024


class TraceWriter:
    """Appends the records of one session to its trace files; never raises for the disk's trouble.

    ``directory`` is the day's directory (``…/traces/<yyyy-mm-dd>``), made when needed. New files
    start at ``first_index``; ``continue_file`` is an existing file to go on with, and new ones then
    follow its index. With ``fsync=False`` :meth:`sync` only retries what waits. ``limit_bytes`` is
    how much may wait in memory while the disk refuses.

    One task or thread appends at a time; the caller holds the session's lock.

    Example::

        writer = TraceWriter(day, session_id)
        writer.append(meta)            # held back: no file holds only a session_meta
        writer.append(user_text("hi"))  # two lines are on disk
        await writer.sync()            # they survive a power cut
        writer.close()
    """

    def __init__(
        self,
        directory: Path,
        session_id: str,
        *,
        first_index: int = 1,
        continue_file: Path | None = None,
        fsync: bool = True,
        limit_bytes: int = 64 * _MEGABYTE,
    ) -> None:
        self._directory = directory
        self._session_id = session_id
        self._fsync = fsync
        self._limit = limit_bytes
        index = first_index if continue_file is None else index_of(continue_file) or first_index
        self._file = AppendFile(directory, session_id, index, continued=continue_file)
        self._begun = continue_file is not None
        self._earlier: list[AppendFile] = []
        self._held: bytes | None = None
        self._waiting: deque[tuple[AppendFile, bytes]] = deque()
        self._waiting_bytes = 0
        self._refusal: str | None = None
        self._unsaved: str | None = None
        self._loss: str | None = None
        self._closed = False
        self._saving = anyio.Lock()

    @property
    def path(self) -> Path | None:
        """The current file; ``None`` while it does not exist yet."""
        return self._file.path

    @property
    def lost(self) -> bool:
        """Whether a record was given up; then nothing more is recorded, so that what is there stays coherent."""
        return self._loss is not None

    @property
    def incomplete(self) -> bool:
        """Whether records are not in the files: they wait for the disk, or were given up."""
        return bool(self._waiting) or self._loss is not None

    @property
    def error(self) -> str | None:
        """The disk's trouble in words for people; ``None`` while every record is written."""
        if self._loss is not None:
            return self._loss
        if self._waiting:
            fate = "were not written" if self._closed else "wait in memory and are written when the disk allows"
            return f"{self._refusal} {len(self._waiting)} record(s) {fate}."
        return self._unsaved

    def append(self, message: Message) -> None:
        """Record one message: one whole line, written before this returns if the disk allows.

        Partials and messages of child sessions are not recorded (T2). A ``session_meta`` is held
        back until the next record.
        """
        if message.origin or is_partial(message) or self._loss is not None:
            return
        if self._closed:
            self._loss = "A record came after the trace was closed and is not in the file."
            return
        line = self._encoded(message)
        if line is None:
            return
        if isinstance(message.payload, SessionMeta):
            self._held = line
            return
        if self._held is not None:
            line, self._held = self._held + line, None
        self._begun = True
        self._waiting.append((self._file, line))
        self._waiting_bytes += len(line)
        self._drain()
        if self._waiting_bytes > self._limit:
            self._give_up_newest()

    def open_new_file(self) -> None:
        """Direct the next record to the next index; the file appears with it."""
        self._held = None
        if not self._begun:
            return
        self._earlier.append(self._file)
        self._file = AppendFile(self._directory, self._session_id, self._file.index + 1)
        self._begun = False
        self._close_finished()

    async def sync(self) -> None:
        """Retry what waits, then make everything written survive a power cut.

        Costs nothing when nothing is new. Calls that overlap share the flush.
        """
        self._drain()
        if self._fsync and self._unsaved_files():
            async with self._saving:
                for file in self._unsaved_files():
                    await self._save(file)
        self._close_finished()

    def close(self) -> None:
        """Write what still waits, if the disk allows, and let go of the files; more than once is fine."""
        self._drain()
        self._held = None
        self._closed = True
        for file in (*self._earlier, self._file):
            file.close()

    def _encoded(self, message: Message) -> bytes | None:
        try:
            return message.line + b"\n"
        except Exception as error:  # noqa: BLE001 - a record that cannot be written must not stop the task
            self._loss = f"A {type(message.payload).__name__} record cannot be written as JSON: {error}"
            return None

    def _drain(self) -> None:
        while self._waiting and not self._closed:
            file, data = self._waiting[0]
            try:
                written = file.write(data)
            except OSError as error:
                self._refusal = f"The trace {file.intended_path} cannot be written: {_reason(error)}."
                return
            self._waiting_bytes -= written
            if written == len(data):
                self._waiting.popleft()
            else:
                # A full disk may take half a line. The rest stays at the head of the queue, so the
                # line is completed before anything else reaches the file.
                self._waiting[0] = (file, data[written:])

    def _give_up_newest(self) -> None:
        _, data = self._waiting.pop()
        self._waiting_bytes -= len(data)
        self._loss = (
            f"{self._refusal} More than {self._limit // _MEGABYTE} MB wait in memory, so this conversation is no "
            "longer recorded. Make room and start a new session."
        )

    def _unsaved_files(self) -> list[AppendFile]:
        return [file for file in (*self._earlier, self._file) if file.unsaved]

    async def _save(self, file: AppendFile) -> None:
        try:
            await file.save()
        except OSError as error:
            # It stays reported: after a failed fsync the kernel forgets the pages, and the next call succeeds
            # without having saved them.
            self._unsaved = f"The trace {file.intended_path} may not survive a power cut: {_reason(error)}."

    def _close_finished(self) -> None:
        """Close the files of earlier contexts that have all their records, saved if they are to be."""
        wanted = {id(file) for file, _ in self._waiting}
        finished = [f for f in self._earlier if id(f) not in wanted and not (self._fsync and f.unsaved)]
        for file in finished:
            file.close()
        self._earlier = [file for file in self._earlier if file not in finished]


def _reason(error: OSError) -> str:
    return error.strerror or os.strerror(error.errno or 0)
