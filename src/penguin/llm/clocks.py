"""The two clocks of a request (L5), on one cancel scope whose deadline moves."""

from __future__ import annotations

import math

import anyio

_PATIENCE = 5
_MOVE_AT_LEAST = 0.001


class Clocks:
    """Time to the first event, and idle time between events.

    Bytes that bring no output (keep-alive comments, empty deltas) show that the connection lives: they
    push the deadline back, but no further than five times ``seconds`` after the last output (ten minutes
    for the default of two). ``seconds <= 0`` turns the clocks off.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds if seconds > 0 else math.inf
        self.scope = anyio.CancelScope()
        self.events = 0
        self.heard = False
        self._last_output = self._moved_at = 0.0
        self._drain_until = math.inf

    def start(self) -> None:
        """The request is about to be sent."""
        self._last_output = anyio.current_time()
        self._set(self._last_output)

    def tick(self, events: int, *, output: bool) -> None:
        """Bytes came in, with this many events among them; ``output`` says that one of them brought some."""
        now = anyio.current_time()
        self.events += events
        if output:
            self.heard = True
            self._last_output = now
        # Moving a deadline costs as much as parsing a delta; a millisecond more or less is nothing to a clock.
        if now - self._moved_at >= _MOVE_AT_LEAST:
            self._set(now)

    def drain(self, seconds: float) -> None:
        """The reply is complete: what may still come (usage, the end mark) gets this long, from now, at most."""
        until = anyio.current_time() + seconds
        if until < self._drain_until:
            self._drain_until = until
            self._set(anyio.current_time())

    def go_on(self) -> None:
        """The reply was not complete after all."""
        if self._drain_until != math.inf:
            self._drain_until = math.inf
            self._set(anyio.current_time())

    def expired(self) -> bool:
        """Whether a clock ran out."""
        return self.scope.cancel_called

    def silence(self) -> float:
        """Seconds without output until a clock ran out."""
        return anyio.current_time() - self._last_output

    def _set(self, now: float) -> None:
        self._moved_at = now
        patience = self._last_output + self._seconds * _PATIENCE
        self.scope.deadline = min(now + self._seconds, patience, self._drain_until)
