"""One append-only file of a trace: created privately, repaired before it is continued, saved in a thread."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from penguin.gathered import in_gathered_thread
from penguin.private import private_directory
from penguin.trace.names import file_name

_PRIVATE_FILE = 0o600
_NOTHING_TO_SAVE = frozenset({errno.EINVAL, errno.ENOTSUP})


class AppendFile:
    """The file of one model context, opened at its first byte.

    ``continued`` is an existing file to go on with; otherwise a new one is created at the first free
    index from ``index`` on: records of two contexts never share a file.
    """

    def __init__(self, directory: Path, session_id: str, index: int, *, continued: Path | None = None) -> None:
        self._directory = directory
        self._session_id = session_id
        self._continued = continued
        self._fd: int | None = None
        self._unsaved_entry = False
        self._written = 0
        self._saved = 0
        self.index = index
        self.path = continued
        """Where the file is; ``None`` before it exists."""

    @property
    def intended_path(self) -> Path:
        """Where the file is, or will be if the name is still free then."""
        return self.path or self._directory / file_name(self._session_id, self.index)

    @property
    def unsaved(self) -> bool:
        """Whether a power cut could still take bytes that were written."""
        return self._written > self._saved

    def write(self, data: bytes) -> int:
        """Append with one system call and return how many bytes the disk took.

        Raises:
            OSError: nothing was written; the call may be repeated at any later time.
        """
        written = os.write(self._open() if self._fd is None else self._fd, data)
        self._written += written
        return written

    async def save(self) -> None:
        """Flush what was written to the medium, in a worker thread.

        Raises:
            OSError: the medium refused, or the file was deleted while in use.
        """
        if self._fd is None:
            return
        written = self._written
        # The thread gets a descriptor of its own: it may outlive this call when the call is
        # cancelled, and a closed number could by then belong to another file.
        fd = os.dup(self._fd)
        entry = self.intended_path.parent if self._unsaved_entry else None
        await in_gathered_thread(lambda: _save(fd, entry))
        self._saved = max(self._saved, written)
        self._unsaved_entry = False

    def close(self) -> None:
        """Let go of the descriptor; more than once is fine."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                os.close(fd)

    def _open(self) -> int:
        self._fd = self._create() if self._continued is None else self._continue(self._continued)
        return self._fd

    def _create(self) -> int:
        private_directory(self._directory)
        while True:
            path = self._directory / file_name(self._session_id, self.index)
            try:
                fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
            except FileExistsError:
                self.index += 1
            else:
                self.path = path
                self._unsaved_entry = True
                return fd

    def _continue(self, path: Path) -> int:
        fd = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            _close_last_line(fd)
        except OSError:
            os.close(fd)
            raise
        return fd


def _close_last_line(fd: int) -> None:
    """End a line that lacks its newline: torn, it would swallow the next record (T3)."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        os.write(fd, b"\n")


def _save(fd: int, entry: Path | None) -> None:
    try:
        _flush(fd)
        if os.fstat(fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "it was deleted while in use")
    finally:
        os.close(fd)
    # A new file is found after a power cut only if its directory was saved too, and that one's parent.
    for directory in (entry, entry.parent) if entry else ():
        _save_directory(directory)


def _save_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _flush(fd)
    finally:
        os.close(fd)


def _flush(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NOTHING_TO_SAVE:
            raise
