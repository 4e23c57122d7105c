"""Clearing away old checkpoints: by age, then by size, and all contents that no record names any more."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penguin.environment.checkpoints.limits import MIB
from penguin.environment.checkpoints.manifest import Manifest, MissingContent
from penguin.environment.checkpoints.records import SessionRecords
from penguin.environment.checkpoints.scan import Stopped
from penguin.environment.checkpoints.store import CheckpointStore, WorkspaceStore, workspace_key

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long checkpoints are kept.

    Attributes:
        days: a session's checkpoints go when none was added for so long.
        total_bytes: contents of one workspace; beyond that its oldest sessions go.
        every_days: how often that is looked at.
    """

    days: float = 30.0
    total_bytes: int = 4096 * MIB
    every_days: float = 1.0


@dataclass(frozen=True, slots=True)
class _Session:
    """What one session keeps, by workspace; ``used`` is when it was written to last (seconds since 1970)."""

    directory: Path
    used: float
    names: dict[str, set[str]]


def is_due(store: CheckpointStore, retention: Retention | None = None) -> bool:
    """Whether it is time to look again."""
    every = (retention or Retention()).every_days * _DAY_S
    try:
        return time.time() - _marker(store).stat().st_mtime > every
    except OSError:
        return True


def collect(
    store: CheckpointStore, retention: Retention | None = None, *, stopped: threading.Event | None = None
) -> int:
    """Clear away what is too old or too much; the number of bytes that were freed.

    Does nothing while somebody adds a checkpoint. A kill at any moment leaves a store that works: records go before
    what they name.

    Raises:
        OSError: the store cannot be locked or read.
        Stopped: ``stopped`` was set; what is left is cleared away another time.
    """
    rule = retention or Retention()

    def step() -> None:
        if stopped is not None and stopped.is_set():
            raise Stopped

    with store.alone() as alone:
        if not alone:
            return 0
        kept = list(_young(store, rule))
        freed = sum(_clear_workspace(directory, kept, rule, step) for directory in _workspaces(store))
        _marker(store).touch()
        return freed


def _marker(store: CheckpointStore) -> Path:
    return store.directory / ".collected"


def _young(store: CheckpointStore, rule: Retention) -> Iterator[_Session]:
    """The sessions that stay, the ones used last first; the records of the others are removed."""
    oldest = time.time() - rule.days * _DAY_S
    for directory, used in sorted(_session_directories(store), key=lambda each: -each[1]):
        if used < oldest:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            yield _Session(directory, used, _names_in(SessionRecords(directory)))


def _session_directories(store: CheckpointStore) -> Iterator[tuple[Path, float]]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(store.sessions):
            with contextlib.suppress(OSError):
                yield Path(entry.path), entry.stat().st_mtime


def _names_in(records: SessionRecords) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for task in records.tasks():
        found.setdefault(workspace_key(Path(task.workspace)), set()).update({task.before, task.after})
    for step in records.steps():
        if step.workspace:
            found.setdefault(workspace_key(Path(step.workspace)), set()).update({step.present, step.restored})
    return {key: names - {""} for key, names in found.items()}


def _workspaces(store: CheckpointStore) -> list[Path]:
    return [path for path in store.directory.iterdir() if (path / "objects").is_dir() or (path / "manifests").is_dir()]


def _clear_workspace(directory: Path, sessions: list[_Session], rule: Retention, step: Callable[[], None]) -> int:
    part = WorkspaceStore(directory, Path())
    manifests, contents, size = set[str](), set[bytes](), 0
    for session in sessions:
        step()
        names = session.names.get(directory.name, set())
        new, more = _contents(part, names, contents)
        if manifests and size + more > rule.total_bytes:
            shutil.rmtree(session.directory, ignore_errors=True)
            continue
        manifests |= names
        contents |= new
        size += more
    if not manifests:
        size_there = sum(size for _, size in _files(directory))
        shutil.rmtree(directory, ignore_errors=True)
        return size_there
    return _sweep(part, manifests, contents, step)


def _contents(part: WorkspaceStore, names: set[str], present: set[bytes]) -> tuple[set[bytes], int]:
    """The contents some manifests name beyond those that are present, and their bytes."""
    found: dict[bytes, int] = {}
    for name in names:
        for entry in _manifest(part, name).entries:
            if entry.kind == "file" and entry.content not in present:
                found[entry.content] = entry.size
    return set(found), sum(found.values())


def _manifest(part: WorkspaceStore, name: str) -> Manifest:
    try:
        return part.manifest(name)
    except MissingContent:
        return Manifest([])


def _sweep(part: WorkspaceStore, manifests: set[str], contents: set[bytes], step: Callable[[], None]) -> int:
    # First of all: a cache that knows a content which is gone would make a checkpoint that cannot be restored.
    known = part.cache.load()
    part.cache.forget()
    part.cache.save({path: each for path, each in known.items() if each.entry.content in contents})
    wanted = {part.objects.path(digest) for digest in contents} | {str(part.manifest_path(each)) for each in manifests}
    wanted.add(str(part.cache.path))
    freed = 0
    for path, size in _files(part.directory):
        step()
        if path not in wanted:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - thousands of paths
                freed += size
    return freed


def _files(directory: Path) -> Iterator[tuple[str, int]]:
    for above, _, names in os.walk(directory):
        for name in names:
            path = f"{above}/{name}"
            with contextlib.suppress(OSError):
                yield path, os.lstat(path).st_size
