"""Lines to messages and back.

Encoding lives with the message (``message.line``); this module decodes. The fast road decodes a
small header, then the payload by its tag. Whatever the fast road refuses — an old dialect, unknown
fields, unknown words, lone surrogates — takes the slow road, which reads what it can and keeps the
line as it stands, so that copying a record never changes it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType

from penguin.protocol.errors import CodecError
from penguin.protocol.messages import (
    EventPayload,
    Fidelity,
    Message,
    MessageType,
    ModelPayload,
    OmniMessage,
    Payload,
    SessionMeta,
    UnknownPayload,
    encode_message,
)


class _Header(Struct, forbid_unknown_fields=True):
    type: MessageType
    payload: Raw
    timestamp: str = ""
    origin: list[str] | None = None


class _LenientHeader(_Header):
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

_STATUS_WORDS = frozenset({"completed", "failed", "aborted", "timeout", "malformed"})
_DECISION_WORDS = frozenset({"allow", "deny"})


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
    data = line.encode("utf-8", "replace") if isinstance(line, str) else line
    try:
        header = _header.decode(data)
        if header.timestamp:
            payload = _payloads[header.type].decode(header.payload)
            return OmniMessage(header.timestamp, header.type, _own_fidelity(payload), header.origin or None)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return _decode_slowly(data, line_number, default_timestamp)


def _decode_slowly(data: bytes, line_number: int | None, default_timestamp: str | None) -> Message:
    data = _readable(data)
    try:
        header = _lenient_header.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CodecError(_reason(data, error), line_number) from None
    timestamp = header.timestamp or default_timestamp
    if timestamp is None:
        raise CodecError("the envelope has no timestamp", line_number)
    payload, line_is_needed = _lenient_payload(header.type, bytes(header.payload))
    message: Message = OmniMessage(timestamp, header.type, payload, header.origin or None)
    if line_is_needed or _has_unknown_envelope_fields(data):
        message.__dict__["line"] = _with_timestamp(data, timestamp) if not header.timestamp else minify(data)
    return message


def _reason(data: bytes, error: Exception) -> str:
    if not data.strip():
        return "the line is empty"
    if not data.lstrip().startswith(b"{"):
        return "the line is not a JSON object"
    return f"not an OmniMessage: {error}"


def _with_timestamp(data: bytes, timestamp: str) -> bytes:
    fields = _fields.decode(data)
    return msgspec.json.encode({"timestamp": timestamp, **fields})


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
    known = set(struct.__struct_fields__) | {"type"}
    translated = _translate_dialect(tag, fields, known)
    kept = {name: value for name, value in translated.items() if name in known}
    unknown_fields = translated.keys() - known
    renamed = _read_words(kept)
    _drop_nulls(struct, kept)
    try:
        payload = msgspec.json.decode(msgspec.json.encode(kept), type=struct)
    except msgspec.DecodeError:
        return UnknownPayload(tag, Raw(minify(raw))), True
    return _own_fidelity(payload), bool(unknown_fields) or renamed


def _translate_dialect(tag: str, fields: dict[str, Raw], known: set[str]) -> dict[str, Raw]:
    """Older records: ``signature``/``phase`` become fidelity (P6), ``error_message`` an error object (P3)."""
    fields = dict(fields)
    if "fidelity" in known:
        old = {name: fields.pop(name) for name in ("signature", "phase") if name in fields}
        old = {name: value for name, value in old.items() if bytes(value) != b"null"}
        if old and "fidelity" not in fields:
            fields["fidelity"] = Raw(msgspec.json.encode(old))
    if tag == "request_end" and "error_message" in fields and "error" not in fields:
        message = fields.pop("error_message")
        fields["error"] = Raw(b'{"kind":"unknown","message":' + bytes(message) + b"}")
    if tag == "partial_tool_call":
        fields.setdefault("arguments", Raw(b'""'))
    return fields


def _read_words(fields: dict[str, Raw]) -> bool:
    """Words of other dialects in closed sets are read as the nearest of ours; says whether any was."""
    renamed = False
    for name, words, fallback in (
        ("stop_reason", _STATUS_WORDS, b'"failed"'),
        ("status", _STATUS_WORDS, b'"failed"'),
        ("decision", _DECISION_WORDS, b'"deny"'),
    ):
        value = bytes(fields.get(name, b"null"))
        if value != b"null" and value.strip(b'"').decode("ascii", "replace") not in words:
            fields[name] = Raw(fallback)
            renamed = True
    return renamed


def _drop_nulls(struct: Any, fields: dict[str, Raw]) -> None:
    for name in [name for name, value in fields.items() if bytes(value) == b"null"]:
        if (struct.__name__, name) != ("Abort", "reason"):
            del fields[name]


def _own_fidelity(payload: Payload) -> Payload:
    """Detach the opaque bytes from the line's buffer and minify them, once (P5)."""
    for name in ("fidelity", "provider"):
        value = getattr(payload, name, None)
        if isinstance(value, Raw):
            msgspec.structs.force_setattr(payload, name, Raw(minify(bytes(value))))
    return payload


# --- opaque bytes -------------------------------------------------------------------------------

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[ \t\r\n]+', re.DOTALL)


def minify(data: bytes) -> bytes:
    """Remove white space between JSON tokens; key order, number literals and strings stay as they are."""
    try:
        return msgspec.json.format(data, indent=-1)
    except msgspec.DecodeError:
        # msgspec refuses lone surrogate escapes, which a provider may well send.
        return _TOKEN.sub(lambda match: match[0] if match[0].startswith(b'"') else b"", data)


def fidelity_bytes(value: dict[str, Any] | bytes | str) -> Fidelity:
    """Opaque provider data as it is stored: from an object to encode or JSON text to keep.

    Example::

        bytes(fidelity_bytes('{ "signature": "AB" }'))  # b'{"signature":"AB"}'
    """
    if isinstance(value, dict):
        return Raw(msgspec.json.encode(value))
    return Raw(minify(value.encode() if isinstance(value, str) else value))


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
