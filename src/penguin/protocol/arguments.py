"""The text of a call's arguments as a JSON object: one reading for whoever needs it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penguin.protocol.messages import scrub_value


def parse_arguments(text: str) -> dict[str, Any]:
    r"""The JSON object in ``text``; an empty text means no arguments, lone surrogates become U+FFFD.

    Raises:
        ValueError: it is not a JSON object; the text quotes the parser, with the position where it knows one.

    Example::

        parse_arguments('{"path": "a.txt"}')  # {"path": "a.txt"}
    """
    value = _value(text)
    if not isinstance(value, dict):
        raise ValueError(f"it must be one JSON object, not {_kind(value)}")  # noqa: TRY004 - the text is wrong, not a type
    return value


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        # The standard library reads escaped lone surrogates, and says where it stopped.
        return _slowly(text)


def _slowly(text: str) -> Any:
    try:
        return scrub_value(json.loads(text, parse_constant=_refuse_constant))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from None


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


def _kind(value: object) -> str:
    names: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
