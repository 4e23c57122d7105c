"""What a Chat Completions server sends, as structs: a fast strict reading and a slow lenient one.

Almost every chunk has the documented types and is decoded in a microsecond. Those that do not
(an index as text, a list with nulls, lone surrogates) are read again with patience by :func:`read`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penguin.protocol.codec import minify
from penguin.protocol.messages import scrub

NULL = Raw(b"null")
"""The default of raw members: one object, so that absence is an identity test on the hot path."""


class WireFunction(Struct):
    """The function part of a call; ``arguments`` is text, or (against the documents) an object."""

    name: str | None = None
    arguments: Raw = NULL


class WireCall(Struct):
    """A piece of a tool call."""

    index: int | None = None
    id: str | None = None
    function: WireFunction | None = None
    extra_content: Raw = NULL


class WireDelta(Struct):
    """What one chunk adds."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Raw]] | None = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None
    function_call: WireFunction | None = None
    extra_content: Raw = NULL
    images: list[Any] | None = None


class WireChoice(Struct):
    """The one choice that was asked for; ``message`` stands in where a server does not stream."""

    delta: WireDelta | None = None
    message: WireDelta | None = None
    finish_reason: str | None = None
    usage: Raw = NULL
    error: Raw = NULL


class WireGroq(Struct):
    """Where Groq puts its usage."""

    usage: Raw = NULL


class WireChunk(Struct):
    """One event."""

    choices: list[WireChoice] | None = None
    usage: Raw = NULL
    error: Raw = NULL
    object: str | None = None
    x_groq: WireGroq | None = None


_decoder = msgspec.json.Decoder(WireChunk)


class NotJson(ValueError):
    """The data of an event is no JSON document."""


def read(data: bytes) -> WireChunk:
    """Decode one event.

    Raises:
        NotJson: with the parser's complaint.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _chunk(document(data))


def document(data: bytes) -> Any:
    """The event as plain Python, text cleaned.

    Raises:
        NotJson: with the parser's complaint.
    """
    try:
        # strict=False: some servers leave raw control characters in strings.
        return _scrubbed(json.loads(data.decode("utf-8", "replace"), strict=False))
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def is_null(raw: Raw) -> bool:
    """Whether a raw member is absent or null."""
    return bytes(raw) == b"null"


def argument_text(raw: Raw) -> str:
    """The text that a piece of arguments adds: a string's content, an object's JSON, nothing for null."""
    data = bytes(raw)
    match data[:1]:
        case b'"':
            try:
                return msgspec.json.decode(data, type=str)
            except msgspec.DecodeError:
                return scrub(str(json.loads(data, strict=False)))
        case b"{" | b"[":
            return scrub(minify(data).decode("utf-8", "replace"))
        case _:
            return ""


def _scrubbed(value: Any) -> Any:
    match value:
        case str():
            return scrub(value)
        case list():
            return [_scrubbed(item) for item in value]
        case dict():
            return {scrub(key): _scrubbed(item) for key, item in value.items()}
        case _:
            return value


# --- the lenient reading: whatever has an unusable type counts as absent ------------------------------


def _chunk(value: Any) -> WireChunk:
    match value:
        case dict():
            choices = [_choice(item) for item in _items(value.get("choices")) if isinstance(item, dict)]
            groq = value.get("x_groq")
            return WireChunk(
                choices if isinstance(value.get("choices"), list) else None,
                _raw(value.get("usage")),
                _raw(value.get("error")),
                _text(value.get("object")),
                WireGroq(_raw(groq.get("usage"))) if isinstance(groq, dict) else None,
            )
        case [dict() as first, *_]:  # an error document wrapped in a list
            return _chunk(first)
        case _:
            return WireChunk(error=_raw(value) if isinstance(value, str) else NULL)


def _choice(value: dict[str, Any]) -> WireChoice:
    return WireChoice(
        _delta(value.get("delta")),
        _delta(value.get("message")),
        _text(value.get("finish_reason")),
        _raw(value.get("usage")),
        _raw(value.get("error")),
    )


def _delta(value: Any) -> WireDelta | None:
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    details = [item for item in _items(value.get("reasoning_details")) if isinstance(item, dict)]
    return WireDelta(
        content if isinstance(content, str | list) else None,
        _text(value.get("reasoning_content")),
        _text(value.get("reasoning")),
        [{key: _raw(part) for key, part in item.items()} for item in details] or None,
        _text(value.get("refusal")),
        [_call(item) for item in _items(value.get("tool_calls")) if isinstance(item, dict)],
        _function(value.get("function_call")),
        _raw(value.get("extra_content")),
        _items(value.get("images")) or None,
    )


def _call(value: dict[str, Any]) -> WireCall:
    function = value.get("function")
    # A few servers forget the inner object and put name and arguments beside the id.
    inner = function if isinstance(function, dict) else value
    return WireCall(
        _number(value.get("index")), _text(value.get("id")), _function(inner), _raw(value.get("extra_content"))
    )


def _function(value: Any) -> WireFunction | None:
    match value:
        case dict():
            return WireFunction(_text(value.get("name")), _raw(value.get("arguments")))
        case _:
            return None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    match value:
        case str():
            return value
        case int() if not isinstance(value, bool):
            return str(value)
        case _:
            return None


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
