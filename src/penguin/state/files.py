"""Read a small configuration file, lock it, replace it whole.

Every error is a :class:`~penguin.protocol.errors.ConfigError` that names the file; a file is either
its old self or its new self, at any instant, also for a reader without the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penguin.protocol.errors import ConfigError, ConfigProblem
from penguin.state.paths import make_private_directory

PRIVATE = 0o600
BOM = "\ufeff"


def config_error(path: Path, message: str, line: int | None = None, column: int | None = None) -> ConfigError:
    """The error for a place in ``path``; ``line`` and ``column`` are 1-based."""
    return ConfigError(ConfigProblem(path, message, line, column))


def read_config_text(path: Path) -> str | None:
    """The text of ``path`` as it is on disk (BOM and line ends included), ``None`` when there is no such file.

    Raises:
        ConfigError: a directory, a device or fifo, not readable, not UTF-8.
    """
    data = _read_bytes(path)
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before.rpartition(b"\n")[2].decode("utf-8")) + 1
        found = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise config_error(path, found, before.count(b"\n") + 1, column) from None


def _read_bytes(path: Path) -> bytes | None:
    try:
        # Opening a fifo waits for its writer, so what it is must be known before.
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise config_error(path, "is a directory; a file is expected here")
        if not stat.S_ISREG(kind):
            raise config_error(path, "is not a regular file")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise config_error(path, f"cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one writer at a time change ``path``, over threads and processes; read the file inside the block.

    Raises:
        ConfigError: the directory or the lock file cannot be made.
    """
    # The lock is a file beside the target: the target itself is a new inode after each write, and a lock
    # on the old one would let a second writer in.
    target = Path(os.path.realpath(path))
    make_private_directory(target.parent)
    lock = target.with_name(f".{target.name.lstrip('.')}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    except OSError as error:
        raise config_error(lock, f"cannot be made: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str, *, mode: int | None = None) -> None:
    """Write ``text`` as UTF-8 in one step: a temporary file in the same directory, fsync, rename.

    A symbolic link stays and its target is replaced. ``mode`` is enforced when given; otherwise an
    existing file keeps its mode and a new one is private.

    Raises:
        ConfigError: the disk refused; the old file is untouched and nothing is left behind.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        unwritable = ascii(error.object[error.start])
        raise config_error(path, f"cannot hold the character {unwritable}; nothing was written") from None
    target = Path(os.path.realpath(path))
    make_private_directory(target.parent)
    temporary = target.with_name(f".{target.name.lstrip('.')}.{os.urandom(4).hex()}.tmp")
    try:
        _write_durably(temporary, data, _mode_of(target) if mode is None else mode)
        temporary.replace(target)
        _sync_directory(target.parent)
    except OSError as error:
        raise config_error(path, f"cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _write_durably(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, which Path.open does not take
        file.write(data)
        file.flush()
        os.fchmod(descriptor, mode)  # the umask took part in the mode given to open
        os.fsync(descriptor)


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return PRIVATE


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
