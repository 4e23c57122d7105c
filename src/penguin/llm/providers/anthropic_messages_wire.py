"""What an Anthropic Messages server sends, as structs."""

from __future__ import annotations

from msgspec import Raw, Struct

from penguin.llm.providers.lenient import ABSENT, EventReader


class WireDelta(Struct):
    """What one event adds to a block, or to the message when ``type`` is empty."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    citation: Raw = ABSENT
    stop_reason: str | None = None
    stop_details: Raw = ABSENT


class WireMessage(Struct):
    """The message of ``message_start``, or a whole reply that was not streamed."""

    usage: Raw = ABSENT
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_details: Raw = ABSENT


class WireEvent(Struct):
    """One event; ``content_block`` is kept raw because unknown kinds go back as they came."""

    type: str = ""
    index: int | None = None
    delta: WireDelta | None = None
    content_block: Raw = ABSENT
    message: WireMessage | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


_reader = EventReader(WireEvent)
_message_reader = EventReader(WireMessage)


def read(data: bytes) -> WireEvent:
    """Decode one event.

    Raises:
        NotJson: with the parser's complaint.
    """
    return _reader.read(data)


def read_message(data: bytes) -> WireMessage:
    """Decode a reply that was not streamed.

    Raises:
        NotJson: with the parser's complaint.
    """
    return _message_reader.read(data)
