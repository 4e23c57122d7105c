"""Making a workspace what a manifest says: each file in one step, so that a kill leaves old or new and never half."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penguin.environment.atomic_write import temporary_name
from penguin.environment.checkpoints.changes import Change
from penguin.environment.checkpoints.manifest import Entry, MissingContent
from penguin.environment.checkpoints.objects import Objects
from penguin.environment.checkpoints.places import Tree, checked_name
from penguin.environment.checkpoints.scan import Seen

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_ACCESS = 0o700
CHANGED_JUST_NOW: Final = "it was changed in this moment"


@dataclass(frozen=True, slots=True)
class Failure:
    """A path that could not be restored; everything else was."""

    path: bytes
    why: str


class _Touched(Exception):
    """The path is no longer what was seen."""


class Restore:
    """One restoration, in an order that never needs a directory that is not there yet.

    ``seen`` is the present tree, looked at a moment ago: a path that is no longer so is left alone. With ``force``
    only paths that were seen are compared. Times and owners are not restored: a build must notice that a file changed.

    Example::

        failures = Restore(workspace, objects, seen).apply(to_restore(wanted, seen.manifest))
    """

    def __init__(self, workspace: Path, objects: Objects, seen: Seen, *, force: bool = False) -> None:
        self._workspace = workspace
        self._objects = objects
        self._seen = seen
        self._force = force
        self._failures: list[Failure] = []
        self._modes: dict[bytes, int] = {}

    def apply(self, todo: list[Change]) -> list[Failure]:
        """Carry out the changes, whose ``old`` side is what was seen; what could not be done.

        Raises:
            OSError: the workspace cannot be opened.
        """
        with Tree(self._workspace) as tree:
            self._tree = tree
            for path in self._seen.debris:
                self._try(Change(path, None, None), _unlink)
            for change in reversed(todo):  # sorted, so this is the deepest first
                if change.old is not None and _must_go(change):
                    self._try(change, self._remove)
            for change in todo:
                if change.new is not None and change.new.kind == "directory":
                    self._make_directory(change, change.new)
            for change in todo:
                if change.new is not None and change.new.kind != "directory":
                    self._put_back(change, change.new)
            self._set_modes()
        return list({failure.path: failure for failure in reversed(self._failures)}.values())[::-1]

    # --- one change -------------------------------------------------------------------------------------

    def _remove(self, directory: int, name: bytes, change: Change) -> None:
        self._check(directory, name, change)
        if change.old is not None and change.old.kind == "directory":
            os.rmdir(name, dir_fd=directory)
            self._modes.pop(change.path, None)
        else:
            os.unlink(name, dir_fd=directory)

    def _make_directory(self, change: Change, new: Entry) -> None:
        def make(directory: int, name: bytes, _change: Change) -> None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, _OWN_ACCESS, dir_fd=directory)
                _give_to_owner_of(directory, lambda uid, gid: os.chown(name, uid, gid, dir_fd=directory))
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise _Touched
            self._modes[change.path] = new.mode

        self._try(change, make)

    def _put_back(self, change: Change, new: Entry) -> None:
        def put(directory: int, name: bytes, change: Change) -> None:
            temporary = _temporary(name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            try:
                if new.kind == "link":
                    os.symlink(new.content, temporary, dir_fd=directory)
                else:
                    self._write(directory, name, temporary, new)
                gone = Change(change.path, None, new) if _must_go(change) else change
                self._check(directory, name, gone)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
                raise

        self._try(change, put)

    def _write(self, directory: int, name: bytes, temporary: bytes, new: Entry) -> None:
        descriptor = os.open(temporary, _NEW_FILE, 0o600, dir_fd=directory)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, which Path.open does not take
            self._objects.copy(new.content, file.write)
            file.flush()
            _give_to_owner_of(directory, lambda uid, gid: os.fchown(descriptor, uid, gid), name)
            os.fchmod(descriptor, new.mode)  # last: a change of owner clears the set-user-id bit

    def _check(self, directory: int, name: bytes, change: Change) -> None:
        """Raise when the path is not what was seen: then it is somebody's newest work."""
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            if change.old is None:
                return
            raise _Touched from None
        if change.old is None:
            if not self._force:
                raise _Touched
            return
        if not self._as_seen(directory, name, change.old, status):
            raise _Touched

    def _as_seen(self, directory: int, name: bytes, old: Entry, status: os.stat_result) -> bool:
        match old.kind:
            case "file":
                known = self._seen.known.get(old.path)
                return known is not None and known.fits(status)
            case "link":
                return stat.S_ISLNK(status.st_mode) and os.readlink(name, dir_fd=directory) == old.content
            case "directory":
                return stat.S_ISDIR(status.st_mode)

    # --- around it --------------------------------------------------------------------------------------

    def _try(self, change: Change, act: Callable[[int, bytes, Change], None]) -> None:
        parent, _, name = change.path.rpartition(b"/")
        try:
            with self._tree.directory(parent) as directory:
                self._permitted(parent, directory, lambda: act(directory, checked_name(name), change))
        except _Touched:
            self._failures.append(Failure(change.path, CHANGED_JUST_NOW))
        except MissingContent as error:
            self._failures.append(Failure(change.path, str(error)))
        except OSError as error:
            self._failures.append(Failure(change.path, _words(error)))

    def _permitted(self, parent: bytes, directory: int, act: Callable[[], None]) -> None:
        """Act in a directory, which for that moment may have to allow it."""
        try:
            act()
        except PermissionError:
            mode = stat.S_IMODE(os.fstat(directory).st_mode)
            if mode & _OWN_ACCESS == _OWN_ACCESS:
                raise
            self._modes.setdefault(parent, mode)
            os.fchmod(directory, mode | _OWN_ACCESS)
            act()

    def _set_modes(self) -> None:
        for path, mode in sorted(self._modes.items(), reverse=True):
            try:
                with self._tree.directory(path) as directory:
                    os.fchmod(directory, mode)
            except OSError as error:
                self._failures.append(Failure(path, _words(error)))


def _must_go(change: Change) -> bool:
    """Whether the old thing has to be removed first; between files and links a rename does both at once."""
    if change.new is None or change.old is None:
        return change.old is not None
    return change.old.kind != change.new.kind and "directory" in {change.old.kind, change.new.kind}


def _unlink(directory: int, name: bytes, _change: Change) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _temporary(name: bytes) -> bytes:
    return os.fsencode(temporary_name(Path(os.fsdecode(name))))


def _give_to_owner_of(directory: int, chown: Callable[[int, int], None], name: bytes | None = None) -> None:
    """Run by root in somebody's workspace, leave the file to whom it belonged, else to the directory's owner."""
    if os.geteuid() != 0:
        return
    status = os.fstat(directory)
    with contextlib.suppress(OSError):
        if name is not None:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    with contextlib.suppress(OSError):
        chown(status.st_uid, status.st_gid)


def _words(error: OSError) -> str:
    if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
        return "the directory still holds what the checkpoint does not cover"
    return error.strerror or str(error)
