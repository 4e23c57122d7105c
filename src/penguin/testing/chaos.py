"""A model that fails at random, but the same way for the same seed."""

from __future__ import annotations

import random
from typing import Final, TypeAlias

import anyio

from penguin.adapters import ClosingStream
from penguin.protocol.errors import ScriptError
from penguin.protocol.events import ErrorKind
from penguin.protocol.interfaces import (
    Emit,
    GenerateRequest,
    LLMInterface,
    LLMOutcome,
    ModelConfig,
    ModelFactory,
    SupportsHistory,
)
from penguin.protocol.messages import Message
from penguin.testing.turns import Fault, FaultStatus, fail

_Row: TypeAlias = tuple[FaultStatus, ErrorKind, int | None, float | None]

_PASSING: Final[tuple[_Row, ...]] = (
    ("timeout", "network", None, None),
    ("timeout", "idle_timeout", None, None),
    ("timeout", "overloaded", 503, None),
    ("timeout", "rate_limit", 429, 1.0),
    ("malformed", "malformed", None, None),
)
_FATAL: Final[tuple[_Row, ...]] = (
    ("failed", "auth", 401, None),
    ("failed", "quota", 429, None),
    ("failed", "bad_request", 400, None),
)
_LATEST_CUT: Final = 40


class ChaosModel:
    """Puts faults around another model: before the first word, or in the middle of a segment.

    The contract holds: cut segments are closed, and the inner model, which is really cancelled, forgets
    the attempt. Equal seeds make equal faults.

    Args:
        inner: The model that does the work.
        seed: A number, or a generator that several models share.
        fault_rate: Which part of the attempts fails, 0 to 1.
        max_delay: The longest wait before an attempt, in seconds.
        fatal: Also faults that are not retried.

    Attributes:
        faults: What was done so far, oldest first.

    Example::

        model = ChaosModel(ScriptedModel(turns), seed=7)
        factory = ChaosModel.around(script.factory(), seed=7)
    """

    def __init__(
        self,
        inner: LLMInterface,
        seed: int | random.Random,
        *,
        fault_rate: float = 0.3,
        max_delay: float = 0.0,
        fatal: bool = False,
    ) -> None:
        self.faults: list[Fault] = []
        self._inner = inner
        # Weak on purpose: these numbers must come out the same again.
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)  # noqa: S311
        self._fault_rate = fault_rate
        self._max_delay = max_delay
        self._rows = _PASSING + _FATAL if fatal else _PASSING

    @staticmethod
    def around(factory: ModelFactory, seed: int, *, fault_rate: float = 0.3) -> ModelFactory:
        """A factory whose models share one seed, so that a new context does not repeat the same faults."""
        shared = random.Random(seed)  # noqa: S311

        def new_context(config: ModelConfig) -> ChaosModel:
            return ChaosModel(factory(config), shared, fault_rate=fault_rate)

        return new_context

    def set_history(self, messages: list[Message]) -> None:
        """Hand the history to the inner model.

        Raises:
            ScriptError: It has no such ability.
        """
        if not isinstance(self._inner, SupportsHistory):
            raise ScriptError("the inner model cannot take over a history")
        self._inner.set_history(messages)

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        """Let the inner model run, or a fault strike."""
        delay = self._random.uniform(0, self._max_delay)
        fault = self._next_fault()
        if delay > 0:
            await anyio.sleep(delay)
        if fault is None:
            return await self._inner.stream_generate(request, emit)
        if fault.after == 0:
            self.faults.append(fault)
            return fault.outcome()
        return await self._cut(fault, request, emit)

    def _next_fault(self) -> Fault | None:
        # All numbers are drawn each time: whether a fault strikes must not shift the ones that follow.
        strikes = self._random.random() < self._fault_rate
        status, kind, http_status, retry_after = self._random.choice(self._rows)
        after = 0 if http_status is not None else self._random.randrange(_LATEST_CUT)
        if not strikes:
            return None
        return fail(status, kind, "chaos", http_status=http_status, retry_after=retry_after, after=after)

    async def _cut(self, fault: Fault, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        with anyio.CancelScope() as scope:
            cut = _Cut(fault.after or 0, ClosingStream(emit), scope)
            try:
                outcome = await self._inner.stream_generate(request, cut.emit)
            except BaseException:
                if not cut.struck:
                    raise
                cut.close(fault.status)
                raise
            # It came to its end without noticing: it has committed the turn, so the turn stands.
            cut.let_the_rest_pass()
            return outcome
        self.faults.append(fault)
        return fault.outcome()


class _Cut:
    """Cancels the scope after some messages and holds back what comes later."""

    def __init__(self, after: int, stream: ClosingStream, scope: anyio.CancelScope) -> None:
        self.struck = False
        self._left = after
        self._stream = stream
        self._scope = scope
        self._held: list[Message] = []

    def emit(self, message: Message) -> None:
        """Pass a message on, or hold it back."""
        if self.struck:
            self._held.append(message)
            return
        self._stream.emit(message)
        self._left -= 1
        if self._left <= 0:
            self.struck = True
            self._scope.cancel()

    def close(self, status: FaultStatus) -> None:
        """The inner model was cancelled: its own closing said "aborted", ours says what happened."""
        self._stream.close(status)

    def let_the_rest_pass(self) -> None:
        """The cut came too late."""
        for message in self._held:
            self._stream.emit(message)
