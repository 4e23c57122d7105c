"""The one place where a message goes out: to the stream, the trace and the ledger."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penguin.engine.ledger import Ledger
from penguin.engine.ports import TracePort
from penguin.protocol.builders import is_partial
from penguin.protocol.events import add_token_counts
from penguin.protocol.interfaces import Emit
from penguin.protocol.messages import Message, TokenCounts, TokenUsage


class Recorder:
    """Keeps stream, trace and ledger in step because each message passes all of them at once.

    Everything here is synchronous: after a scope was cancelled every ``await`` raises again, and
    just then segments must be closed and the abort be recorded.
    """

    def __init__(
        self, feed: Emit, trace: TracePort, ledger: Ledger, charge: Callable[[TokenCounts], None] = lambda _: None
    ) -> None:
        self._feed = feed
        self._trace = trace
        self.ledger = ledger
        self._charge = charge

    def emit(self, message: Message) -> None:
        """To stream and trace; fragments and messages of children go to the stream only (T2)."""
        if message.origin or is_partial(message):
            self._feed(message)
            return
        self.record(message)
        self._feed(message)

    def emit_usage(self, message: Message, usage: TokenUsage) -> None:
        """A model knows the usage of one request; the session's total is added here."""
        self._charge(usage.request)
        total = add_token_counts(self.ledger.tokens, usage.request)
        self.emit(msgspec.structs.replace(message, payload=msgspec.structs.replace(usage, session=total)))

    def record_complete(self, message: Message) -> None:
        """To the trace only, fragments left out."""
        if not is_partial(message):
            self.record(message)

    def record(self, message: Message) -> None:
        """To the trace only."""
        self._trace.append(message)
        self.ledger.observe(message)

    def forward(self, message: Message) -> None:
        """To the stream only."""
        self._feed(message)
