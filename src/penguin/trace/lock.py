"""One writer per session: a lock the kernel releases when its process ends, however it ends (T6)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from penguin.private import private_directory
from penguin.protocol.errors import SessionLocked

_OWNER_LIMIT = 4096
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


class LockOwner(msgspec.Struct, frozen=True):
    """Who holds a session: ``since`` is ISO 8601 UTC."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class SessionLock:
    """The lock of one session, held from :meth:`acquire` until :meth:`release` or the end of the process.

    A second open of the session in the same process is refused as well. Reading needs no lock.

    Attributes:
        path: the lock file.
        held: whether the lock is held.
        error: why no lock could be taken although nobody else has it (the disk is full or read-only);
            the session goes on without, as its trace does.

    Example::

        with SessionLock(lock_path(traces_dir, session_id)):
            ...  # the only writer
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: str | None = None
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def acquire(self) -> None:
        """Take the lock at once or not at all; the file of a dead process is no obstacle.

        Raises:
            SessionLocked: another process, or another session object of this one, holds it.
        """
        if self._fd is not None:
            return
        try:
            self._fd = self._locked_file()
        except OSError as error:
            self.error = f"The session cannot be locked ({self.path}: {error.strerror}); do not open it twice."
            return
        self.error = None
        _sign(self._fd)

    def release(self) -> None:
        """Give the lock back and remove its file; more than once is fine."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        # Removed before it is unlocked, and only if it is still ours: somebody may have deleted it by hand.
        with contextlib.suppress(OSError):
            if self._is_current(fd):
                self.path.unlink()
        os.close(fd)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _locked_file(self) -> int:
        private_directory(self.path.parent)
        while True:
            # Not inheritable (Python's default): a command the session started and that outlives it must not keep
            # the lock. flock and not lockf: that one lets the same process in twice.
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._lock(fd)
                if self._is_current(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            # The owner removed the file between our open and our lock; another process may have made a new one.
            os.close(fd)

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            owner = _owner(fd) or "another process"
            raise SessionLocked(
                f"The session is in use by {owner} ({self.path}). Close it there, or start a new session."
            ) from None

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False


def _sign(fd: int) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    line = msgspec.json.encode(LockOwner(socket.gethostname(), os.getpid(), now)) + b"\n"
    # On a full disk the lock holds all the same, only the refusal cannot name the owner.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, line, 0)


def lock_owner(path: Path) -> LockOwner | None:
    """Who signed the lock file last; ``None`` if nobody did. Says nothing about whether the lock is still held."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _owner(fd)
    finally:
        os.close(fd)


def _owner(fd: int) -> LockOwner | None:
    try:
        return msgspec.json.decode(os.pread(fd, _OWNER_LIMIT, 0), type=LockOwner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
