"""Limits on what a task or a session may use, over its whole tree of subagents (E23)."""

from __future__ import annotations

import anyio
from msgspec import Struct

from penguin.protocol.events import TokenCounts, add_token_counts

_MILLION = 1_000_000


class Prices(Struct, frozen=True):
    """US dollars per million tokens, by class of ``TokenCounts``."""

    cache_read: float = 0.0
    cache_write: float = 0.0
    output: float = 0.0

    def cost(self, tokens: TokenCounts) -> float:
        """What these tokens cost, in US dollars."""
        return (
            tokens.cache_read * self.cache_read + tokens.cache_write * self.cache_write + tokens.output * self.output
        ) / _MILLION


class Limits(Struct, frozen=True):
    """What may be used; ``None`` is unlimited. ``seconds`` is wall time, ``usd`` US dollars."""

    turns: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return any(limit is not None for limit in (self.turns, self.tokens, self.usd, self.seconds))


class Budget:
    """What was used of some limits; one object is shared by a session and its subagents.

    Asked before each request: it refuses the one that *could* exceed a limit, taking for granted that
    it costs at least its input again.

    Example::

        budget = Budget(Limits(usd=0.50), prices)
        if refusal := budget.refusal(next_input=ledger.context_tokens):
            ...  # end the task
        budget.charge(usage.request, prices)
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.tokens = TokenCounts()
        self.turns = 0
        self.usd = 0.0
        self._started = anyio.current_time()

    def charge(self, tokens: TokenCounts, prices: Prices | None) -> None:
        """Count one request."""
        self.turns += 1
        self.tokens = add_token_counts(self.tokens, tokens)
        if prices is not None:
            self.usd += prices.cost(tokens)

    def refusal(self, next_input: int, prices: Prices | None) -> str | None:
        """Why the next request may not be sent, in words for people, or ``None``.

        Args:
            next_input: tokens the next request sends at least.
            prices: of the model it goes to; without them money is not limited.
        """
        limits = self.limits
        if limits.turns is not None and self.turns >= limits.turns:
            return f"{self.turns} of {limits.turns} requests are used"
        if limits.tokens is not None and self.tokens.total + next_input > limits.tokens:
            return f"{self.tokens.total} of {limits.tokens} tokens are used and the next request needs {next_input}"
        if limits.usd is not None and prices is not None:
            least = prices.cost(TokenCounts(cache_read=next_input))
            if self.usd + least > limits.usd:
                return f"${self.usd:.4f} of ${limits.usd:.4f} are used and the next request costs at least ${least:.4f}"
        elapsed = anyio.current_time() - self._started
        if limits.seconds is not None and elapsed >= limits.seconds:
            return f"{elapsed:.0f} of {limits.seconds:.0f} seconds are used"
        return None
