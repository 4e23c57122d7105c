"""Where checkpoints lie: one directory of contents for each workspace, one of records for each session.

::

    <agent>/snapshots/checkpoints/
        .lock                              shared by whoever adds, exclusive for whoever clears away
        sessions/<session id>/0001.json    the tasks of a session, see records.py
        <basename>-<8 hex>/objects/…       contents of one workspace
        <basename>-<8 hex>/manifests/…     what it held at one moment
        <basename>-<8 hex>/known           what its files were when they were last read
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penguin.environment.checkpoints.manifest import Manifest, MissingContent, digest_of, packed, unpacked
from penguin.environment.checkpoints.objects import Objects
from penguin.environment.checkpoints.scan import Scan, Seen, Stopped, Wish
from penguin.environment.checkpoints.stat_cache import StatCache
from penguin.private import private_directory

_LOCK_POLL_S = 0.02
_LONGEST_NAME = 80


class CheckpointStore:
    """All checkpoints of one agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def of(self, workspace: Path) -> WorkspaceStore:
        """The part that belongs to one workspace; it need not exist, and neither need the workspace."""
        return WorkspaceStore(self.directory / workspace_key(workspace), workspace)

    @property
    def sessions(self) -> Path:
        """The directory of the records."""
        return self.directory / "sessions"

    @contextlib.contextmanager
    def adding(self, stopped: threading.Event | None = None) -> Iterator[None]:
        """While this is held nothing is cleared away: a new content is safe before a record names it.

        Raises:
            OSError: the store cannot be made or locked.
            Stopped: nobody waits any more.
        """
        descriptor = self._lock_file()
        try:
            while not _locked(descriptor, fcntl.LOCK_SH):
                # Not a blocking call: a thread in one could not be told to stop.
                if (stopped or threading.Event()).wait(_LOCK_POLL_S):
                    raise Stopped
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody else uses the store; if so, nobody will until the block is left."""
        descriptor = self._lock_file()
        try:
            yield _locked(descriptor, fcntl.LOCK_EX)
        finally:
            os.close(descriptor)

    def _lock_file(self) -> int:
        return os.open(private_directory(self.directory) / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A workspace that was looked at and is kept under ``name``."""

    name: str
    seen: Seen


class WorkspaceStore:
    """Contents and manifests of one workspace.

    Example::

        with store.adding():
            snapshot = store.of(workspace).take(Wish())
            ...  # write a record that names snapshot.name
    """

    def __init__(self, directory: Path, workspace: Path) -> None:
        self.directory = directory
        self.workspace = workspace
        self.objects = Objects(directory / "objects")
        self.cache = StatCache(directory / "known")

    def take(self, wish: Wish) -> Snapshot:
        """Look through the workspace and keep what it holds. Call it inside ``CheckpointStore.adding``.

        Raises:
            OSError: the workspace cannot be opened, or the disk of the store refuses.
            Stopped: nobody waits any more.
        """
        seen = Scan(self.workspace, self.objects, self.cache, wish).run()
        name = self.keep(seen.manifest)
        if seen.changed:
            self.cache.save({path: known for path, known in seen.known.items() if path not in seen.unsettled})
        return Snapshot(name, seen)

    def keep(self, manifest: Manifest) -> str:
        """Keep a manifest; its name is its hash, so the same tree is kept once.

        Raises:
            OSError: the disk refuses.
        """
        data = manifest.encode()
        name = digest_of(data).hex()
        place = self.manifest_path(name)
        if not place.exists():
            temporary = private_directory(place.parent) / f"tmp-{os.getpid()}-{os.urandom(4).hex()}"
            temporary.write_bytes(packed(data))
            temporary.replace(place)
        return name

    def manifest(self, name: str) -> Manifest:
        """A manifest by its name.

        Raises:
            MissingContent: it is not here, or damaged.
        """
        try:
            data = unpacked(self.manifest_path(name).read_bytes())
            if digest_of(data).hex() == name:
                return Manifest.decode(data)
        except OSError:
            raise MissingContent("the checkpoint is no longer kept") from None
        except (zlib.error, msgspec.DecodeError):
            pass
        raise MissingContent("the checkpoint is damaged")

    def manifest_path(self, name: str) -> Path:
        """Where a manifest lies."""
        return self.directory / "manifests" / name


def workspace_key(workspace: Path) -> str:
    """The name of a workspace's part of the store: readable, and different for each real path.

    Example::

        workspace_key(Path("/projects/shop"))  # "shop-1f0c9a3e"
    """
    real = os.path.realpath(workspace)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(real).name)[:_LONGEST_NAME] or "root"
    return f"{name}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:8]}"
