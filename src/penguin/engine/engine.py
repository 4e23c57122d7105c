"""The loop of one session: from a prompt to the end of its task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from penguin.engine.budget import Budget, Limits, Prices
from penguin.engine.compaction import Compactability, CompactionPolicy
from penguin.engine.contexts import Contexts
from penguin.engine.inbox import Inbox, SteeringTicket
from penguin.engine.ledger import Ledger
from penguin.engine.ports import ContextSource, TracePort
from penguin.engine.recorder import Recorder
from penguin.engine.retry import RetryLadder, RetryPolicy
from penguin.engine.tool_desk import ToolDesk
from penguin.engine.turn import Turn, TurnSettings
from penguin.protocol.builders import abort, assistant_text, now
from penguin.protocol.errors import SessionBusy
from penguin.protocol.events import ErrorDetail
from penguin.protocol.interfaces import (
    ApproveFn,
    Emit,
    EnvironmentInterface,
    LLMInterface,
    SupportsContextNotes,
    SupportsTasks,
    TaskStart,
)
from penguin.protocol.messages import Message, OmniMessage, Text, ThinkingLevel, TokenCounts

TaskStop = Literal["completed", "failed", "aborted", "turn_limit", "budget"]

INTERRUPTED = "aborted by user"
HOST_CANCELLED = "cancelled by the host program"

_MOST_RESCUES = 2
_TITLE_LENGTH = 60
_NOT_COMPACTABLE = {
    "unsupported": "this session cannot be compacted: it was given one model and no way to make a fresh context",
    "empty": "there is nothing to compact yet",
    "just_compacted": "the conversation was just compacted; there is nothing new in it",
}


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
    """Limits of a task; ``max_turns`` of ``None`` means no limit.

    ``prices`` turn tokens into money for ``limits.usd``.
    """

    max_turns: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    limits: Limits = field(default_factory=Limits)
    prices: Prices | None = None
    compaction: CompactionPolicy | None = None


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
        source: ContextSource | None = None,
    ) -> None:
        self._environment = environment
        self._trace = trace
        self._settings = settings or EngineSettings()
        self._recorder = Recorder(feed, trace, ledger or Ledger(), self._charge)
        self._budgets: list[Budget] = []
        self._contexts = Contexts(
            model,
            self._recorder,
            trace,
            source=source,
            policy=self._settings.compaction,
            retry=self._settings.retry,
            notes=self._context_notes,
        )
        self.inbox = Inbox()
        self._scope: anyio.CancelScope | None = None
        self._turn: Turn | None = None
        self._tokens_before = TokenCounts()
        self._turns_before = 0
        self._rescues = 0
        self._stop_reason = INTERRUPTED

    @property
    def ledger(self) -> Ledger:
        """What has been said and done in this context."""
        return self._recorder.ledger

    @property
    def meta(self) -> Message | None:
        """The configuration record of this context."""
        payload = self.ledger.meta
        return None if payload is None else OmniMessage(now(), "session_meta", payload)

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
        budgets: Sequence[Budget] = (),
    ) -> TaskResult:
        """Run one task to its end.

        ``interrupted`` is the reason when the task was stopped before it began: its prompt is kept.
        ``budgets`` are those of the sessions above this one; the task's own limits are added to them.

        Trouble with model, tools, network or disk is a message and a result, never an exception.

        Raises:
            SessionBusy: a task is already running.
        """
        own = [Budget(self._settings.limits)] if self._settings.limits.any else []
        self._budgets = [*budgets, *own]
        return await self._one_at_a_time(lambda: self._task(prompt, approve, TurnSettings(thinking_level)), interrupted)

    @property
    def budgets(self) -> list[Budget]:
        """The budgets the running task draws on; a child session gets them too."""
        return self._budgets

    async def compact(
        self, *, thinking_level: ThinkingLevel | None = None, interrupted: str | None = None
    ) -> TaskResult:
        """Replace the context by a summary of it, now.

        The result is ``failed`` with an explanation when there is nothing to compact or it did not work; then
        the old context stays in force.

        Raises:
            SessionBusy: a task is already running.
        """
        return await self._one_at_a_time(lambda: self._compact_by_hand(thinking_level), interrupted)

    def compactability(self) -> Compactability:
        """Whether :meth:`compact` would do something: ``ok``, ``unsupported``, ``empty`` or ``just_compacted``."""
        return self._contexts.compactability()

    async def _one_at_a_time(self, task: Callable[[], Awaitable[TaskResult]], interrupted: str | None) -> TaskResult:
        """Run a task in a scope of its own and record how it was stopped, if it was."""
        if self._scope is not None:
            raise SessionBusy("a task is already running in this session; wait for its end, steer it or interrupt it")
        self._scope, self._turn = anyio.CancelScope(), None
        self._tokens_before, self._turns_before = self.ledger.tokens, self.ledger.session_turns
        self._rescues = 0
        if interrupted is not None:
            self.interrupt(interrupted)
        result: TaskResult | None = None
        try:
            with self._scope:
                result = await task()
            if result is None:
                result = self._conclude(self._stop_reason)
            await self._tell_end()
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

    def keep_notices(self) -> None:
        """Record what background work reported and no task has heard: the next one, after a resume, begins with it."""
        if self.ledger.records > 1:  # else there is no conversation yet that could go on
            self._record_all(self.inbox.drain_notices())

    def skip_retry_wait(self) -> None:
        """Fire the next attempt now; the count of retries stays."""
        self._contexts.skip_wait()
        if self._turn is not None:
            self._turn.skip_wait()

    # --- the task -----------------------------------------------------------------------------------

    async def _task(self, prompt: Sequence[Message], approve: ApproveFn | None, settings: TurnSettings) -> TaskResult:
        self._tell_begin(prompt)
        await self._open_context_for(prompt)
        for notice in self.inbox.drain_notices():
            self._recorder.emit(notice)
        self._record_all(prompt)
        while True:
            await self._trace.sync()
            refusal = self._refusal()
            if refusal is not None:
                return refusal
            turn = await self._take_turn(approve, settings)
            if not turn.completed:
                if await self._rescued(turn, settings):
                    continue
                return self._given_up(turn)
            if not await self._goes_on(settings):
                return self._result("completed")

    async def _open_context_for(self, prompt: Sequence[Message]) -> None:
        """The context that follows a closed one; if that is stopped, what was asked stays for the next task (E12)."""
        if not self.ledger.closed:
            return
        try:
            await self._contexts.open_next()
        except BaseException:
            self._record_all(prompt)
            raise

    def _record_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._recorder.record(message)

    async def _goes_on(self, settings: TurnSettings) -> bool:
        """Compact if it is time, deliver what waits; whether there is anything to send next."""
        inside_task = bool(self.ledger.asked) or self.inbox.waiting
        reason = self._contexts.reason_to_compact(inside_task=inside_task)
        if reason is not None:
            status = await self._contexts.compact(reason, settings.thinking_level)
            if inside_task and status != "completed":
                self._contexts.nudge()
        return self._deliver_waiting() or inside_task

    async def _rescued(self, turn: Turn, settings: TurnSettings) -> bool:
        """After an overflow: compact and go on, at most twice a task (E15)."""
        may_compact = self.compactability() == "ok" and self._contexts.keeps_what_was_asked
        if not turn.overflowed or self._rescues >= _MOST_RESCUES or not may_compact:
            return False
        self._rescues += 1
        return await self._contexts.compact("context", settings.thinking_level) == "completed"

    async def _compact_by_hand(self, thinking_level: ThinkingLevel | None) -> TaskResult:
        state = self.compactability()
        if state != "ok":
            return self._result("failed", ErrorDetail("unknown", _NOT_COMPACTABLE[state]))
        status = await self._contexts.compact("manual", thinking_level)
        return self._result("completed" if status == "completed" else "failed")

    async def _take_turn(self, approve: ApproveFn | None, settings: TurnSettings) -> Turn:
        def open_desk(tasks: TaskGroup) -> ToolDesk:
            return ToolDesk(self._environment, self._recorder, approve, tasks)

        self._turn = Turn(self._contexts.model, self._recorder, open_desk, RetryLadder(self._settings.retry), settings)
        await self._turn.run()
        return self._turn

    def _deliver_waiting(self) -> bool:
        """Drain the inbox into the next input; whether there was anything."""
        waiting = self.inbox.drain()
        for message in waiting:
            self._recorder.emit(message)
        return bool(waiting)

    def _refusal(self) -> TaskResult | None:
        """Why no further request may be sent, if it may not."""
        if self._trace.lost:
            return self._result("failed", ErrorDetail("unknown", f"the trace cannot be written: {self._trace.error}"))
        limit = self._settings.max_turns
        if limit is not None and self._task_turns >= limit:
            return self._stopped("turn_limit", f"the limit of {limit} turns for one task is reached")
        for budget in self._budgets:
            used_up = budget.refusal(self.ledger.context_tokens, self._settings.prices)
            if used_up is not None:
                return self._stopped("budget", f"the budget does not allow another request: {used_up}")
        return None

    @property
    def _task_turns(self) -> int:
        return self.ledger.session_turns - self._turns_before

    def _charge(self, tokens: TokenCounts) -> None:
        for budget in self._budgets:
            budget.charge(tokens, self._settings.prices)

    def _context_notes(self) -> str:
        return self._environment.context_notes() if isinstance(self._environment, SupportsContextNotes) else ""

    def _tell_begin(self, prompt: Sequence[Message]) -> None:
        """Before anything of the task is recorded: the place it names is one to go back to."""
        if isinstance(self._environment, SupportsTasks):
            ledger = self.ledger
            self._environment.begin_task(TaskStart(ledger.contexts, ledger.records, ledger.turns, _title(prompt)))

    async def _tell_end(self) -> None:
        if isinstance(self._environment, SupportsTasks):
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await self._environment.end_task()

    # --- endings ------------------------------------------------------------------------------------

    def _stopped(self, stop_reason: TaskStop, why: str) -> TaskResult:
        """Say why in a notice that is shown and traced but never part of the model's history (E8)."""
        self._recorder.emit(assistant_text(f"[stopped: {why}]", stop_reason="failed"))
        return self._result(stop_reason, ErrorDetail(stop_reason, why))

    def _given_up(self, turn: Turn) -> TaskResult:
        error = turn.outcome.error if turn.outcome else None
        return self._result("failed", error.detail() if error else None)

    def _conclude(self, reason: str) -> TaskResult:
        """The interrupted task's last records. Synchronous: every await would raise again."""
        if self._turn is not None:
            self._turn.conclude_interruption()
        self._contexts.conclude_interruption()
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


def _title(prompt: Sequence[Message]) -> str:
    words = next((message.payload.text for message in prompt if isinstance(message.payload, Text)), "")
    return " ".join(words[: 4 * _TITLE_LENGTH].split())[:_TITLE_LENGTH]


def _difference(after: TokenCounts, before: TokenCounts) -> TokenCounts:
    return TokenCounts(
        after.cache_read - before.cache_read,
        after.cache_write - before.cache_write,
        after.output - before.output,
        after.total - before.total,
    )


__all__ = ["ContextEngine", "EngineSettings", "TaskResult", "TaskStop"]
