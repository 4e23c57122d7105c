"""The Chat Completions protocol, configured for one model: OpenAI and every server that speaks its dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import get_args

from msgspec import Raw
from msgspec.structs import replace

from penguin.llm import catalog
from penguin.llm.adapter import StreamFold
from penguin.llm.known import known_of
from penguin.llm.providers.endpoint import bearer_headers, is_custom_endpoint, openai_url
from penguin.llm.providers.openai_chat_body import ChatBody, ChatSettings, silences_thinking
from penguin.llm.providers.openai_chat_fold import ChatFold
from penguin.llm.providers.text_calls import TextCallReader
from penguin.llm.segments import Segments
from penguin.llm.usage import chat_usage
from penguin.protocol.events import TokenCounts
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import Message, ThinkingLevel

_PATH = "/chat/completions"
_STYLES: tuple[catalog.ThinkingStyle, ...] = get_args(catalog.ThinkingStyle)


class OpenAIChat:
    """Implements :class:`penguin.llm.adapter.Adapter`; ``base_url`` includes ``/v1`` as for OpenAI's own SDK."""

    def __init__(self, config: ModelConfig, base_url: str) -> None:
        self._config = config
        self._base_url = base_url
        self._is_custom = is_custom_endpoint(config)
        self._settings = chat_settings(config)
        self._body = ChatBody(self._settings)

    def url(self) -> str:
        """See :func:`openai_url`."""
        return openai_url(self._base_url, _PATH)

    def headers(self) -> Mapping[str, str]:
        """See :func:`bearer_headers`."""
        return bearer_headers(self._config.api_key)

    def body(
        self, history: Sequence[Message], *, max_tokens: int | None, thinking_level: ThinkingLevel | None
    ) -> bytes:
        """See :class:`ChatBody`."""
        return self._body.build(history, max_tokens=max_tokens, thinking_level=thinking_level)

    def remark(self, thinking_level: ThinkingLevel | None) -> str | None:
        """That a model thinks less than it was asked to, and what to do; see :class:`SupportsRemark`."""
        wanted = thinking_level not in {None, "none"} and bool(self._settings.thinking_levels)
        if not wanted or not silences_thinking(self._settings):
            return None
        change = "Set `client_type` of its entry to openai-responses"
        # Behind another address nobody knows whether there is more than Chat.
        way_out = f"{change}, if its server speaks that." if self._is_custom else f"{change}, or take it out."
        return (
            f"{self._config.model_id} did not think: over openai-chat its provider refuses thinking together with"
            f" tools. {way_out}"
        )

    def open_fold(self, segments: Segments) -> StreamFold:
        """See :class:`ChatFold`."""
        return ChatFold(segments, self._text_calls())

    def usage(self, raw: Raw | None) -> TokenCounts | None:
        """See :func:`chat_usage`."""
        return chat_usage(raw)

    def _text_calls(self) -> Callable[..., TextCallReader] | None:
        known = {tool.name for tool in self._config.tools}
        mode = self._config.tool_calls
        if not known or mode == "native" or (mode == "auto" and not self._is_custom):
            return None
        return partial(TextCallReader, known, between_words=mode == "text")


def chat_settings(config: ModelConfig) -> ChatSettings:
    """What the catalogue and the configuration say about the request body."""
    known, provider = known_of(config), catalog.provider(config.provider)
    settings = ChatSettings(
        config.model_id,
        config.system_prompt,
        tuple(config.tools),
        vision=config.vision,
        thinking_levels=known.thinking_levels or (),
        thinks_with_tools=known.chat_thinks_with_tools,
        text_calls=config.tool_calls == "text",
        extra_body=config.extra_body,
    )
    if provider is not None:
        settings = replace(
            settings,
            max_tokens_field=provider.max_tokens_field,
            thinking_style=provider.thinking_style,
            thinking_levels=provider.thinking_levels if known.thinking_levels is None else known.thinking_levels,
            plain_content=provider.plain_content,
            returns_reasoning=provider.returns_reasoning,
        )
    own = next((style for style in _STYLES if style == config.thinking_control), None)
    return settings if own is None else replace(settings, thinking_style=own)
