"""The loop of one session: from a prompt to the end of its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from penguin.engine.inbox import Inbox, SteeringTicket
from penguin.engine.ledger import Ledger
from penguin.engine.ports import TracePort
from penguin.engine.recorder import Recorder
from penguin.engine.retry import RetryLadder, RetryPolicy
from penguin.engine.tool_desk import ToolDesk
from penguin.engine.turn import Turn, TurnSettings
from penguin.protocol.builders import abort, assistant_text
from penguin.protocol.errors import SessionBusy
from penguin.protocol.events import ErrorDetail
from penguin.protocol.interfaces import ApproveFn, Emit, EnvironmentInterface, LLMInterface
from penguin.protocol.messages import Message, ThinkingLevel, TokenCounts

TaskStop = Literal["completed", "failed", "aborted", "turn_limit", "budget"]

INTERRUPTED = "aborted by user"
HOST_CANCELLED = "cancelled by the host program"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a task ended.

    ``text`` is the assistant's last words, ``usage`` the tokens of this task, ``turns`` the committed
    requests of it. ``trace_error`` says in words what is not safely on disk.
    """

    stop_reason: TaskStop
    text: str = ""
    usage: TokenCounts = field(default_factory=TokenCounts)
    turns: int = 0
    error: ErrorDetail | None = None
    trace_error: str | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits of a task; ``max_turns`` of ``None`` means no limit."""

    max_turns: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)


class ContextEngine:
    """Drives one session: one task at a time.

    It knows messages, a model, an environment and a trace; nothing of providers, tools or terminals.

    Example::

        engine = ContextEngine(model, environment, trace, feed=print)
        result = await engine.run([user_text("hi")], approve=None)
    """

    def __init__(
        self,
        model: LLMInterface,
        environment: EnvironmentInterface,
        trace: TracePort,
        *,
        feed: Emit,
        ledger: Ledger | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        self._model = model
        self._environment = environment
        self._trace = trace
        self._settings = settings or EngineSettings()
        self._recorder = Recorder(feed, trace, ledger or Ledger())
        self.inbox = Inbox()
        self._scope: anyio.CancelScope | None = None
        self._turn: Turn | None = None
        self._tokens_before = TokenCounts()
        self._task_turns = 0
        self._stop_reason = INTERRUPTED

    @property
    def ledger(self) -> Ledger:
        """What has been said and done in this context."""
        return self._recorder.ledger

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        return self._scope is not None

    def open_context(self, meta: Message) -> None:
        """Record the configuration of a new context; it reaches the disk with the first real record."""
        self._recorder.record(meta)

    async def run(
        self,
        prompt: Sequence[Message],
        *,
        approve: ApproveFn | None = None,
        thinking_level: ThinkingLevel | None = None,
        interrupted: str | None = None,
    ) -> TaskResult:
        """Run one task to its end.

        ``interrupted`` is the reason when the task was stopped before it began: its prompt is kept.

        Trouble with model, tools, network or disk is a message and a result, never an exception.

        Raises:
            SessionBusy: a task is already running.
        """
        if self._scope is not None:
            raise SessionBusy("a task is already running in this session; wait for its end, steer it or interrupt it")
        self._scope, self._turn = anyio.CancelScope(), None
        self._tokens_before, self._task_turns = self.ledger.tokens, 0
        if interrupted is not None:
            self.interrupt(interrupted)
        result: TaskResult | None = None
        try:
            with self._scope:
                result = await self._task(prompt, approve, TurnSettings(thinking_level))
            if result is None:
                result = self._conclude(self._stop_reason)
        finally:
            # Reached without a result only when the host cancelled us: record it, then let it go on.
            if result is None:
                self._conclude(HOST_CANCELLED)
            self.inbox.drop()
            self._scope = None
        await self._make_durable()
        return self._with_trace_error(result)

    def interrupt(self, reason: str = INTERRUPTED) -> None:
        """Stop the running task; safe from any task of the same event loop, at any time.

        ``reason`` is what the ``abort`` record says.
        """
        if self._scope is not None:
            self._stop_reason = reason
            self._scope.cancel()

    def steer(self, messages: Sequence[Message]) -> SteeringTicket | None:
        """Queue words for the running task; ``None`` when none runs."""
        return self.inbox.steer(messages) if self.busy else None

    def skip_retry_wait(self) -> None:
        """Fire the next attempt now; the count of retries stays."""
        if self._turn is not None:
            self._turn.skip_wait()

    # --- the task -----------------------------------------------------------------------------------

    async def _task(self, prompt: Sequence[Message], approve: ApproveFn | None, settings: TurnSettings) -> TaskResult:
        for message in prompt:
            self._recorder.record(message)
        while not self._at_turn_limit():
            await self._trace.sync()
            if self._trace.lost:
                return self._result(
                    "failed", ErrorDetail("unknown", f"the trace cannot be written: {self._trace.error}")
                )
            turn = await self._take_turn(approve, settings)
            if turn.outcome is None or turn.outcome.status != "completed":
                return self._given_up(turn)
            if not self._deliver_waiting() and not self.ledger.asked:
                return self._result("completed")
        return self._limit_reached()

    async def _take_turn(self, approve: ApproveFn | None, settings: TurnSettings) -> Turn:
        def open_desk(tasks: TaskGroup) -> ToolDesk:
            return ToolDesk(self._environment, self._recorder, approve, tasks)

        self._turn = Turn(self._model, self._recorder, open_desk, RetryLadder(self._settings.retry), settings)
        await self._turn.run()
        self._task_turns += 1
        return self._turn

    def _deliver_waiting(self) -> bool:
        """Drain the inbox into the next input; whether there was anything."""
        waiting = self.inbox.drain()
        for message in waiting:
            self._recorder.emit(message)
        return bool(waiting)

    def _at_turn_limit(self) -> bool:
        limit = self._settings.max_turns
        return limit is not None and self._task_turns >= limit

    # --- endings ------------------------------------------------------------------------------------

    def _limit_reached(self) -> TaskResult:
        notice = f"[stopped: the limit of {self._settings.max_turns} turns for one task is reached]"
        self._recorder.emit(assistant_text(notice, stop_reason="failed"))
        return self._result("turn_limit")

    def _given_up(self, turn: Turn) -> TaskResult:
        error = turn.outcome.error if turn.outcome else None
        return self._result("failed", error.detail() if error else None)

    def _conclude(self, reason: str) -> TaskResult:
        """The interrupted task's last records. Synchronous: every await would raise again."""
        if self._turn is not None:
            self._turn.conclude_interruption()
        self._recorder.emit(abort(reason))
        return self._result("aborted")

    def _result(self, stop_reason: TaskStop, error: ErrorDetail | None = None) -> TaskResult:
        turn = self._turn
        usage = _difference(self.ledger.tokens, self._tokens_before)
        return TaskResult(stop_reason, turn.text if turn else "", usage, self._task_turns, error)

    async def _make_durable(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await self._trace.sync()

    def _with_trace_error(self, result: TaskResult) -> TaskResult:
        if self._trace.error is None:
            return result
        return TaskResult(result.stop_reason, result.text, result.usage, result.turns, result.error, self._trace.error)


def _difference(after: TokenCounts, before: TokenCounts) -> TokenCounts:
    return TokenCounts(
        after.cache_read - before.cache_read,
        after.cache_write - before.cache_write,
        after.output - before.output,
        after.total - before.total,
    )


__all__ = ["ContextEngine", "EngineSettings", "TaskResult", "TaskStop"]
