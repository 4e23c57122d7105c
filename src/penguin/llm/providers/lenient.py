"""Events as structs: a fast strict reading, and a patient one for servers that stray from the documents.

Almost every event has the documented types and is decoded in a microsecond. In one that does not, whatever
has an unusable type counts as absent, and the rest is still read.
"""

from __future__ import annotations

import functools
import json
import math
import types
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, Struct

from penguin.protocol.codec import fidelity_bytes, minify
from penguin.protocol.errors import CodecError
from penguin.protocol.messages import scrub

ABSENT: Final = Raw(b"null")
"""The default of raw members: one object, so that absence is an identity test."""

S = TypeVar("S", bound=Struct)


class NotJson(ValueError):
    """The data of an event is no JSON document."""


class EventReader(Generic[S]):
    """Reads the data of events into structs of one shape, whose fields must all have defaults.

    Example::

        EventReader(WireEvent).read(b'{"type":"error","message":7}').message  # "7"
    """

    def __init__(self, shape: type[S]) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder(shape)

    def read(self, data: bytes | Raw) -> S:
        """Decode one document.

        Raises:
            NotJson: with the parser's complaint.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = document(bytes(data))
        if isinstance(value, list):  # an error document wrapped in a list
            value = next(iter(value), None)
        return _struct(value if isinstance(value, dict) else {}, self._shape)


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


def kept(raw: Raw) -> Raw | None:
    """A provider's JSON object as it is stored; ``None`` for anything that is no object."""
    try:
        stored = fidelity_bytes(bytes(raw))
    except CodecError:
        return None
    return stored if isinstance(stored, Raw) else None


def members(raw: Raw | None) -> dict[str, Raw]:
    """The members of a JSON object, each still raw; empty for anything else."""
    try:
        return msgspec.json.decode(raw or b"{}", type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        return {}


def kept_members(raw: Raw) -> dict[str, Raw]:
    """The members of a JSON object as they are stored, minified and readable (P5, P12); empty for anything else."""
    return members(kept(raw))


def string(raw: Raw | None) -> str:
    """The text of a raw JSON string; empty for anything else."""
    try:
        return msgspec.json.decode(raw or b'""', type=str)
    except msgspec.DecodeError:
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


def _struct(value: dict[str, Any], shape: type[S]) -> S:
    wanted = ((name, value[wire], hint) for name, wire, hint in _fields(shape) if value.get(wire) is not None)
    read = ((name, _value(given, hint)) for name, given, hint in wanted)
    return shape(**{name: given for name, given in read if given is not None})


@functools.cache
def _fields(shape: type[Struct]) -> list[tuple[str, str, Any]]:
    """Name, name on the wire and type. Some servers stray in every event, and asking for types takes time."""
    hints = get_type_hints(shape)
    return [(field.name, field.encode_name, hints[field.name]) for field in msgspec.structs.fields(shape)]


def _value(value: Any, wanted: Any) -> Any:
    """``value`` as ``wanted``, or ``None``."""
    match get_origin(wanted):
        case origin if origin in {Union, types.UnionType}:
            read = (_value(value, choice) for choice in get_args(wanted) if choice is not types.NoneType)
            return next((each for each in read if each is not None), None)
        case origin if origin is list and isinstance(value, list):
            read = (_value(item, get_args(wanted)[0]) for item in value)
            return [item for item in read if item is not None]
        case origin if origin is dict and isinstance(value, dict):
            return {name: _value(item, get_args(wanted)[1]) for name, item in value.items()}
        case None:
            return _plain(value, wanted)
        case _:
            return None


def _plain(value: Any, wanted: Any) -> Any:
    match value:
        case _ if wanted is Any:
            return value
        case _ if wanted is Raw:
            return _raw(value)
        case dict() if isinstance(wanted, type) and issubclass(wanted, Struct):
            return _struct(value, wanted)
        case bool():
            return value if wanted is bool else None
        case str() if wanted is str:
            return value
        case int() | float() if wanted is str:
            return str(value)
        case int() | float() if wanted is int and math.isfinite(value) and value == int(value):
            return int(value)
        case str() if wanted is int and value.isdecimal():
            return int(value)
        case _:
            return None


def _raw(value: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (OverflowError, msgspec.MsgspecError):  # a number beyond 64 bits
        return Raw(json.dumps(value).encode())
