"""What a tool call is about, in one line."""

from __future__ import annotations

import json
from typing import Any

from penguin.cli.render.text import one_line

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
    return "  ".join(f"{one_line(name)}={_short(value)}" for name, value in values.items())


def in_full(arguments: str) -> list[tuple[str, str]]:
    """Each argument with its whole value, for somebody who has to decide; raw text has the name ``arguments``."""
    values = _values(arguments)
    if values is None:
        return [("arguments", arguments)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in values.items()
    ]


def _values(arguments: str) -> dict[str, Any] | None:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _short(value: Any) -> str:
    text = one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
