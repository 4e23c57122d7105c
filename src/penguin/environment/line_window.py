"""Some lines of a file of any size, in bounded time and memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from msgspec import Struct

LONGEST_LINE = 2_000
"""Characters shown of one line."""

_CHUNK = 1024 * 1024
_KEPT = LONGEST_LINE * 4  # bytes: enough for that many characters of UTF-8


class Line(Struct, frozen=True):
    """A line without its end; ``size`` is its length in bytes, of which ``data`` holds the beginning."""

    data: bytes
    size: int

    def shown(self) -> str:
        """The line as text, cut with a note when it is long."""
        text = self.data.removesuffix(b"\r").decode("utf-8", "replace").replace("\0", "\ufffd")
        if self.size <= len(self.data) and len(text) <= LONGEST_LINE:
            return text
        return f"{text[:LONGEST_LINE]}… [line cut, {self.size:,} bytes long]"


def skip_lines(file: BinaryIO, count: int, stopped: Callable[[], bool]) -> int:
    """Move past ``count`` lines, or to the end; returns how many there were."""
    skipped = 0
    unfinished = False
    while skipped < count and not stopped():
        chunk = file.read(_CHUNK)
        if not chunk:
            return skipped + unfinished
        ends = chunk.count(b"\n")
        unfinished = not chunk.endswith(b"\n")
        if skipped + ends < count:
            skipped += ends
            continue
        at = -1
        for _ in range(count - skipped):
            at = chunk.index(b"\n", at + 1)
        file.seek(at + 1 - len(chunk), os.SEEK_CUR)
        return count
    return skipped


def lines_of(file: BinaryIO) -> Iterator[Line]:
    """The lines from here on; of a long one only the beginning is kept."""
    while data := file.readline(_KEPT):
        size = len(data)
        while not data.endswith(b"\n") and (rest := file.readline(_CHUNK)):
            size += len(rest)
            if rest.endswith(b"\n"):
                size -= 1
                break
        yield Line(data[:-1], size - 1) if data.endswith(b"\n") else Line(data, size)
