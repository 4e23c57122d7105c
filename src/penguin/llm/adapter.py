"""What a wire protocol has to provide: two pure parts and a few facts, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Raw, Struct

from penguin.llm.outcome import Rejection
from penguin.llm.segments import Segments
from penguin.llm.sse import StreamEvent
from penguin.protocol.events import TokenCounts
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import Message, ThinkingLevel


class Conclusion(Struct, frozen=True):
    """What a stream came to.

    ``delivered``: the terminal event came. ``rejection``: the provider turned the request down.
    ``unreadable``: what could not be parsed. ``cut_off``: the output limit or a filter fell inside
    a call; ``filtered``: it was the filter.
    ``refusal``: the model's or provider's reason for refusing. ``note``: a remark for the user;
    ``at_limit``: it is about the output limit. ``usage``: the provider's own numbers.
    """

    delivered: bool = False
    rejection: Rejection | None = None
    unreadable: str = ""
    cut_off: bool = False
    filtered: bool = False
    refusal: str = ""
    note: str | None = None
    at_limit: bool = False
    usage: Raw | None = None


class StreamFold(Protocol):
    """The state machine of one stream; emits through the segments it was made with."""

    def fold(self, event: StreamEvent) -> bool:
        """Take one event and say whether it brought output, not only a sign of life (L5); never raises."""
        ...

    def delivered(self) -> bool:
        """Whether the terminal event came: from here on the connection does not matter (L4)."""
        ...

    def over(self) -> bool:
        """Whether nothing more will be taken."""
        ...

    def conclude(self) -> Conclusion:
        """The stream has ended: let go of what was held back and say what it came to; called once."""
        ...


class Adapter(Protocol):
    """One wire protocol, configured for one model."""

    def url(self) -> str:
        """Where requests go."""
        ...

    def headers(self) -> Mapping[str, str]:
        """The headers of every request, the key included."""
        ...

    def body(
        self, history: Sequence[Message], *, max_tokens: int | None, thinking_level: ThinkingLevel | None
    ) -> bytes:
        """The request body; bytes of earlier messages never change."""
        ...

    def open_fold(self, segments: Segments) -> StreamFold:
        """A fresh state machine."""
        ...

    def usage(self, raw: Raw | None) -> TokenCounts | None:
        """The provider's numbers as ours; ``None`` when they say nothing."""
        ...


@runtime_checkable
class SupportsRemark(Protocol):
    """Optional ability of an adapter: say what it cannot do as it was asked."""

    def remark(self, thinking_level: ThinkingLevel | None) -> str | None:
        """What a user should know of a request at this level that goes out differently; said once a context."""
        ...


AdapterFactory = Callable[[ModelConfig, str], Adapter]
"""Makes an adapter of a configuration and the base URL that applies."""
