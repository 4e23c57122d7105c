"""Replace a file in one step: at any instant it has its old content or its new one (N14, N15)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from penguin.environment.resolved_open import open_resolved

_LONGEST_NAME = 200  # of 255 bytes, which the prefix and suffix must fit as well
_ATTEMPTS = 5


class FileChanged(OSError):
    """Somebody else changed the file between our look at it and our write; nothing was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EAGAIN, "was changed by somebody else just now; read it again", str(path))


def write_atomically(
    path: Path, data: bytes, before: os.stat_result | None, staging: Path | None = None
) -> os.stat_result:
    """Write ``data`` to ``path``, which must be resolved, and return the new file's state.

    ``before`` is the file to be replaced (its mode, owner and extended attributes are carried over), or ``None`` to
    create one. Other hard links of a replaced file keep the old content.

    A rename needs a name to start from, and a kill just before it leaves that name. ``staging`` is a private
    directory for it: where that is on the same file system, nothing is ever left beside ``path``; elsewhere it can
    happen, in the time of two system calls.

    Raises:
        FileChanged: ``path`` is no longer what ``before`` says.
        PathChanged: a directory in it has become a link.
        OSError: The disk refused; the old content is untouched.

    Example::

        write_atomically(path, b"new", path.stat(), staging=scratchpad)
    """
    with contextlib.ExitStack() as opened:
        target = _opened(opened, path.parent)
        places = _places(opened, target, staging)
        for _ in range(_ATTEMPTS):
            try:
                return _write_once(places, path, data, before)
            except FileNotFoundError:
                # Another session cleared our temporary name away as a leftover, in the instant before the rename.
                continue
            except OSError as error:
                if error.errno != errno.EXDEV or places.staging == target:
                    raise
                places = _Places(target, target)
        raise FileChanged(path)


@dataclass(frozen=True, slots=True)
class _Places:
    """Descriptors of two directories: ``target`` is where the file belongs, ``staging`` where it waits for that."""

    target: int
    staging: int


def _opened(opened: contextlib.ExitStack, path: Path) -> int:
    descriptor = open_resolved(path, os.O_RDONLY | os.O_DIRECTORY)
    opened.callback(os.close, descriptor)
    return descriptor


def _places(opened: contextlib.ExitStack, target: int, staging: Path | None) -> _Places:
    """A staging directory that cannot serve, being on another file system, is the target itself."""
    if staging is not None:
        with contextlib.suppress(OSError):
            waiting = _opened(opened, staging)
            if os.fstat(waiting).st_dev == os.fstat(target).st_dev:
                return _Places(target, waiting)
    return _Places(target, target)


def _write_once(places: _Places, path: Path, data: bytes, before: os.stat_result | None) -> os.stat_result:
    temporary = temporary_name(path)
    if before is None:
        # A new file takes its group and its access list from the directory it is made in.
        places = _Places(places.target, places.target)
    descriptor, named = _open_temporary(places, temporary, 0o666 if before is None else 0o600)
    try:
        _fill(descriptor, path, data, before)
        if before is None:
            _publish_new(places.target, descriptor, temporary, path, named=named)
        else:
            _replace(places, descriptor, temporary, path, before, named=named)
        return os.fstat(descriptor)
    except BaseException:
        for directory in {places.target, places.staging}:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> str:
    """The name a new content has for the moment before the rename; always the same, so a leftover can be found."""
    name = path.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}.penguin-tmp"


def remove_leftover(path: Path, staging: Path | None = None) -> None:
    """Remove what a killed write to ``path`` may have left beside it, or in the staging directory."""
    for directory in (path.parent, staging):
        if directory is not None:
            with contextlib.suppress(OSError):
                (directory / temporary_name(path)).unlink()


def _open_temporary(places: _Places, name: str, mode: int) -> tuple[int, bool]:
    """A file for the new content and whether it has a name.

    A file without a name vanishes with a killed process, so only the two system calls from link to rename can leave
    anything; that name is known, announced in the session's ledger, and cleared by the next write or the next start.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC
    unnamed = getattr(os, "O_TMPFILE", 0)
    if unnamed and os.access("/proc/self/fd", os.X_OK):  # without /proc it could not be given a name later
        try:
            return os.open(".", flags | unnamed, mode, dir_fd=places.target), False
        except OSError as error:
            # Some file systems (NFS, FUSE) cannot; each says so in its own way.
            if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}:
                raise
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=places.staging)
    return os.open(name, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=places.staging), True


def _fill(descriptor: int, path: Path, data: bytes, before: os.stat_result | None) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if before is not None:
        _carry_over(descriptor, path, before)
    os.fsync(descriptor)


def _carry_over(descriptor: int, path: Path, before: os.stat_result) -> None:
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (before.st_uid, before.st_gid):
        # Only root may give a file away; the group can often be kept alone.
        for uid in (before.st_uid, -1):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, uid, before.st_gid)
                break
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(path):
                with contextlib.suppress(OSError):
                    os.setxattr(descriptor, name, os.getxattr(path, name))
    os.fchmod(descriptor, before.st_mode & 0o7777)  # last: fchown clears the set-user-id bit


def _publish_new(directory: int, descriptor: int, temporary: str, path: Path, *, named: bool) -> None:
    """Give the content its name without ever replacing a file that appeared meanwhile."""
    if named:
        # A hard link would be the sure way, but file systems without O_TMPFILE often have no links either.
        if _exists(directory, path.name):
            raise FileChanged(path)
        os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    try:
        _link(descriptor, directory, path.name)
    except FileExistsError:
        raise FileChanged(path) from None


def _replace(
    places: _Places, descriptor: int, temporary: str, path: Path, before: os.stat_result, *, named: bool
) -> None:
    staging = places.staging if named else _named_in(places, descriptor, temporary)
    if not _unchanged(places.target, path, before):
        raise FileChanged(path)
    os.rename(temporary, path.name, src_dir_fd=staging, dst_dir_fd=places.target)
    if staging != places.target:
        with contextlib.suppress(OSError):  # of a killed write that could not wait elsewhere
            os.unlink(temporary, dir_fd=places.target)


def _named_in(places: _Places, descriptor: int, name: str) -> int:
    """Give the content a name to be renamed from; returns the directory that took it."""
    try:
        _link_anew(descriptor, places.staging, name)
    except OSError as error:
        # The same file system mounted twice, as in a container: no link leads from one mount to the other.
        if error.errno != errno.EXDEV or places.staging == places.target:
            raise
        _link_anew(descriptor, places.target, name)
        return places.target
    return places.staging


def _link_anew(descriptor: int, directory: int, name: str) -> None:
    try:
        _link(descriptor, directory, name)
    except FileExistsError:
        os.unlink(name, dir_fd=directory)
        _link(descriptor, directory, name)


def _link(descriptor: int, directory: int, name: str) -> None:
    # Without a directory Python calls link(), which never follows the link in /proc; with one it calls linkat().
    source = f"/proc/self/fd/{descriptor}"
    os.link(source, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=True)


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _unchanged(directory: int, path: Path, before: os.stat_result) -> bool:
    try:
        now = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
