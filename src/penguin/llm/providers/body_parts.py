"""What request bodies of several protocols have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from penguin.llm.providers.lenient import kept
from penguin.protocol.messages import THINKING_LEVELS, ThinkingLevel, scrub

_DEEPEST = 200
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")


def valid_arguments(arguments: str) -> str:
    """The arguments as they may be sent: nothing is ``{}``, text that is no JSON object is wrapped (L10)."""
    if arguments.strip() in {"", "{}"}:
        return "{}"
    if not _is_deep(arguments):
        if _is_object(arguments):
            return arguments
        # Escaped lone surrogates become U+FFFD (P12).
        readable = kept(Raw(scrub(arguments).encode()))
        if readable is not None:
            return bytes(readable).decode()
    return msgspec.json.encode({"unparsable_arguments": scrub(arguments)}).decode()


def _is_object(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _is_deep(arguments: str) -> bool:
    """Whether they are nested deeper than is sent back.

    A parser's own limit depends on how deep its caller stands: a resumed session could send other bytes (T12).
    """
    if arguments.count("[") + arguments.count("{") <= _DEEPEST:
        return False
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_JSON_STRING.sub("", arguments)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > _DEEPEST


def legal_tool_name(name: str) -> str:
    """A name as every provider accepts it: models also call tools that cannot exist."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "tool"


def extra_tools(extra_body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tools of an entry's own, in the protocol's form; what cannot be a tool is left out.

    Example::

        extra_tools({"tools": [{"type": "web_search"}]})  # [{"type": "web_search"}]
    """
    given = extra_body.get("tools")
    return [tool for tool in given if isinstance(tool, dict)] if isinstance(given, list) else []


def nearest_level(wanted: ThinkingLevel, accepted: Sequence[ThinkingLevel]) -> ThinkingLevel:
    """The accepted level closest to ``wanted``, the lower one of two; some thinking never becomes none.

    Example::

        nearest_level("medium", ["low", "high"])  # "low"
    """
    candidates = [level for level in THINKING_LEVELS if level in accepted]
    if wanted != "none":
        candidates = [level for level in candidates if level != "none"] or candidates
    return min(candidates, key=lambda level: abs(THINKING_LEVELS.index(level) - THINKING_LEVELS.index(wanted)))


def encode(value: Any) -> bytes:
    """Minified JSON; a lone surrogate costs a character, never the request."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_scrubbed(value))


def _scrubbed(value: Any) -> Any:
    match value:
        case str():
            return scrub(value)
        case list() | tuple():
            return [_scrubbed(item) for item in value]
        case dict():
            return {_scrubbed(key): _scrubbed(item) for key, item in value.items()}
        case _:
            return value
