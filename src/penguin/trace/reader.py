"""Reading a trace: streaming, and forgiving wherever a record can still be told from damage (T4, T15)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from penguin.protocol.codec import decode
from penguin.protocol.errors import CodecError, TraceError
from penguin.protocol.messages import Message, SessionMeta, UnknownPayload

_FOREIGN_AFTER = 100
_RECORD_START = b'{"timestamp":"'
# What a power cut leaves: file systems extend a file before its content arrives, with zero bytes.
_PADDING = b"\0"


class TraceWarning(Struct, frozen=True):
    """A place in a trace file that could not be read; ``line`` counts from 1."""

    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class TraceReader:
    """The records of one trace file, read as they are asked for; memory holds one line.

    ``warnings`` collects the damaged lines that were skipped, ``torn`` the last line if its writing
    was cut off (no cause for alarm: the process ended in the middle of it). Both are complete once
    the iteration is. While a record is out, ``line_number`` is its line and ``line`` the stored bytes.

    Example::

        reader = TraceReader(path)
        for message in reader:
            ledger.observe(message)
        for warning in reader.warnings:
            log(str(warning))   # "…_001.jsonl:17: …"
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[TraceWarning] = []
        self.torn: TraceWarning | None = None
        self.line_number = 0
        self._line = b""
        self._timestamp = ""

    @property
    def line(self) -> bytes:
        """The stored bytes of the record that is out, without the line's end."""
        return self._line.rstrip(b"\r\n")

    def __iter__(self) -> Iterator[Message]:
        """Read the file from its start.

        Raises:
            TraceError: it is missing, empty, unreadable, without ``session_meta``, or no trace.
        """
        self._begin()
        try:
            with self.path.open("rb") as file:
                self._timestamp = _modified(file)
                yield from self._records(file)
        except OSError as error:
            raise TraceError(f"{self.path}: the trace cannot be read: {error.strerror or error}") from None

    def _begin(self) -> None:
        self.warnings.clear()
        self.torn = None
        self.line_number = 0

    def _records(self, file: BinaryIO) -> Iterator[Message]:
        begun = False
        for data in file:
            self.line_number += 1
            self._line = data
            message = self._record(data)
            if message is None:
                if not begun and self.line_number >= _FOREIGN_AFTER:
                    break
                continue
            if not begun:
                self._expect_session_meta(message)
                begun = True
            self._timestamp = message.timestamp
            yield message
        if not begun:
            raise TraceError(f"{self.path}: {self._why_nothing_was_read()}")

    def _record(self, data: bytes) -> Message | None:
        try:
            return decode(data, default_timestamp=self._timestamp)
        except CodecError as error:
            return self._salvaged(data, error.reason)

    def _salvaged(self, data: bytes, reason: str) -> Message | None:
        """What can still be read of a damaged line, with a warning for the rest."""
        content = data.strip(b"\0\r\n\t ")
        if not content:
            if _PADDING in data:
                self._warn(f"{data.count(_PADDING)} zero bytes, as a power cut leaves them")
            return None
        # An older writer went on in the middle of a torn line, or behind the padding: such a record is whole.
        start = content.rfind(_RECORD_START)
        try:
            message = decode(content[max(start, 0) :], default_timestamp=self._timestamp)
        except CodecError:
            self._warn(reason)
            return None
        if start > 0:
            self.warnings.append(TraceWarning(self.path, self.line_number, "a torn record stands before this one"))
        self._line = content[max(start, 0) :]
        return message

    def _warn(self, reason: str) -> None:
        warning = TraceWarning(self.path, self.line_number, reason)
        if self._line.endswith(b"\n"):
            self.warnings.append(warning)
        else:
            self.torn = warning

    def _expect_session_meta(self, message: Message) -> None:
        if not isinstance(message.payload, SessionMeta):
            where = f"{self.path}:{self.line_number}"
            raise TraceError(f"{where}: {_instead_of_session_meta(message)}, so no conversation can be read from it")

    def _why_nothing_was_read(self) -> str:
        damage = self.warnings[0] if self.warnings else self.torn
        if damage is None:
            return "the trace is empty"
        return f"this is not a trace of Penguin, or nothing of it is left; line {damage.line}: {damage.reason}"


def read_trace(path: Path) -> Iterator[Message]:
    """The records of a trace file, leaving out what cannot be read; :class:`TraceReader` also says what that was.

    Raises:
        TraceError: while iterating, if the file is no readable trace.

    Example::

        prompts = [m.payload.text for m in read_trace(path) if isinstance(m.payload, Text)]
    """
    return iter(TraceReader(path))


def _instead_of_session_meta(message: Message) -> str:
    match message.payload:
        case UnknownPayload() if message.type == "session_meta":
            return "its session_meta lacks a session_id or is of a version this one does not know"
        case UnknownPayload(type=kind):
            return f"it begins with a record of the unknown type {kind!r} instead of a session_meta"
        case payload:
            return f"it has no session_meta: its first record is a {payload.__struct_config__.tag}"


def _modified(file: BinaryIO) -> str:
    moment = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
