"""What this session has seen of which file, so that it never overwrites what it does not know (N15)."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import anyio
import msgspec

from penguin.environment.atomic_write import remove_leftover
from penguin.environment.tool import ToolSetup
from penguin.private import private_directory

HASH_LIMIT = 16 * 1024 * 1024
"""Larger files (bytes) are told apart by size and mtime alone: hashing gigabytes for each look takes too long."""

_MOST_NOTED = 50
_log = logging.getLogger("penguin.environment")


class FileState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of ``files.jsonl``: how a file looked when it was read or written.

    ``sha256`` is empty for large files. A line with ``writing`` announces a write; the state follows when it is done.
    """

    path: str
    size: int = 0
    mtime_ns: int = 0
    sha256: str = ""
    written: bool = False
    writing: bool = False

    def same_content(self, other: FileState) -> bool:
        """Whether both describe the same content; a touched file is the same, a flipped byte is not."""
        if self.sha256 and other.sha256:
            return self.sha256 == other.sha256
        return (self.size, self.mtime_ns) == (other.size, other.mtime_ns)


def state_of(path: Path, status: os.stat_result, data: bytes | None) -> FileState:
    """The state to remember; ``data`` is the whole content, ``None`` when it is too large to hold."""
    digest = "" if data is None else hashlib.sha256(data).hexdigest()
    size = status.st_size if data is None else len(data)
    return FileState(str(path), size, status.st_mtime_ns, digest)


class SeenFiles:
    """The ledger in ``scratchpad/<session>/files.jsonl``: append-only, the last line of a path counts.

    Args:
        ledger: The file; it is read once, so a resumed session knows what it knew. ``None`` keeps it in memory.
    """

    def __init__(self, ledger: Path | None) -> None:
        self._ledger = ledger
        self.staging_dir = None if ledger is None else Path(os.path.realpath(ledger.parent))
        """Where a new content may wait for its place; it exists once a write was announced."""
        self._last: dict[str, FileState] = {}
        self._written: dict[str, None] = {}
        self._torn = False
        self.write_lock = anyio.Lock()
        """Held over read, change and write of a file: two calls of one turn may edit the same file."""
        if ledger is not None:
            self._load(ledger)

    @classmethod
    def shared(cls, setup: ToolSetup) -> SeenFiles:
        """The one of this environment."""
        seen: SeenFiles = setup.once("seen_files", cls._of)
        return seen

    @classmethod
    def _of(cls, setup: ToolSetup) -> SeenFiles:
        return cls(setup.scratchpad_dir and setup.scratchpad_dir / "files.jsonl")

    def _load(self, ledger: Path) -> None:
        try:
            data = ledger.read_bytes()
        except OSError:
            return
        self._torn = bool(data) and not data.endswith(b"\n")
        decoder = msgspec.json.Decoder(FileState)
        announced: set[str] = set()
        for line in data.splitlines():
            try:
                state = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # a kill tore this line; the file then counts as unseen, which is the safe side
            if state.writing:
                announced.add(state.path)
            else:
                announced.discard(state.path)
                self._remember(state)
        for path in announced:
            remove_leftover(Path(path), self.staging_dir)

    def _remember(self, state: FileState) -> None:
        self._last[state.path] = state
        if state.written:
            self._written[state.path] = None

    def last(self, path: Path) -> FileState | None:
        """How the file looked when this session last read or wrote it."""
        return self._last.get(str(path))

    def note_read(self, state: FileState) -> None:
        """The model has seen this state."""
        if self._last.get(state.path) != state:
            self._remember(state)
            self._append(state)

    def announce_write(self, path: Path) -> None:
        """A write begins; should it be killed, the next session knows where to clean up."""
        self._append(FileState(str(path), writing=True))

    def note_written(self, state: FileState) -> None:
        """This session made the file look like this."""
        state = msgspec.structs.replace(state, written=True)
        self._remember(state)
        self._append(state)

    def _append(self, state: FileState) -> None:
        if self._ledger is None:
            return
        line = msgspec.json.encode(state) + b"\n"
        try:
            private_directory(self._ledger.parent)
            descriptor = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, b"\n" + line if self._torn else line)
                self._torn = False
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._ledger, error)

    def context_notes(self) -> str:
        """The files this session wrote, for the summary of a compaction."""
        if not self._written:
            return ""
        paths = list(self._written)
        more = f"\n(and {len(paths) - _MOST_NOTED} more)" if len(paths) > _MOST_NOTED else ""
        return "Files written in this session:\n" + "\n".join(f"- {path}" for path in paths[-_MOST_NOTED:]) + more
