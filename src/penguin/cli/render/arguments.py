"""What a tool call is about, in one line."""

from __future__ import annotations

import json
from typing import Any

from penguin.cli.render.text import one_line
from penguin.protocol.arguments import parse_arguments

# The argument that says most comes alone, the first of these that is there.
_TELLING = ("cmd", "command", "file_path", "path", "source", "url", "prompt")
_LONG = 60


def about(arguments: str) -> str:
    """The telling argument of a call, or all of them as ``name=value``, or the raw text when it is no JSON object.

    Example::

        about('{"cmd": "pytest -q", "description": "run tests"}')  # "pytest -q"
    """
    values = _values(arguments)
    if values is None:
        return one_line(arguments)
    for name in _TELLING:
        if isinstance(values.get(name), str):
            return one_line(values[name])
    try:
        return "  ".join(f"{one_line(name)}={_short(value)}" for name, value in values.items())
    except RecursionError:  # what was read may still be nested too deeply to be written
        return one_line(arguments)


def in_full(arguments: str) -> list[tuple[str, str]]:
    """Each argument with its whole value, for somebody who has to decide; raw text has the name ``arguments``."""
    values = _values(arguments)
    if values is None:
        return [("arguments", arguments)]
    try:
        return [(name, _text(value)) for name, value in values.items()]
    except RecursionError:
        return [("arguments", arguments)]


def _values(arguments: str) -> dict[str, Any] | None:
    try:
        return parse_arguments(arguments)
    except ValueError:
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = one_line(_text(value))
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
