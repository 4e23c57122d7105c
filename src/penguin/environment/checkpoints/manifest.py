"""What a workspace held at one moment: names, kinds, modes and the hashes of contents."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec


class MissingContent(Exception):
    """A content that a manifest names cannot be had any more; the text says why."""


Kind: TypeAlias = Literal["file", "link", "directory"]


class Entry(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One name below the workspace.

    Attributes:
        path: relative, as the bytes the system uses: a name need not be text.
        kind: ``file``, ``link`` (never followed) or ``directory``.
        mode: permission bits; 0 for links, which have none of their own.
        size: bytes of the content.
        content: the sha256 of a file's content, the target of a link.
    """

    path: bytes
    kind: Kind
    mode: int = 0
    size: int = 0
    content: bytes = b""


class Skipped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A place that is not covered, with everything below it, and why."""

    path: bytes
    why: str


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """A whole workspace. Equal trees have equal manifests: no time and no inode is part of one.

    Example::

        manifest = Manifest.decode(stored)
        manifest.by_path()[b"src/main.py"].mode   # 0o644
    """

    entries: list[Entry]
    skipped: list[Skipped] = []

    def encode(self) -> bytes:
        """The bytes whose hash is the manifest's name."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """The manifest of some bytes.

        Raises:
            msgspec.DecodeError: they are none.
        """
        return _decoder.decode(data)

    def by_path(self) -> dict[bytes, Entry]:
        """The entries by their names."""
        return {entry.path: entry for entry in self.entries}

    def left_out(self) -> Uncovered:
        """The places this manifest says nothing about."""
        return Uncovered(self.skipped)


class Uncovered:
    """Answers whether a manifest leaves a path out, itself or with a directory above it."""

    def __init__(self, skipped: list[Skipped]) -> None:
        self._why = {each.path: each.why for each in skipped}

    def why(self, path: bytes) -> str | None:
        """Why ``path`` is not covered; ``None`` when it is."""
        if not self._why:
            return None
        return next((self._why[each] for each in (path, *parents(path), b"") if each in self._why), None)


def parents(path: bytes) -> Iterator[bytes]:
    """The directories above a path, the nearest first, without the workspace itself."""
    while (cut := path.rfind(b"/")) > 0:
        path = path[:cut]
        yield path


def shown(path: bytes) -> str:
    """A path for people: what is no text is written as escapes."""
    return path.decode("utf-8", "backslashreplace")


def digest_of(data: bytes) -> bytes:
    """The name of a content."""
    return hashlib.sha256(data).digest()


def packed(manifest: bytes) -> bytes:
    """As it lies on disk."""
    return zlib.compress(manifest, 1)


def unpacked(data: bytes) -> bytes:
    """The reverse of :func:`packed`.

    Raises:
        zlib.error: the bytes are damaged.
    """
    return zlib.decompress(data)


def joined(directory: bytes, name: str | bytes) -> bytes:
    """The path of a name in a directory; the workspace itself is ``b""``."""
    encoded = os.fsencode(name)
    return directory + b"/" + encoded if directory else encoded


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Manifest)
