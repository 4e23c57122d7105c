"""Is a request legal? The rules of each protocol's request bodies, one module a protocol (E25).

Written from what the providers document and answer, not from the adapters of `penguin.llm`, which it
does not import: two authors have to make the same mistake before an illegal request goes unnoticed.
Where a provider is lenient and compatible servers are not (roles that alternate, arguments that are
JSON), the stricter rule counts.

`ScriptedProvider` runs it on every request and refuses an illegal one as the real provider would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penguin.testing.legality import anthropic_messages, gemini, openai_chat, openai_responses
from penguin.testing.legality.watches import PrefixWatch, SignatureWatch

_CHECKS: Final[dict[str, Callable[[dict[str, Any], str], list[str]]]] = {
    "openai-chat": openai_chat.check,
    "openai-responses": openai_responses.check,
    "anthropic-messages": anthropic_messages.check,
    "gemini": gemini.check,
}

PROTOCOLS: Final = tuple(_CHECKS)
"""The protocols there are rules for, by client type."""


def check(protocol: str, body: dict[str, Any], *, model: str = "") -> list[str]:
    """Every reason why a provider would refuse this request; empty is good.

    Args:
        protocol: One of `PROTOCOLS`.
        body: The parsed request body.
        model: The model, where the body does not name it (Gemini has it in the path).

    Raises:
        KeyError: There are no rules for this protocol.

    Example::

        check("anthropic-messages", {"model": "m", "max_tokens": 1, "messages": []})
        # ["messages: at least one message is required"]
    """
    return _CHECKS[protocol](body, model)


__all__ = ["PROTOCOLS", "PrefixWatch", "SignatureWatch", "check"]
