"""Contents by their hash: the same bytes are kept once, whoever had them under whatever name."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from penguin.environment.checkpoints.manifest import MissingContent, digest_of
from penguin.private import private_directory

_CHUNK = 1024 * 1024
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Unreadable(Exception):
    """A file that was to be kept cannot be read; that is no trouble of the place where contents are kept."""


TEMPORARY = "tmp-"


class Objects:
    """A directory of contents; writing one is atomic, and writing it twice is harmless.

    There is no fsync: ten thousand of them would take minutes. A power cut may damage what was just
    written, so every content is checked against its hash when it is read.

    Example::

        digest = objects.add(b"hello")
        with objects.open(digest) as file: ...
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, data: bytes) -> bytes:
        """Keep ``data`` and return its hash.

        Raises:
            OSError: the disk refuses.
        """
        digest = digest_of(data)
        if not self.holds(digest, len(data)):
            with self._new() as (file, temporary):
                file.write(data)
                file.close()
                self._publish(temporary, digest)
        return digest

    def add_from(self, descriptor: int, step: Callable[[], None] = lambda: None) -> tuple[bytes, int]:
        """Keep what a file holds from its present position on; its hash and its size.

        ``step`` is called now and then and may raise to give up.

        Raises:
            Unreadable: the file cannot be read.
            OSError: the disk for the contents refuses.
        """
        first = _piece(descriptor)
        if len(first) < _CHUNK:
            rest = _piece(descriptor) if first else b""
            if not rest:
                return self.add(first), len(first)
            first += rest
        return self._add_long(first, descriptor, step)

    def _add_long(self, first: bytes, descriptor: int, step: Callable[[], None]) -> tuple[bytes, int]:
        running, size = hashlib.sha256(), 0
        with self._new() as (file, temporary):
            piece = first
            while piece:
                step()
                running.update(piece)
                file.write(piece)
                size += len(piece)
                piece = _piece(descriptor)
            file.close()
            self._publish(temporary, running.digest())
        return running.digest(), size

    def holds(self, digest: bytes, size: int) -> bool:
        """Whether the content is here; one of another length was cut short by a power failure and does not count."""
        try:
            return os.stat(self.path(digest)).st_size == size  # noqa: PTH116 - a Path costs more than the call
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def open(self, digest: bytes) -> Iterator[BinaryIO]:
        """A content for reading; whoever copies it checks the hash, see :meth:`copy`.

        Raises:
            MissingContent: it is not here.
        """
        try:
            file = open(self.path(digest), "rb")  # noqa: PTH123, SIM115 - see above; closed below
        except FileNotFoundError:
            raise MissingContent("its content is no longer kept") from None
        with file:
            yield file

    def copy(self, digest: bytes, write: Callable[[bytes], object]) -> None:
        """Hand a content on in pieces.

        Raises:
            MissingContent: it is not here, or not what it was; then the pieces must be thrown away.
        """
        running = hashlib.sha256()
        with self.open(digest) as file:
            while piece := file.read(_CHUNK):
                running.update(piece)
                write(piece)
        if running.digest() != digest:
            raise MissingContent("its kept content is damaged")

    def read(self, digest: bytes) -> bytes:
        """A whole content.

        Raises:
            MissingContent: as in :meth:`copy`.
        """
        pieces: list[bytes] = []
        self.copy(digest, pieces.append)
        return b"".join(pieces)

    def path(self, digest: bytes) -> str:
        """Where a content lies."""
        name = digest.hex()
        return f"{self.directory}/{name[:2]}/{name[2:]}"

    @contextlib.contextmanager
    def _new(self) -> Iterator[tuple[BinaryIO, str]]:
        temporary = f"{self.directory}/{TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"
        try:
            descriptor = os.open(temporary, _NEW_FILE, 0o600)
        except FileNotFoundError:
            private_directory(self.directory)
            descriptor = os.open(temporary, _NEW_FILE, 0o600)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, which Path.open does not take
                yield file, temporary
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108 - as above
            raise

    def _publish(self, temporary: str, digest: bytes) -> None:
        place = self.path(digest)
        try:
            os.rename(temporary, place)  # noqa: PTH104 - as above
        except FileNotFoundError:
            private_directory(Path(place).parent)
            os.rename(temporary, place)  # noqa: PTH104


def _piece(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError as error:
        raise Unreadable(error.strerror) from error
