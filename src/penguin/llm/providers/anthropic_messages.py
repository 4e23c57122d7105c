"""The Anthropic Messages protocol, configured for one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit, urlunsplit

from msgspec import Raw

from penguin.llm.adapter import StreamFold
from penguin.llm.known import known_of
from penguin.llm.providers.anthropic_messages_body import USUAL_MAX_TOKENS, MessagesBody, MessagesSettings
from penguin.llm.providers.anthropic_messages_fold import MessagesFold
from penguin.llm.providers.endpoint import STREAM_HEADERS, is_custom_endpoint
from penguin.llm.segments import Segments
from penguin.llm.usage import anthropic_usage
from penguin.protocol.events import TokenCounts
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import THINKING_LEVELS, Message, ThinkingLevel

VERSION = "2023-06-01"
"""The version of the protocol, sent with each request."""

_INTERLEAVED = "interleaved-thinking-2025-05-14"


class AnthropicMessages:
    """Implements :class:`penguin.llm.adapter.Adapter`; ``base_url`` is the host, as for Anthropic's own SDK."""

    def __init__(self, config: ModelConfig, base_url: str) -> None:
        self._config = config
        self._base_url = base_url
        self._settings = messages_settings(config)
        self._body = MessagesBody(self._settings)

    def url(self) -> str:
        """The host with the path of the protocol; one that already ends in ``/v1`` is understood too."""
        parts = urlsplit(self._base_url)
        path = parts.path.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        return urlunsplit(parts._replace(path=f"{path}/v1/messages"))

    def headers(self) -> Mapping[str, str]:
        """The key and the version; older models think between tool calls only when asked by a header."""
        headers = STREAM_HEADERS | {"anthropic-version": VERSION}
        if self._config.api_key:
            headers["x-api-key"] = self._config.api_key
        if self._settings.thinking_control == "budget" and not is_custom_endpoint(self._config):
            headers["anthropic-beta"] = _INTERLEAVED
        return headers

    def body(
        self, history: Sequence[Message], *, max_tokens: int | None, thinking_level: ThinkingLevel | None
    ) -> bytes:
        """See :class:`MessagesBody`."""
        return self._body.build(history, max_tokens=max_tokens, thinking_level=thinking_level)

    def open_fold(self, segments: Segments) -> StreamFold:
        """See :class:`MessagesFold`."""
        return MessagesFold(segments)

    def usage(self, raw: Raw | None) -> TokenCounts | None:
        """See :func:`anthropic_usage`."""
        return anthropic_usage(raw)


def messages_settings(config: ModelConfig) -> MessagesSettings:
    """What the catalogue and the configuration say about the request body."""
    known = known_of(config)
    return MessagesSettings(
        config.model_id,
        config.system_prompt,
        tuple(config.tools),
        vision=config.vision,
        usual_max_tokens=min(config.max_tokens or USUAL_MAX_TOKENS, USUAL_MAX_TOKENS),
        thinking_control=known.thinking_control,
        thinking_levels=THINKING_LEVELS if known.thinking_levels is None else known.thinking_levels,
        extra_body=config.extra_body,
    )
