"""The Responses protocol, configured for one model: OpenAI and the servers that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw

from penguin.llm.adapter import StreamFold
from penguin.llm.known import known_of
from penguin.llm.providers.endpoint import bearer_headers, openai_url
from penguin.llm.providers.openai_responses_body import ResponsesBody, ResponsesSettings
from penguin.llm.providers.openai_responses_fold import ResponsesFold
from penguin.llm.segments import Segments
from penguin.llm.usage import chat_usage
from penguin.protocol.events import TokenCounts
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import THINKING_LEVELS, Message, ThinkingLevel

_PATH = "/responses"


class OpenAIResponses:
    """Implements :class:`penguin.llm.adapter.Adapter`; ``base_url`` includes ``/v1`` as for OpenAI's own SDK."""

    def __init__(self, config: ModelConfig, base_url: str) -> None:
        self._config = config
        self._base_url = base_url
        self._body = ResponsesBody(responses_settings(config))

    def url(self) -> str:
        """See :func:`openai_url`."""
        return openai_url(self._base_url, _PATH)

    def headers(self) -> Mapping[str, str]:
        """See :func:`bearer_headers`."""
        return bearer_headers(self._config.api_key)

    def body(
        self, history: Sequence[Message], *, max_tokens: int | None, thinking_level: ThinkingLevel | None
    ) -> bytes:
        """See :class:`ResponsesBody`."""
        return self._body.build(history, max_tokens=max_tokens, thinking_level=thinking_level)

    def open_fold(self, segments: Segments) -> StreamFold:
        """See :class:`ResponsesFold`."""
        return ResponsesFold(segments)

    def usage(self, raw: Raw | None) -> TokenCounts | None:
        """Input includes what came from the cache, output includes reasoning: as in Chat Completions."""
        return chat_usage(raw)


def responses_settings(config: ModelConfig) -> ResponsesSettings:
    """What the catalogue and the configuration say about the request body."""
    levels = known_of(config).thinking_levels
    return ResponsesSettings(
        config.model_id,
        config.system_prompt,
        tuple(config.tools),
        vision=config.vision,
        thinking_levels=THINKING_LEVELS if levels is None else levels,
        reasons=None if levels is None else bool(levels),
        extra_body=config.extra_body,
    )
