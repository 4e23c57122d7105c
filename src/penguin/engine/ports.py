"""What the engine needs from below and does not define elsewhere: the trace, and fresh contexts."""

from __future__ import annotations

from typing import Protocol

from penguin.protocol.interfaces import LLMInterface
from penguin.protocol.messages import Message


class TracePort(Protocol):
    """Where records go. Writing is synchronous because it must work after a scope was cancelled."""

    def append(self, message: Message) -> None:
        """Write one record; never raises: disk trouble shows in ``error``."""
        ...

    def open_new_file(self) -> None:
        """The next record opens the file of a new context."""
        ...

    async def sync(self) -> None:
        """Make what was written survive a power cut."""
        ...

    @property
    def error(self) -> str | None:
        """The present disk trouble in words for people, ``None`` when everything is written."""
        ...

    @property
    def lost(self) -> bool:
        """Whether records were given up because more waited for the disk than may be kept in memory."""
        ...


class ContextSource(Protocol):
    """Where fresh contexts of a session come from."""

    def new_model(self) -> LLMInterface:
        """A model of the same configuration with an empty context."""
        ...

    async def next_meta(self) -> Message:
        """The ``session_meta`` of the next context; a tool that came late joins here."""
        ...


class NoTrace:
    """A trace port that keeps nothing, for sessions without a data root."""

    error: str | None = None
    lost = False

    def append(self, message: Message) -> None:
        """Forget the record."""

    def open_new_file(self) -> None:
        """Nothing to open."""

    async def sync(self) -> None:
        """Nothing to make durable."""
