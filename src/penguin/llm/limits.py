"""How many tokens: an estimate of the input, corrected by what providers report, and the output cap (L11, L12)."""

from __future__ import annotations

from collections.abc import Iterable

from penguin.protocol.events import TokenCounts
from penguin.protocol.messages import (
    ImageUrl,
    InlineData,
    InlineThinking,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolCallOutput,
    ToolDefinition,
)

CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS = 1_500
SMALLEST_PLAUSIBLE_WINDOW = 4_096
MARGIN = 1_024
SMALLEST_CAP = 256


def output_cap(
    max_tokens: int | None,
    context_window: int | None,
    estimated_input: int,
    *,
    model_max_output: int | None = None,
    named: int | None = None,
) -> int | None:
    """The largest output to ask for, in tokens; ``None`` where the request should not say.

    ``min(max_tokens, context_window - estimated_input - margin)``, never more than the model can
    write, and never so little that nothing useful fits: the provider then says what is too long.
    ``named`` is what a person said of this model: it is asked for even where nobody knows the window.

    Example::

        output_cap(32_000, 8_192, 1_000)  # 6168
        output_cap(32_000, None, 1_000)  # None
        output_cap(32_000, None, 1_000, named=9_000)  # 9000
    """
    limits = [limit for limit in (max_tokens, model_max_output, named) if limit is not None and limit > 0]
    if not limits:
        return None
    if context_window is None or context_window < SMALLEST_PLAUSIBLE_WINDOW:
        return min(limits) if named else None
    return max(min(*limits, context_window - estimated_input - MARGIN), min(SMALLEST_CAP, *limits))


def characters(messages: Iterable[Message]) -> int:
    """How many characters the model reads in ``messages``; an image counts as a fixed number of tokens."""
    return sum(_characters(message) for message in messages)


def _characters(message: Message) -> int:
    image = IMAGE_TOKENS * CHARACTERS_PER_TOKEN
    match message.payload:
        case Text(text=text):
            return len(text)
        case Thinking(thinking=text):
            return len(text)
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case ToolCallOutput(output=output, images=images):
            return len(output) + image * len(images or ())
        case ImageUrl() | InlineData() | InlineThinking():
            return image
        case _:
            return 0


def fixed_characters(system_prompt: str | None, tools: Iterable[ToolDefinition]) -> int:
    """The characters every request begins with: system prompt and tool schemas."""
    schemas = sum(len(tool.name) + len(tool.description) + len(str(tool.parameters or "")) for tool in tools)
    return len(system_prompt or "") + schemas


class TokenEstimator:
    """Characters / 4, corrected by the usage of completed requests.

    Example::

        estimator = TokenEstimator(fixed=0)
        estimator.estimate(4_000)  # 1000
        estimator.learn(4_000, TokenCounts(cache_write=1_500, total=1_500))
        estimator.estimate(4_000)  # 1500
    """

    def __init__(self, fixed: int) -> None:
        self._fixed = fixed
        self._ratio = 1.0

    def estimate(self, spoken: int) -> int:
        """Tokens of a request whose messages have ``spoken`` characters."""
        return self._plain(spoken, self._ratio)

    def plain(self, spoken: int) -> int:
        """The same without any correction: a function of the messages alone."""
        return self._plain(spoken, 1.0)

    def learn(self, spoken: int, reported: TokenCounts) -> None:
        """Compare the input that was reported with what would have been estimated."""
        told = reported.cache_read + reported.cache_write
        guessed = self._plain(spoken, 1.0)
        if told > 0 and guessed > 0:
            # One odd report (a proxy that counts only new tokens, say) must not wreck the estimate.
            self._ratio = min(max(told / guessed, 0.5), 4.0)

    def _plain(self, spoken: int, ratio: float) -> int:
        return int((self._fixed + spoken) / CHARACTERS_PER_TOKEN * ratio)


def output_tokens(spoken: int) -> int:
    """An estimate of what the model wrote, in tokens; at least one for anything at all."""
    return -(-spoken // CHARACTERS_PER_TOKEN)
