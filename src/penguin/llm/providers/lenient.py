"""Events as structs: a fast strict reading, and a patient one for servers that stray from the documents.

Almost every event has the documented types and is decoded in a microsecond. In one that does not, whatever
has an unusable type counts as absent, and the rest is still read.
"""

from __future__ import annotations

import json
import math
import types
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, Struct

from penguin.llm.providers.openai_chat_wire import document
from penguin.protocol.codec import fidelity_bytes
from penguin.protocol.errors import CodecError

ABSENT: Final = Raw(b"null")
"""The default of raw members: one object, so that absence is an identity test."""

S = TypeVar("S", bound=Struct)


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
        return _struct(value if isinstance(value, dict) else {}, self._shape)


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


def string(raw: Raw | None) -> str:
    """The text of a raw JSON string; empty for anything else."""
    try:
        return msgspec.json.decode(raw or b'""', type=str)
    except msgspec.DecodeError:
        return ""


def _struct(value: dict[str, Any], shape: type[S]) -> S:
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(shape)}
    hints = get_type_hints(shape)
    read = {name: _value(value[wire], hints[name]) for name, wire in fields.items() if value.get(wire) is not None}
    return shape(**{name: given for name, given in read.items() if given is not None})


def _value(value: Any, wanted: Any) -> Any:
    """``value`` as ``wanted``, or ``None``."""
    if get_origin(wanted) in {Union, types.UnionType}:
        (wanted,) = (choice for choice in get_args(wanted) if choice is not types.NoneType)
    if get_origin(wanted) is list:
        (each,) = get_args(wanted)
        read = [_value(item, each) for item in value] if isinstance(value, list) else []
        return [item for item in read if item is not None]
    match value:
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
