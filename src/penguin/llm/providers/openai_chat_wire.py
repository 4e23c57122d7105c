"""What a Chat Completions server sends, as structs."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from penguin.llm.providers.lenient import ABSENT, EventReader


class WireFunction(Struct):
    """The function part of a call; ``arguments`` is text, or (against the documents) an object."""

    name: str | None = None
    arguments: Raw = ABSENT


class WireCall(Struct):
    """A piece of a tool call; a few servers forget the inner object and put name and arguments beside the id."""

    index: int | None = None
    id: str | None = None
    function: WireFunction | None = None
    extra_content: Raw = ABSENT
    name: str | None = None
    arguments: Raw = ABSENT

    @property
    def called(self) -> WireFunction:
        """Name and arguments, wherever they stand."""
        return self.function or WireFunction(self.name, self.arguments)


class WireDelta(Struct):
    """What one chunk adds."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Raw]] | None = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None
    function_call: WireFunction | None = None
    extra_content: Raw = ABSENT
    images: list[Any] | None = None


class WireChoice(Struct):
    """The one choice that was asked for; ``message`` stands in where a server does not stream."""

    delta: WireDelta | None = None
    message: WireDelta | None = None
    finish_reason: str | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


class WireGroq(Struct):
    """Where Groq puts its usage."""

    usage: Raw = ABSENT


class WireChunk(Struct):
    """One event."""

    choices: list[WireChoice] | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT
    object: str | None = None
    x_groq: WireGroq | None = None


_reader = EventReader(WireChunk)


def read(data: bytes) -> WireChunk:
    """Decode one event.

    Raises:
        NotJson: with the parser's complaint.
    """
    return _reader.read(data)
