"""Bytes of an event stream to events: incremental, linear, and lenient about what servers really send."""

from __future__ import annotations

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"
_NEWLINE = 0x0A
LARGEST_EVENT = 64 * 1024 * 1024


class StreamEvent(Struct, frozen=True, gc=False):
    """One event: the joined ``data`` lines as sent (UTF-8), and the ``event`` name if there was one."""

    data: bytes
    name: str = ""


class EventTooLarge(ValueError):
    """One event grew past the limit; the stream cannot be trusted any more."""


class EventSplitter:
    r"""Cuts chunks of bytes, wherever the network broke them, into events.

    Bytes are never decoded here, so a character split between two chunks is whole again when its
    event is. ``limit`` is the largest event in bytes.

    Example::

        splitter = EventSplitter()
        splitter.feed(b"data: 1\n\nda")  # [StreamEvent(data=b"1")]
        splitter.feed(b"ta:2\n\n")  # [StreamEvent(data=b"2")]
    """

    def __init__(self, limit: int = LARGEST_EVENT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._ends_line = False
        self._ended_with_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """The events that ``chunk`` completes.

        Raises:
            EventTooLarge: the event under way is longer than the limit.
        """
        if self._ended_with_cr or b"\r" in chunk:
            chunk = self._with_plain_line_ends(chunk)
        if not chunk:
            return []
        if b"\n\n" not in chunk and not (self._ends_line and chunk[0] == _NEWLINE):
            return self._keep(chunk)
        # Joined only when an event ends, so that a line of megabytes costs its length and not its square.
        if self._pieces:
            self._pieces.append(chunk)
            chunk = b"".join(self._pieces)
        *blocks, rest = chunk.split(b"\n\n")
        self._pieces, self._size = [rest] if rest else [], len(rest)
        self._ends_line = rest.endswith(b"\n")
        return self._events(blocks)

    def finish(self) -> list[StreamEvent]:
        """What was left when the stream ended: the standard drops it, but servers do forget the last blank line."""
        block = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return self._events([block])

    def _keep(self, chunk: bytes) -> list[StreamEvent]:
        self._pieces.append(chunk)
        self._size += len(chunk)
        self._ends_line = chunk[-1] == _NEWLINE
        if self._size > self._limit:
            raise EventTooLarge(f"one event of the stream is larger than {self._limit} bytes")
        return []

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        # A CR at the end of a chunk ends its line at once; waiting for the LF would delay the event it ends.
        if self._ended_with_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ended_with_cr = False
            return self._with_plain_line_ends(chunk)
        self._ended_with_cr = chunk.endswith(b"\r") or (self._ended_with_cr and not chunk)
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _events(self, blocks: list[bytes]) -> list[StreamEvent]:
        if self._at_start and blocks:
            self._at_start = False
            blocks[0] = blocks[0].removeprefix(_BOM)
        events: list[StreamEvent] = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                if len(block) > 6:  # noqa: PLR2004 - the length of the prefix
                    events.append(StreamEvent(block[6:]))
            elif (event := _read_block(block)) is not None:
                events.append(event)
        return events


def _read_block(block: bytes) -> StreamEvent | None:
    """Field by field; ``None`` when the block carries no data (comments, ``retry``, an empty ``data:``)."""
    data: list[bytes] = []
    name = b""
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                data.append(value)
            case b"event":
                name = value
            case _:
                pass
    joined = b"\n".join(data)
    return StreamEvent(joined, name.decode("utf-8", "replace")) if joined.strip() else None
