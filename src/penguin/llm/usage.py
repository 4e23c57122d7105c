"""A provider's own numbers to ours (P4): what came from the cache, all other input, output with reasoning."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from penguin.protocol.events import TokenCounts


def chat_usage(raw: Raw | None) -> TokenCounts | None:
    """Read the ``usage`` of a Chat Completions server; ``None`` when it says nothing (missing, or zero input).

    Its input includes cached tokens and its output includes reasoning. Servers disagree on where
    the cached part stands, and a few report reasoning beside the output; the total tells.

    Example::

        chat_usage(Raw(b'{"prompt_tokens":7,"completion_tokens":1}')).total  # 8
    """
    if raw is None:
        return None
    try:
        usage = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
    given = _number(usage.get("prompt_tokens")) or _number(usage.get("input_tokens"))
    output = _number(usage.get("completion_tokens")) or _number(usage.get("output_tokens"))
    if not given:
        return None
    reasoning = _inside(usage, "completion_tokens_details", "reasoning_tokens")
    if reasoning and _number(usage.get("total_tokens")) == given + output + reasoning:
        output += reasoning
    cached = min(_cached(usage), given)
    return TokenCounts(cached, given - cached, output, given + output)


def anthropic_usage(raw: Raw | None) -> TokenCounts | None:
    """Read the ``usage`` of an Anthropic Messages server; ``None`` when it says nothing (missing, or zero input).

    Its input excludes what was read from the cache and what was written to it; its output includes thinking.

    Example::

        anthropic_usage(Raw(b'{"input_tokens":2,"cache_read_input_tokens":5,"output_tokens":1}')).total  # 8
    """
    if raw is None:
        return None
    try:
        usage = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
    read = _number(usage.get("cache_read_input_tokens"))
    other = _number(usage.get("input_tokens")) + _number(usage.get("cache_creation_input_tokens"))
    output = _number(usage.get("output_tokens"))
    return TokenCounts(read, other, output, read + other + output) if read + other else None


def _cached(usage: dict[str, Any]) -> int:
    return (
        _inside(usage, "prompt_tokens_details", "cached_tokens")
        or _number(usage.get("prompt_cache_hit_tokens"))  # DeepSeek
        or _number(usage.get("cached_tokens"))  # Moonshot
        or _inside(usage, "input_tokens_details", "cached_tokens")
    )


def _inside(usage: dict[str, Any], outer: str, inner: str) -> int:
    match usage.get(outer):
        case dict() as details:
            return _number(details.get(inner))
        case _:
            return 0


def _number(value: Any) -> int:
    match value:
        case bool():
            return 0
        case int() | float() if value > 0:
            return int(value)
        case _:
            return 0
