"""Which content a file had when it was last read, told from its stat: what did not change is not read again."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from penguin.environment.checkpoints.manifest import Entry

_SETTLED_NS = 2_000_000_000
"""A file that changed within this time (ns) before it was read may change again without a trace: clocks of file
systems tick every few milliseconds, some every two seconds."""


class Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry and the stat its content was read under."""

    entry: Entry
    mtime_ns: int
    ctime_ns: int
    inode: int

    def fits(self, status: os.stat_result) -> bool:
        """Whether the file is the one that was read, unchanged since. A changed mode shows in ``ctime``."""
        return (
            self.ctime_ns == status.st_ctime_ns
            and self.mtime_ns == status.st_mtime_ns
            and self.inode == status.st_ino
            and self.entry.size == status.st_size
        )


class StatCache:
    """What is known of the files of one workspace; ``path`` is read and replaced as a whole.

    A cache that cannot be read is an empty one: everything is then read again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[bytes, Known]:
        """What is known, by path."""
        try:
            return {known.entry.path: known for known in _decoder.decode(self.path.read_bytes())}
        except (OSError, msgspec.DecodeError):
            return {}

    def save(self, known: dict[bytes, Known]) -> None:
        """Replace what is known; a disk that refuses costs time later and nothing else."""
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        try:
            temporary.write_bytes(_encoder.encode(list(known.values())))
            temporary.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def forget(self) -> None:
        """Know nothing any more.

        Raises:
            OSError: the file cannot be removed.
        """
        self.path.unlink(missing_ok=True)


def settled(status: os.stat_result, read_at_ns: int) -> bool:
    """Whether a file that was read at that time has been left alone long enough for its stat to prove anything."""
    return max(status.st_mtime_ns, status.st_ctime_ns) < read_at_ns - _SETTLED_NS


def now_ns() -> int:
    """The wall clock, which file times are compared with."""
    return time.time_ns()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Known])
