"""The Gemini protocol, configured for one model: Google's own API and the gateways that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec import Raw

from penguin.llm.adapter import StreamFold
from penguin.llm.known import known_of
from penguin.llm.providers.body_parts import extra_tools
from penguin.llm.providers.endpoint import STREAM_HEADERS
from penguin.llm.providers.gemini_body import USUAL_LEVELS, GeminiBody, GeminiSettings
from penguin.llm.providers.gemini_fold import GeminiFold, usage_counts
from penguin.llm.segments import Segments
from penguin.protocol.events import TokenCounts
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import Message, ThinkingLevel

_VERSION = "v1beta"


class Gemini:
    """Implements :class:`penguin.llm.adapter.Adapter`; ``base_url`` is the host, as for Google's own SDK."""

    def __init__(self, config: ModelConfig, base_url: str) -> None:
        self._config = config
        self._base_url = base_url
        self._body = GeminiBody(gemini_settings(config))

    def url(self) -> str:
        """The streaming method of the model; the API's version is added unless ``base_url`` ends in one."""
        parts = urlsplit(self._base_url)
        path = parts.path.rstrip("/")
        if path.rpartition("/")[2] not in {"v1", "v1beta", "v1alpha"}:
            path = f"{path}/{_VERSION}"
        model = self._config.model_id
        name = quote(model if "/" in model else f"models/{model}", safe="/:@")
        query = "&".join(part for part in (parts.query, "alt=sse") if part)
        return urlunsplit(parts._replace(path=f"{path}/{name}:streamGenerateContent", query=query))

    def headers(self) -> Mapping[str, str]:
        """The key goes into a header, never into the URL (L17)."""
        key = self._config.api_key
        return STREAM_HEADERS | ({"x-goog-api-key": key} if key else {})

    def body(
        self, history: Sequence[Message], *, max_tokens: int | None, thinking_level: ThinkingLevel | None
    ) -> bytes:
        """See :class:`GeminiBody`."""
        return self._body.build(history, max_tokens=max_tokens, thinking_level=thinking_level)

    def open_fold(self, segments: Segments) -> StreamFold:
        """See :class:`GeminiFold`."""
        return GeminiFold(segments, has_tools=bool(self._config.tools or extra_tools(self._config.extra_body)))

    def usage(self, raw: Raw | None) -> TokenCounts | None:
        """The prompt includes what came from the cache; thoughts are counted beside the reply."""
        try:
            usage = msgspec.json.decode(raw or b"{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return None
        cached, given, said = usage_counts(usage)
        return TokenCounts(cached, given - cached, said, given + said) if given else None


def gemini_settings(config: ModelConfig) -> GeminiSettings:
    """What the catalogue and the configuration say about the request body."""
    known = known_of(config)
    levels = known.thinking_levels
    return GeminiSettings(
        config.system_prompt,
        tuple(config.tools),
        vision=config.vision,
        thinking_levels=USUAL_LEVELS if levels is None else levels,
        thinking_control="budget" if known.thinking_control == "budget" else "level",
        thinks=None if levels is None else bool(levels),
        extra_body=config.extra_body,
    )
