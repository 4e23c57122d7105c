"""Keep names from being created: a mount needs something to lie on, so something is put there for the time being."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from penguin.environment.sandbox.zones import CannotConfine

# Git reads these, and must find in them what it would do without them. The rest are empty directories, which git
# does not show and instruction readers ignore.
_FILES = {"commondir": b".\n", "config": b"", "config.worktree": b""}


class HeldNames:
    """Stand-ins for absent names; gone with the last session that holds them.

    Each is locked, shared, by the sessions that need it: taking one away would undo the mounts of the others. What a
    killed harness left is found by the next session in that workspace, which holds it too and takes it away.
    """

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}
        self._above: list[Path] = []

    def hold(self, absent: Iterable[Path], present: Iterable[Path], workspace: Path) -> None:
        """Put stand-ins where nothing is, and share in those among ``present`` that others have put there.

        Directories that only exist for a stand-in go with it, but for ``workspace`` and what is above.

        Raises:
            CannotConfine: one cannot be made.
        """
        for path in absent:
            self._make(path)
            self._share(path)
        for path in present:
            if _is_stand_in(path):
                self._share(path)
                if workspace in path.parent.parents and os.listdir(path.parent) == [path.name]:  # noqa: PTH208 - names
                    self._above.append(path.parent)

    def _make(self, path: Path) -> None:
        try:
            self._make_above(path)
            if path.name in _FILES:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_FILES[path.name])
            else:
                path.mkdir()
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno != errno.EROFS:  # where nobody can write there is nothing to prevent
                raise CannotConfine(
                    f"{path} cannot be kept from being created: {error.strerror}. Use the mode read-only"
                ) from error

    def _make_above(self, path: Path) -> None:
        """The directory that a name further down needs, ``.github`` say, which commands may fill with other things."""
        missing = [each for each in path.parents if not os.path.lexists(each)]
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            self._above.append(directory)

    def _share(self, path: Path) -> None:
        if path in self._held:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._held[path] = descriptor
            if not _is_at(path, descriptor):  # the last session before us has just taken it away
                os.close(self._held.pop(path))
                self._make(path)
                self._share(path)

    def release(self) -> None:
        """Take away what no other session holds and what is still as it was made. Idempotent."""
        for path, descriptor in sorted(self._held.items(), reverse=True):  # inner ones first
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(path, descriptor) and _is_stand_in(path):
                    path.unlink() if path.name in _FILES else path.rmdir()
            os.close(descriptor)
        self._held.clear()
        for directory in reversed(self._above):
            with contextlib.suppress(OSError):  # it holds something by now
                directory.rmdir()
        self._above.clear()


def _is_stand_in(path: Path) -> bool:
    try:
        if path.name in _FILES:
            content = _FILES[path.name]
            return path.stat().st_size == len(content) and path.read_bytes() == content
        return not path.is_symlink() and not os.listdir(path)  # noqa: PTH208 - a file is not one either
    except OSError:
        return False


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False
