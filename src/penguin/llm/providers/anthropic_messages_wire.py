"""What an Anthropic Messages server sends, as structs: a fast strict reading and a slow lenient one.

As in Chat Completions almost every event is decoded strictly in a microsecond; what has a wrong type
somewhere, lone surrogates or bytes that are not UTF-8 is read again with patience by :func:`read`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penguin.llm.providers.openai_chat_wire import NULL, document
from penguin.protocol.codec import fidelity_bytes, fidelity_fields
from penguin.protocol.errors import CodecError


class WireDelta(Struct):
    """What one event adds to a block, or to the message when ``type`` is empty."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    citation: Raw = NULL
    stop_reason: str | None = None
    stop_details: Raw = NULL


class WireMessage(Struct):
    """The message of ``message_start``, or a whole reply that was not streamed."""

    usage: Raw = NULL
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_details: Raw = NULL


class WireEvent(Struct):
    """One event; ``content_block`` is kept raw because unknown kinds go back as they came."""

    type: str = ""
    index: int | None = None
    delta: WireDelta | None = None
    content_block: Raw = NULL
    message: WireMessage | None = None
    usage: Raw = NULL
    error: Raw = NULL


_decoder = msgspec.json.Decoder(WireEvent)
_message_decoder = msgspec.json.Decoder(WireMessage)


def read(data: bytes) -> WireEvent:
    """Decode one event.

    Raises:
        NotJson: with the parser's complaint.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _event(document(data))


def read_message(data: bytes) -> WireMessage:
    """Decode a reply that was not streamed.

    Raises:
        NotJson: with the parser's complaint.
    """
    try:
        return _message_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _message(document(data)) or WireMessage()


def members(raw: Raw) -> dict[str, Raw]:
    """The members of an object, each raw, minified and readable (P5, P12); empty for anything else."""
    try:
        return fidelity_fields(fidelity_bytes(bytes(raw)))
    except CodecError:
        return {}


def text_of(raw: Raw | None) -> str:
    """The content of a JSON string; nothing for anything else."""
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else ""
    except msgspec.DecodeError:
        return ""


# --- the lenient reading: whatever has an unusable type counts as absent ------------------------------


def _event(value: Any) -> WireEvent:
    match value:
        case dict():
            return WireEvent(
                _text(value.get("type")),
                _number(value.get("index")),
                _delta(value.get("delta")),
                _raw(value.get("content_block")),
                _message(value.get("message")),
                _raw(value.get("usage")),
                _raw(value.get("error")),
            )
        case [dict() as first, *_]:  # an error document wrapped in a list
            return _event(first)
        case _:
            return WireEvent()


def _delta(value: Any) -> WireDelta | None:
    if not isinstance(value, dict):
        return None
    return WireDelta(
        _text(value.get("type")),
        _text(value.get("text")),
        _text(value.get("thinking")),
        _text(value.get("partial_json")),
        _text(value.get("signature")),
        _raw(value.get("citation")),
        _text(value.get("stop_reason")) or None,
        _raw(value.get("stop_details")),
    )


def _message(value: Any) -> WireMessage | None:
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    return WireMessage(
        _raw(value.get("usage")),
        [_raw(block) for block in content] if isinstance(content, list) else None,
        _text(value.get("stop_reason")) or None,
        _raw(value.get("stop_details")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    match value:
        case bool():
            return None
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if value.isdecimal():
            return int(value)
        case _:
            return None


def _raw(value: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError):
        return Raw(json.dumps(value).encode())
