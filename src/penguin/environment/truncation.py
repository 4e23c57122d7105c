"""Keep the head of an output for the model and the rest on disk, in bounded memory (N3)."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from penguin.private import private_directory

ARCHIVE_LIMIT = 8 * 1024 * 1024
"""Bytes kept on disk for one call, the gap marker included."""
_HALF = ARCHIVE_LIMIT // 2 - 128  # leaves room for the marker between head and tail
CEILING = 4_000_000
"""Characters kept when a tool's limit is off: whatever a tool writes, memory stays bounded."""


class Truncation:
    """Decides how much of what is written goes to the model, and archives everything once it is too much.

    Args:
        limit: Characters for the model; ``<= 0`` means the ceiling.
        archive: Where the full text goes when it is cut; ``None`` keeps only the head.
    """

    def __init__(self, limit: int, archive: Path | None) -> None:
        self._limit = limit if limit > 0 else CEILING
        self._wanted = archive
        self._archive: Archive | None = None
        self._head = io.StringIO()
        self._kept = 0
        self._written = 0

    def admit(self, text: str) -> str:
        """Take the next piece; returns the part of it that the model gets."""
        self._written += len(text)
        if self._archive is None and self._written > self._limit:
            self._archive = self._open_archive()
        if self._archive is not None:
            self._archive.write(text)
        admitted = text[: self._limit - self._kept]
        if admitted:
            self._kept += len(admitted)
            self._head.write(admitted)
        return admitted

    @property
    def room(self) -> int:
        """Characters that the model may still get."""
        return max(self._limit - self._kept, 0)

    def set_aside(self, text: str, shown: int) -> None:
        """Archive what is shown elsewhere, ``shown`` characters of it; it counts in :meth:`notice` as written."""
        self._archive = self._archive or self._open_archive()
        self._archive.write(f"\n{text}" if self._written else text)
        self._written += len(text)
        self._kept += shown

    def _open_archive(self) -> Archive:
        archive = Archive(self._wanted)
        archive.write(self.head)
        return archive

    @property
    def head(self) -> str:
        """Everything the model got so far."""
        return self._head.getvalue()

    def notice(self) -> str | None:
        """Close the archive; what to tell the model about the cut, or ``None`` when nothing was cut."""
        if self._archive is None:
            return None
        left_out = f"[output cut: {self._kept:,} of {self._written:,} characters shown; "
        return f"{left_out}{self._archive.close()}]"


class Archive:
    """At most 8 MiB of text in a private file: all of it, or head and tail with a gap marker.

    A disk that refuses is not the tool's fault: the archive gives up and says so in its closing words.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._problem = "the rest is lost, this session has no scratchpad"
        self._room = _HALF
        self._tail = TailBuffer(_HALF)
        if path is not None:
            with self._giving_up():
                self._path, self._file = _create_privately(path)

    def write(self, text: str) -> None:
        """Append; ``text`` holds no lone surrogates."""
        if self._file is None:
            return
        data = text.encode()
        if self._room:
            head = _whole_characters(data, self._room)
            with self._giving_up():
                self._file.write(head)
            # A character that does not fit closes the head, or a later short one would overtake it.
            self._room = self._room - len(head) if len(head) == len(data) else 0
            data = data[len(head) :]
        if data:
            self._tail.write(data)

    def close(self) -> str:
        """Write the tail and close the file; says where the full text is."""
        with self._giving_up():
            if self._file is not None:
                tail = self._tail.content()
                if self._tail.dropped:
                    gap = self._tail.written - len(tail)
                    self._file.write(f"\n[… {gap:,} bytes left out …]\n".encode())
                self._file.write(tail)
                self._file.close()
        if self._file is None:
            return self._problem
        return f"first and last 4 MiB in {self._path}" if self._tail.dropped else f"full text in {self._path}"

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._problem = f"the full text could not be kept: {error.strerror}"
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
            self._file = None


class TailBuffer:
    """The last ``size`` bytes written, in a ring: a list of pieces would cost 50 times a one-byte piece."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ring = bytearray()
        self._next = 0
        self.written = 0

    @property
    def dropped(self) -> bool:
        """Whether the beginning was overwritten."""
        return self.written > self._size

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self.written += len(data)
        data = data[-self._size :]
        if len(self._ring) < self._size:
            grown = data[: self._size - len(self._ring)]
            self._ring += grown
            data = data[len(grown) :]
        while data:
            piece = data[: self._size - self._next]
            self._ring[self._next : self._next + len(piece)] = piece
            self._next = (self._next + len(piece)) % self._size
            data = data[len(piece) :]

    def content(self) -> bytes:
        """What is kept, in order, beginning at a whole character."""
        kept = bytes(self._ring[self._next :] + self._ring[: self._next])
        return re.sub(rb"\A[\x80-\xbf]{1,3}", b"", kept) if self.dropped else kept


def _whole_characters(data: bytes, room: int) -> bytes:
    if len(data) <= room:
        return data
    while room and data[room] & 0xC0 == 0x80:  # noqa: PLR2004 - a continuation byte of UTF-8
        room -= 1
    return data[:room]


def archive_path(scratchpad_dir: Path | None, tool_call_id: str) -> Path | None:
    """Where the full output of a call is kept; the id comes from a provider, so it is made harmless."""
    if scratchpad_dir is None:
        return None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", tool_call_id)[:100] or "call"
    return scratchpad_dir / "truncated-tool-output" / f"{name}.txt"


def _create_privately(path: Path) -> tuple[Path, BinaryIO]:
    private_directory(path.parent)
    for number in range(1, 1000):
        candidate = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            return candidate, open(descriptor, "wb")  # noqa: PTH123 - a descriptor; closed with the archive
    raise FileExistsError(17, "a thousand outputs of that name exist", str(path))
