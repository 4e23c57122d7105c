"""Directories opened step by step below a workspace, so that no symbolic link can lead out of it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW = _DIRECTORY | os.O_NOFOLLOW


def checked_name(name: bytes) -> bytes:
    """A name that means something in its own directory.

    Raises:
        OSError: it leads elsewhere; no scan makes such a name, so the manifest was tampered with.
    """
    if name in {b"", b".", b".."}:
        raise OSError(errno.EINVAL, "this is no name of a file")
    return name


class Tree:
    """An open workspace; close it after use.

    Example::

        with Tree(workspace) as tree, tree.directory(b"src/app") as descriptor:
            os.listdir(descriptor)
    """

    def __init__(self, workspace: Path) -> None:
        """Open it.

        Raises:
            OSError: it is no directory, or not ours to read.
        """
        self._root = os.open(workspace, _DIRECTORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    @contextlib.contextmanager
    def directory(self, path: bytes) -> Iterator[int]:
        """A descriptor of a directory, ``b""`` being the workspace.

        Raises:
            OSError: it is not there, or a part of the way is no directory (a link is none).
        """
        descriptor = self.open(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open(self, path: bytes) -> int:
        """The same descriptor for whoever closes it.

        Raises:
            OSError: as for :meth:`directory`.
        """
        # One call with the whole path would follow links in the middle of it.
        descriptor = os.dup(self._root)
        for name in path.split(b"/") if path else ():
            try:
                below = os.open(checked_name(name), _BELOW, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor
