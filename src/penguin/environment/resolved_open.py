"""Open what a path meant when it was resolved, not what somebody has made of it since."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path


class PathChanged(OSError):
    """A link has been put into the path between our look at it and our opening it; nothing was read or written."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EAGAIN, "its path was changed by somebody else just now", str(path))


def open_resolved(path: Path, flags: int) -> int:
    """A descriptor of ``path``, in which every link was resolved before.

    A command in the background may swap a directory for a link at any instant, and what was allowed for the one
    place must not happen in the other. Where there is no /proc only the last part is checked.

    Raises:
        PathChanged: it leads somewhere else now.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise PathChanged(path) from error
        raise
    try:
        # In another case on file systems that ignore it.
        moved = str(Path(f"/proc/self/fd/{descriptor}").readlink()).casefold() != os.fspath(path).casefold()
    except OSError:
        moved = False
    if moved:
        os.close(descriptor)
        raise PathChanged(path)
    return descriptor


def read_resolved(path: Path) -> bytes:
    """The content of ``path``; raises as :func:`open_resolved` does."""
    with os.fdopen(open_resolved(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read()


def make_directories(path: Path) -> None:
    """Create ``path``, which is resolved, and its missing parents; raises as :func:`open_resolved` does."""
    missing: list[str] = []
    while not path.is_dir():
        missing.append(path.name)
        path = path.parent
    directory = open_resolved(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=directory)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            os.close(directory)
            directory = inner
    finally:
        os.close(directory)
