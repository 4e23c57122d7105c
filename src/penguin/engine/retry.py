"""Whether, how long and what is announced before a failed attempt is tried again (E13, E14)."""

from __future__ import annotations

import anyio
from msgspec import Struct

from penguin.protocol.interfaces import LLMOutcome


class RetryPolicy(Struct, frozen=True):
    """Numbers of the ladder; waits are in seconds.

    ``longest_server_wait`` bounds what a provider's ``Retry-After`` may ask for.
    """

    retries: int = 5
    base: float = 2.0
    ceiling: float = 30.0
    longest_server_wait: float = 120.0
    cut_off_retries: int = 2


class Rung(Struct, frozen=True):
    """One wait before the next attempt: announced and slept by the same number."""

    seconds: float

    @property
    def announced_ms(self) -> int:
        """What ``request_end.retry_in_ms`` says."""
        return round(self.seconds * 1000)

    async def wait(self, skip: anyio.Event) -> None:
        """Sleep, or less when somebody wants the next attempt now."""
        with anyio.move_on_after(self.seconds):
            await skip.wait()


class RetryLadder:
    """Climbs one rung for each failed attempt of a turn until the rungs are used up.

    Example::

        ladder = RetryLadder(RetryPolicy())
        rung = ladder.climb(outcome)   # None: give up
        if rung:
            await rung.wait(skip)
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._cuts = 0

    def climb(self, outcome: LLMOutcome) -> Rung | None:
        """The wait before the next attempt, or ``None`` when there is none."""
        if outcome.status not in ("timeout", "malformed"):
            return None
        if outcome.cut_off:
            self._cuts += 1
            return Rung(0.0) if self._cuts <= self._policy.cut_off_retries else None
        self._failures += 1
        if self._failures > self._policy.retries:
            return None
        return Rung(max(self._own_wait(), self._server_wait(outcome)))

    def _own_wait(self) -> float:
        return min(self._policy.base**self._failures, self._policy.ceiling)

    def _server_wait(self, outcome: LLMOutcome) -> float:
        asked = outcome.error.retry_after if outcome.error else None
        return min(asked or 0.0, self._policy.longest_server_wait)
