"""Output of a background command that nobody has asked for yet, in bounded memory."""

from __future__ import annotations

from penguin.environment.terminal_text import TerminalText
from penguin.environment.truncation import TailBuffer

HEAD_LIMIT = 256 * 1024
TAIL_LIMIT = 768 * 1024
"""Bytes kept of one command between two polls: its first and its last."""


class Backlog:
    """Raw bytes: they are decoded when they are asked for, so that a chatty server in the background costs little."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = TailBuffer(TAIL_LIMIT)

    def __bool__(self) -> bool:
        return bool(self._head)

    def add(self, data: bytes) -> None:
        """Append bytes."""
        room = HEAD_LIMIT - len(self._head)
        self._head += data[:room]
        if len(data) > room:
            self._tail.write(data[room:])

    def take(self) -> tuple[bytes, int, bytes]:
        """Everything, and forget it: the beginning, how many bytes were not kept, the end."""
        head, tail = bytes(self._head), self._tail.content()
        left_out = self._tail.written - len(tail)
        self.__init__()  # type: ignore[misc]
        return head, left_out, tail

    def last_words(self, limit: int) -> str:
        """The last ``limit`` characters of it as text; nothing is forgotten."""
        kept = (bytes(self._head) + self._tail.content())[-8 * limit :]
        text = TerminalText()
        return (text.feed(kept) + text.close())[-limit:]
