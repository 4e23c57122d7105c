"""The Chat Completions protocol, configured for one model: OpenAI and every server that speaks its dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit, urlunsplit

from msgspec import Raw
from msgspec.structs import replace

from penguin.llm import catalog
from penguin.llm.adapter import StreamFold
from penguin.llm.providers.openai_chat_body import ChatBody, ChatSettings
from penguin.llm.providers.openai_chat_fold import ChatFold
from penguin.llm.providers.text_calls import TextCallReader
from penguin.llm.segments import Segments
from penguin.llm.usage import chat_usage
from penguin.protocol.events import TokenCounts
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import Message, ThinkingLevel

_PATH = "/chat/completions"


class OpenAIChat:
    """Implements :class:`penguin.llm.adapter.Adapter`; ``base_url`` includes ``/v1`` as for OpenAI's own SDK."""

    def __init__(self, config: ModelConfig, base_url: str) -> None:
        self._config = config
        self._base_url = base_url
        self._body = ChatBody(chat_settings(config))

    def url(self) -> str:
        """``base_url`` with the path of the protocol; a query (``?api-version=…``) stays at the end."""
        parts = urlsplit(self._base_url)
        path = parts.path.rstrip("/")
        return urlunsplit(parts._replace(path=path if path.endswith(_PATH) else path + _PATH))

    def headers(self) -> Mapping[str, str]:
        """A bearer token where there is a key; compression would only delay the deltas."""
        key = self._config.api_key
        fixed = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}
        return fixed | ({"authorization": f"Bearer {key}"} if key else {})

    def body(
        self, history: Sequence[Message], *, max_tokens: int | None, thinking_level: ThinkingLevel | None
    ) -> bytes:
        """See :class:`ChatBody`."""
        return self._body.build(history, max_tokens=max_tokens, thinking_level=thinking_level)

    def open_fold(self, segments: Segments) -> StreamFold:
        """See :class:`ChatFold`."""
        return ChatFold(segments, self._text_calls())

    def usage(self, raw: Raw | None) -> TokenCounts | None:
        """See :func:`chat_usage`."""
        return chat_usage(raw)

    def _text_calls(self) -> Callable[..., TextCallReader] | None:
        known = {tool.name for tool in self._config.tools}
        mode = self._config.tool_calls
        if not known or mode == "native" or (mode == "auto" and not is_custom_endpoint(self._config)):
            return None
        return partial(TextCallReader, known, between_words=mode == "text")


def is_custom_endpoint(config: ModelConfig) -> bool:
    """Whether requests go to the user's own server (or one on this machine) and not to a provider's usual address."""
    entry = catalog.provider(config.provider)
    return entry is None or entry.local or (config.base_url or entry.base_url) != entry.base_url


def chat_settings(config: ModelConfig) -> ChatSettings:
    """What the catalogue and the configuration say about the request body."""
    model = catalog.lookup(config.provider, config.model_id)
    provider = catalog.provider(config.provider)
    levels = (model.thinking_levels if model else ()) or (provider.thinking_levels if provider else ())
    settings = ChatSettings(
        config.model_id,
        config.system_prompt,
        tuple(config.tools),
        vision=config.vision,
        thinking_levels=levels,
        text_calls=config.tool_calls == "text",
        extra_body=config.extra_body,
    )
    if provider is None:
        return settings
    return replace(
        settings,
        max_tokens_field=provider.max_tokens_field,
        thinking_style=provider.thinking_style,
        plain_content=provider.plain_content,
        returns_reasoning=provider.returns_reasoning,
    )
