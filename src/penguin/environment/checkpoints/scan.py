"""Looking through a workspace: every name, and the contents that are not known yet."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penguin.environment.checkpoints.ignored import TOOL_MADE, GitQuestion
from penguin.environment.checkpoints.limits import Limits
from penguin.environment.checkpoints.manifest import Entry, Manifest, Skipped, joined, parents
from penguin.environment.checkpoints.objects import Objects, Unreadable
from penguin.environment.checkpoints.places import Tree
from penguin.environment.checkpoints.stat_cache import Known, StatCache, now_ns, settled

OUT_OF_TIME: Final = "the time for a checkpoint was over"
UNREADABLE: Final = "it cannot be read"
IGNORED: Final = "it is ignored and large"
SPECIAL: Final = "it is a device, a socket or a pipe"
DEBRIS_SUFFIX: Final = b".penguin-tmp"

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_LARGE_TREES = 20
_ENCODING: Final = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_READS = 2


class Stopped(Exception):
    """Nobody waits for the result any more."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to look at and how far to go.

    Attributes:
        limits: where to end.
        excluded: directories that are never entered, such as the data root.
        kept: paths that are covered whatever the limits say; their neighbours are not.
        stopped: set when nobody waits any more.
    """

    limits: Limits = field(default_factory=Limits)
    excluded: tuple[Path, ...] = ()
    kept: frozenset[bytes] = frozenset()
    stopped: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Seen:
    """A workspace as it was found.

    ``known`` has the stat of each regular file, ``unsettled`` the files whose stat proves nothing yet, ``debris`` the
    temporary names that a killed write left behind. ``changed`` says whether any of it
    differs from what was known.
    """

    manifest: Manifest
    known: dict[bytes, Known]
    unsettled: set[bytes]
    debris: list[bytes]
    in_time: bool = True
    changed: bool = True


@dataclass(slots=True)
class _Place:
    """A directory still to be looked at."""

    path: bytes
    by_name: bool
    only_kept: bool = False


class Scan:
    """One look through a workspace, the upper levels first, so that limits cut off what lies deep.

    Example::

        seen = Scan(workspace, objects, cache, Wish()).run()
    """

    def __init__(self, workspace: Path, objects: Objects, cache: StatCache, wish: Wish) -> None:
        self._workspace = workspace
        self._objects = objects
        self._cache = cache
        self._known: dict[bytes, Known] = {}
        self._wish = wish
        self._kept = wish.kept | {above for path in wish.kept for above in parents(path)}
        self._excluded = {identity for path in wish.excluded if (identity := _identity(path))}
        self._deadline = time.monotonic() + wish.limits.seconds
        self._entries: list[Entry] = []
        self._skipped: list[Skipped] = []
        self._seen: dict[bytes, Known] = {}
        self._unsettled: set[bytes] = set()
        self._debris: list[bytes] = []
        self._bytes = 0
        self._room = [wish.limits.ignored_files, wish.limits.ignored_bytes]
        self._large_trees = 0
        self._in_time = True
        self._reads = 0
        self._queue: deque[_Place] = deque()

    def run(self) -> Seen:
        """Look, and keep the contents that are new.

        Raises:
            OSError: the workspace cannot be opened, or the disk for the contents refuses.
            Stopped: nobody waits any more.
        """
        question = GitQuestion(self._workspace)
        try:
            self._known = self._cache.load()  # while git looks for its answer
            with Tree(self._workspace) as self._tree:
                ignored = question.answer(self._step)
                self._ignored = ignored or frozenset()
                self._queue.append(_Place(b"", by_name=ignored is None))
                while self._queue:
                    self._visit(self._queue.popleft())
        finally:
            question.close()
        return Seen(
            Manifest(self._entries, self._skipped),
            self._seen,
            self._unsettled,
            self._debris,
            in_time=self._in_time,
            changed=bool(self._reads) or len(self._seen) != len(self._known),
        )

    def _step(self) -> None:
        if self._wish.stopped.is_set():
            raise Stopped

    @property
    def _late(self) -> bool:
        if time.monotonic() <= self._deadline:
            return False
        self._in_time = False
        return True

    # --- directories ------------------------------------------------------------------------------------

    def _visit(self, place: _Place) -> None:
        self._step()
        if self._late and not place.only_kept:
            self._leave_out(place, OUT_OF_TIME)
            return
        try:
            descriptor = self._tree.open(place.path)
        except FileNotFoundError:  # removed while we looked
            return
        except OSError:
            self._skip(place.path, UNREADABLE)
            return
        try:
            self._look_into(place, descriptor)
        finally:
            os.close(descriptor)

    def _look_into(self, place: _Place, descriptor: int) -> None:
        try:
            found = _listed(descriptor)
        except OSError:
            self._skip(place.path, UNREADABLE)
            return
        if not self._fits(place, len(found)):
            self._leave_out(place, f"more than {self._wish.limits.files:,} files")
            return
        # A repository inside is none of the outer one's business, which therefore says nothing about its content.
        nested = bool(place.path) and any(entry.name == ".git" for entry in found)
        inside = _Place(place.path, place.by_name or nested, place.only_kept)
        prefix = place.path + b"/" if place.path else b""
        for entry in found:
            name = entry.name.encode(*_ENCODING)
            path = prefix + name
            if name == b".git" or (inside.only_kept and path not in self._kept):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed while we looked
                continue
            except OSError:
                self._skip(path, UNREADABLE)
                continue
            known = self._known.get(path)
            if known is not None and known.fits(status) and self._is_plain(path, known):
                self._keep(path, known)
            else:
                self._take(inside, path, name, status, descriptor)

    def _fits(self, place: _Place, more: int) -> bool:
        return place.only_kept or len(self._entries) + more <= self._wish.limits.files

    def _take(self, place: _Place, path: bytes, name: bytes, status: os.stat_result, descriptor: int) -> None:
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            self._take_file(path, name, status, descriptor, place)
        elif kind == stat.S_IFDIR:
            self._take_directory(path, name, status, place)
        elif kind == stat.S_IFLNK:
            self._take_link(path, name, descriptor)
        else:
            self._skip(path, SPECIAL)

    def _is_plain(self, path: bytes, known: Known) -> bool:
        """Whether a file that did not change is covered without a further thought, as nearly all are."""
        size, limits = known.entry.size, self._wish.limits
        fits = size <= limits.file_bytes and self._bytes + size <= limits.total_bytes
        return fits and path not in self._ignored

    def _take_directory(self, path: bytes, name: bytes, status: os.stat_result, place: _Place) -> None:
        if self._excluded and (status.st_dev, status.st_ino) in self._excluded:
            self._skip(path, "it holds the files of the harness itself")
            return
        inside = _Place(path, place.by_name, place.only_kept)
        left_out = self._is_ignored(path, name, place) and not self._small(path)
        if not left_out or path in self._kept:
            self._entries.append(Entry(path, "directory", stat.S_IMODE(status.st_mode)))
        if left_out:
            self._leave_out(inside, IGNORED)
        else:
            self._queue.append(inside)

    def _leave_out(self, place: _Place, why: str) -> None:
        """Skip a directory, all but what must be kept of it."""
        self._skip(place.path, why)
        if place.path in self._kept or (self._kept and not place.path):
            self._queue.append(_Place(place.path, place.by_name, only_kept=True))

    # --- what is ignored --------------------------------------------------------------------------------

    def _is_ignored(self, path: bytes, name: bytes, place: _Place) -> bool:
        if place.only_kept:
            return False
        return path in self._ignored or (place.by_name and name in TOOL_MADE)

    def _small(self, path: bytes) -> bool:
        """Whether an ignored tree fits into the room there is for such; looks no further than that."""
        if self._large_trees >= _MOST_LARGE_TREES:
            return False
        size = _measured(self._tree, path, self._room[0], self._room[1])
        if size is None:
            self._large_trees += 1
            return False
        self._room = [self._room[0] - size[0], self._room[1] - size[1]]
        return True

    def _ignored_file_fits(self, status: os.stat_result) -> bool:
        if self._room[0] < 1 or status.st_size > self._room[1]:
            return False
        self._room = [self._room[0] - 1, self._room[1] - status.st_size]
        return True

    # --- files and links --------------------------------------------------------------------------------

    def _take_file(self, path: bytes, name: bytes, status: os.stat_result, directory: int, place: _Place) -> None:
        if name.endswith(DEBRIS_SUFFIX) and name.startswith(b"."):
            self._debris.append(path)
            return
        known = self._known.get(path)
        unchanged = known is not None and known.fits(status)
        why = None if path in self._kept else self._why_not(path, status, place, read=not unchanged)
        if why is not None:
            self._skip(path, why)
        elif known is not None and unchanged:
            self._keep(path, known)
        else:
            self._read(path, name, directory)

    def _why_not(self, path: bytes, status: os.stat_result, place: _Place, *, read: bool) -> str | None:
        limits = self._wish.limits
        if status.st_size > limits.file_bytes:
            return f"it is larger than {limits.file_bytes:,} bytes"
        if path in self._ignored and not place.only_kept and not self._ignored_file_fits(status):
            return IGNORED
        if self._bytes + status.st_size > limits.total_bytes:
            return f"the workspace holds more than {limits.total_bytes:,} bytes"
        return OUT_OF_TIME if read and self._late else None

    def _keep(self, path: bytes, known: Known) -> None:
        self._bytes += known.entry.size
        self._entries.append(known.entry)
        self._seen[path] = known

    def _read(self, path: bytes, name: bytes, directory: int) -> None:
        self._step()
        self._reads += 1
        try:
            descriptor = os.open(name, _READ, dir_fd=directory)
        except FileNotFoundError:
            return
        except OSError:
            self._skip(path, UNREADABLE)
            return
        try:
            self._read_open(path, descriptor)
        finally:
            os.close(descriptor)

    def _read_open(self, path: bytes, descriptor: int) -> None:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):  # exchanged since it was listed
            self._skip(path, SPECIAL)
            return
        for last in range(1, _READS + 1):
            read_at = now_ns()
            try:
                digest, size = self._objects.add_from(descriptor, self._step)
            except Unreadable:
                self._skip(path, UNREADABLE)
                return
            after = os.fstat(descriptor)
            same = (after.st_mtime_ns, after.st_ctime_ns, after.st_size) == (
                before.st_mtime_ns,
                before.st_ctime_ns,
                size,
            )
            # A log that is written all the time never keeps still: what was read of it is kept.
            if same or last == _READS:
                entry = Entry(path, "file", stat.S_IMODE(after.st_mode), size, digest)
                self._keep(path, Known(entry, after.st_mtime_ns, after.st_ctime_ns, after.st_ino))
                if not same or not settled(after, read_at):
                    self._unsettled.add(path)
                return
            before = after
            os.lseek(descriptor, 0, os.SEEK_SET)

    def _take_link(self, path: bytes, name: bytes, directory: int) -> None:
        try:
            target = os.readlink(name, dir_fd=directory)
        except OSError:  # exchanged since it was listed
            return
        self._entries.append(Entry(path, "link", 0, len(target), target))

    def _skip(self, path: bytes, why: str) -> None:
        self._skipped.append(Skipped(path, why))


def _listed(descriptor: int) -> list[os.DirEntry[str]]:
    with os.scandir(descriptor) as found:
        return sorted(found, key=_name)


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _measured(tree: Tree, path: bytes, most_files: int, most_bytes: int) -> tuple[int, int] | None:
    """Entries and bytes below a directory; ``None`` as soon as it is more than that, or cannot be told."""
    files, size, waiting = 0, 0, [path]
    try:
        while waiting:
            directory = waiting.pop()
            with tree.directory(directory) as descriptor:
                for entry in _listed(descriptor):
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(joined(directory, entry.name))
                    else:
                        size += entry.stat(follow_symlinks=False).st_size
                    if files > most_files or size > most_bytes:
                        return None
    except OSError:
        return None
    return files, size


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
