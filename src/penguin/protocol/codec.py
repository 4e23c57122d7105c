"""Lines to messages and back.

Encoding lives with the message (``message.line``); this module decodes. The fast road decodes a
small header, then the payload by its tag. Whatever the fast road refuses — an old dialect, unknown
fields, unknown words, lone surrogates — takes the slow road, which reads what it can and keeps the
line as it stands, so that copying a record never changes it.
"""

from __future__ import annotations

import re
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, UnsetType

from penguin.protocol.errors import CodecError
from penguin.protocol.events import ErrorDetail
from penguin.protocol.messages import (
    CompactionBegin,
    CompactionEnd,
    EventPayload,
    Fidelity,
    Message,
    MessageType,
    ModelPayload,
    OmniMessage,
    Payload,
    SessionMeta,
    TokenCounts,
    TokenUsage,
    ToolDefinition,
    UnknownPayload,
    encode_message,
    scrub,
    scrub_value,
)


class _Header(Struct, forbid_unknown_fields=True):
    type: MessageType
    payload: Raw
    timestamp: str = ""
    origin: list[str] | None = None


class _LenientHeader(_Header, forbid_unknown_fields=False):
    pass


class _Tag(Struct):
    type: str = ""


_header = msgspec.json.Decoder(_Header)
_lenient_header = msgspec.json.Decoder(_LenientHeader)
_tag = msgspec.json.Decoder(_Tag)
_fields = msgspec.json.Decoder(dict[str, Raw])
_payloads: dict[str, msgspec.json.Decoder[Any]] = {
    "session_meta": msgspec.json.Decoder(SessionMeta),
    "model_msg": msgspec.json.Decoder(ModelPayload),
    "event_msg": msgspec.json.Decoder(EventPayload),
}
_STRUCTS: dict[tuple[str, str], Any] = {
    (envelope, struct.__struct_config__.tag): struct
    for envelope, union in (("model_msg", ModelPayload), ("event_msg", EventPayload))
    for struct in union.__args__
} | {("session_meta", ""): SessionMeta}

# What the slow road reads a word of another dialect as, and what it puts where an old record has nothing.
_NEAREST_WORD = {
    "stop_reason": Raw(b'"failed"'),
    "status": Raw(b'"failed"'),
    "decision": Raw(b'"deny"'),
    "reason": Raw(b'"manual"'),
    "mode": Raw(b'"summarize"'),
}
_EMPTY, _ZERO = Raw(b'""'), Raw(b"0")
_COMPACTION = {"reason": Raw(b'"manual"'), "mode": Raw(b'"summarize"')}
_WHERE_MISSING: dict[Any, dict[str, Raw]] = {
    SessionMeta: dict.fromkeys(("provider", "model_id", "system_prompt", "workspace"), _EMPTY),
    ToolDefinition: {"description": _EMPTY},
    ErrorDetail: {"kind": Raw(b'"unknown"'), "message": _EMPTY},
    CompactionBegin: {**_COMPACTION, "context": _ZERO, "turns": _ZERO},
    CompactionEnd: _COMPACTION,
}
_NESTED: dict[str, Any] = {"error": ErrorDetail, "session": TokenCounts, "request": TokenCounts}
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(message: Message) -> bytes:
    r"""The message as one line of UTF-8 JSON, without the newline (P12).

    Example::

        file.write(encode(user_text("hi")) + b"\n")
    """
    return message.line


def decode(line: bytes | str, *, line_number: int | None = None, default_timestamp: str | None = None) -> Message:
    """Read one line.

    Strict about the envelope, lenient about the payload: an unknown payload becomes
    :class:`UnknownPayload`. ``default_timestamp`` stands in where an old record has none.

    Raises:
        CodecError: the line is not a message; the text names ``line_number`` and the reason.

    Example::

        assert decode(encode(user_text("hi"))).payload.text == "hi"
    """
    data = scrub(line).encode() if isinstance(line, str) else line
    try:
        header = _header.decode(data)
        if header.timestamp:
            payload = _payloads[header.type].decode(header.payload)
            return OmniMessage(header.timestamp, header.type, _own_fidelity(payload), header.origin or None)
    except _UNREADABLE:
        pass
    try:
        return _decode_slowly(data, line_number, default_timestamp)
    except RecursionError:
        raise CodecError("the record is nested too deeply", line_number) from None


def _decode_slowly(data: bytes, line_number: int | None, default_timestamp: str | None) -> Message:
    data = _readable(data)
    try:
        header = _lenient_header.decode(data)
    except msgspec.DecodeError as error:
        raise CodecError(_reason(data, error), line_number) from None
    timestamp = header.timestamp or default_timestamp
    if timestamp is None:
        raise CodecError("the envelope has no timestamp", line_number)
    payload, line_is_needed = _lenient_payload(header.type, bytes(header.payload))
    message: Message = OmniMessage(timestamp, header.type, payload, header.origin or None)
    if line_is_needed or _has_unknown_envelope_fields(data):
        message.__dict__["line"] = minify(data if header.timestamp else _with_timestamp(data, timestamp))
    return message


def _reason(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "the line is empty"
    if not data.lstrip().startswith(b"{"):
        return "the line is not a JSON object"
    return f"not an OmniMessage: {error}"


def _with_timestamp(data: bytes, timestamp: str) -> bytes:
    fields = _fields.decode(data)
    return msgspec.json.encode({**fields, "timestamp": timestamp})


def _has_unknown_envelope_fields(data: bytes) -> bool:
    return not _fields.decode(data).keys() <= {"timestamp", "type", "payload", "origin"}


def _lenient_payload(envelope: MessageType, raw: bytes) -> tuple[Payload, bool]:
    """The payload as well as it can be read, and whether the original line says more than it does."""
    try:
        fields = _fields.decode(raw)
        tag = "" if envelope == "session_meta" else _tag.decode(raw).type
    except msgspec.DecodeError:
        return UnknownPayload("", Raw(minify(raw))), True
    struct = _STRUCTS.get((envelope, tag))
    if struct is None:
        return UnknownPayload(tag, Raw(minify(raw))), True
    fitting, changed = _fitting(struct, _translate_dialect(tag, fields, struct.__struct_fields__))
    try:
        payload = msgspec.json.decode(msgspec.json.encode(fitting), type=struct)
    except msgspec.DecodeError:
        return UnknownPayload(tag, Raw(minify(raw))), True
    return _own_fidelity(payload), changed


def _translate_dialect(tag: str, fields: dict[str, Raw], known: tuple[str, ...]) -> dict[str, Raw]:
    """Older records: ``signature``/``phase`` become fidelity (P6), ``error_message`` an error object (P3)."""
    absent = {name for name in (*known, "signature", "phase", "error_message") if _is_null(fields.get(name, _EMPTY))}
    absent.discard("reason" if tag == "abort" else "")
    fields = {name: value for name, value in fields.items() if name not in absent}
    if "fidelity" in known and "fidelity" not in fields:
        old = {name: fields.pop(name) for name in ("signature", "phase") if name in fields}
        if old:
            fields["fidelity"] = Raw(msgspec.json.encode(old))
    if tag == "request_end" and "error" not in fields and bytes(fields.get("error_message", b"")).startswith(b'"'):
        message = fields.pop("error_message")
        fields["error"] = Raw(b'{"kind":"unknown","message":' + bytes(message) + b"}")
    if tag == "partial_tool_call":
        fields.setdefault("arguments", _EMPTY)
    return fields


def _fitting(struct: Any, fields: dict[str, Raw]) -> tuple[dict[str, Raw], bool]:
    """The fields as ``struct`` can take them, and whether that is less or other than what was there."""
    known = {name: value for name, value in fields.items() if _is_known(struct, name, value)}
    changes = {name: _fitting_value(struct, name, value) for name, value in known.items()}
    missing = {name: value for name, value in _WHERE_MISSING.get(struct, {}).items() if name not in known}
    changed = len(known) < len(fields) or bool(missing) or any(changes[name] is not known[name] for name in known)
    return {**changes, **missing}, changed


def _is_known(struct: Any, name: str, value: Raw) -> bool:
    if name == "fidelity" or (struct is TokenUsage and name == "provider"):
        return name in struct.__struct_fields__ and bytes(value).startswith(b"{")
    return name in struct.__struct_fields__ or name == "type"


def _fitting_value(struct: Any, name: str, value: Raw) -> Raw:
    """The same object if the field can hold it as it stands."""
    if name in _NEAREST_WORD and (words := _closed_words(struct, name)):
        return value if _string(value) in words else _NEAREST_WORD[name]
    try:
        if struct is SessionMeta and name == "tools":
            return _fitting_list(ToolDefinition, value)
        return _fitting_object(_NESTED[name], value) if name in _NESTED else value
    except msgspec.DecodeError:
        return value


def _fitting_object(struct: Any, value: Raw) -> Raw:
    fields = {name: inner for name, inner in _fields.decode(value).items() if not _is_null(inner)}
    fitting, changed = _fitting(struct, fields)
    return Raw(msgspec.json.encode(fitting)) if changed else value


def _fitting_list(struct: Any, value: Raw) -> Raw:
    items = msgspec.json.decode(value, type=list[Raw])
    fitting = [_fitting_object(struct, item) for item in items]
    changed = any(new is not old for new, old in zip(fitting, items, strict=True))
    return Raw(msgspec.json.encode(fitting)) if changed else value


@cache
def _closed_words(struct: Any, name: str) -> frozenset[str]:
    """The words a field may hold; empty when it is free text."""
    hint = next(field.type for field in msgspec.structs.fields(struct) if field.name == name)
    choices = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is not Literal else (hint,)
    return frozenset(word for choice in choices if get_origin(choice) is Literal for word in get_args(choice))


def _string(value: Raw) -> str | None:
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.DecodeError:
        return None


def _is_null(value: Raw) -> bool:
    return bytes(value) == b"null"


def _own_fidelity(payload: Payload) -> Payload:
    """Detach the opaque bytes from the line's buffer and minify them, once (P5)."""
    for name in ("fidelity", "provider"):
        value = getattr(payload, name, None)
        if isinstance(value, Raw):
            opaque = minify(bytes(value))
            if not opaque.startswith(b"{"):
                raise msgspec.DecodeError("opaque data is not an object")
            if not opaque.isascii():
                opaque.decode()  # msgspec does not look into Raw; bytes that are not UTF-8 must take the slow road
            msgspec.structs.force_setattr(payload, name, Raw(opaque))
    return payload


# --- opaque bytes -------------------------------------------------------------------------------


def minify(data: bytes) -> bytes:
    """Remove white space between JSON tokens; key order, number literals and strings stay as they are.

    Raises:
        msgspec.DecodeError: this is no JSON, or holds lone surrogate escapes.
    """
    return msgspec.json.format(data, indent=-1)


def fidelity_bytes(value: dict[str, Any] | bytes | str) -> Fidelity:
    """Opaque provider data as it is stored: from an object to encode or JSON text to keep.

    Lone surrogates become U+FFFD here, where they enter (P12).

    Raises:
        CodecError: the text is not a JSON object.

    Example::

        bytes(fidelity_bytes('{ "signature": "AB" }'))  # b'{"signature":"AB"}'
    """
    if isinstance(value, dict):
        try:
            return Raw(msgspec.json.encode(value))
        except UnicodeEncodeError:
            return Raw(msgspec.json.encode(scrub_value(value)))
    data = _readable(scrub(value).encode() if isinstance(value, str) else value)
    try:
        _fields.decode(data)
        return Raw(minify(data))
    except (msgspec.DecodeError, RecursionError) as error:
        raise CodecError(f"opaque provider data must be a JSON object: {error}") from None


def fidelity_fields(fidelity: Fidelity) -> dict[str, Raw]:
    """The top-level members of opaque data, each still raw; empty when there is none.

    Only the adapter that wrote the data may look inside.
    """
    if isinstance(fidelity, UnsetType):
        return {}
    return _fields.decode(fidelity)


# --- damaged text ---------------------------------------------------------------------------------

_SURROGATE_ESCAPE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def _readable(data: bytes) -> bytes:
    """Make an old line decodable: a BOM goes, bytes that are not UTF-8 and lone surrogate escapes become U+FFFD."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()
    if rb"\ud" not in data.lower():
        return data
    return _SURROGATE_ESCAPE.sub(lambda m: m[1] + (m[2] or rb"\ufffd"), data)


__all__ = ["decode", "encode", "encode_message", "fidelity_bytes", "fidelity_fields", "minify"]
