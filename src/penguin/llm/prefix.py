"""Checking that a request only adds to the one before: what a provider's cache lives on (L13, T12)."""

from __future__ import annotations

from typing import Any

import msgspec

_BLOCKS = ("model", "system", "instructions", "systemInstruction", "tools")
_LISTS = ("messages", "input", "contents")
_MARKERS = frozenset({"cache_control"})


def changed_block(earlier: bytes, later: bytes) -> str | None:
    """The first block of ``earlier`` that ``later`` does not repeat, or ``None`` when it only adds to it.

    Cache-control markers and sampling parameters do not count. The last message of the earlier request
    may have grown, since words of one side that follow each other are joined.

    Example::

        changed_block(first_body, second_body)  # "messages[3]", "tools", or None
    """
    before, after = (_without_markers(msgspec.json.decode(body)) for body in (earlier, later))
    for name in _BLOCKS:
        if before.get(name) != after.get(name):
            return name
    for name in _LISTS:
        if name in before or name in after:
            return _changed_message(name, before.get(name, []), after.get(name, []))
    return None


def _changed_message(name: str, before: list[Any], after: list[Any]) -> str | None:
    for index, message in enumerate(before):
        if index >= len(after):
            return f"{name}[{index}]"
        last = index == len(before) - 1
        if message != after[index] and not (last and _grew(message, after[index])):
            return f"{name}[{index}]"
    return None


def _grew(message: Any, later: Any) -> bool:
    """Whether the later message begins with the parts of the earlier one."""
    if not isinstance(message, dict) or not isinstance(later, dict):
        return False
    for key in ("content", "parts"):
        old, new = message.get(key), later.get(key)
        if isinstance(old, list) and isinstance(new, list):
            return new[: len(old)] == old
    return False


def _without_markers(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_markers(item) for key, item in value.items() if key not in _MARKERS}
        case list():
            return [_without_markers(item) for item in value]
        case _:
            return value
