"""What has been said and done in one context, as a fold over its records.

``Ledger.observe`` serves the live engine and the trace reader alike: there is no second copy of the
rules for what belongs to the model's history, which call is unanswered, and what the next request
sends. The engine asks the ledger for its input instead of keeping its own, so resuming cannot drift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from penguin.engine.carry_over import Attempt, PendingCall, closed_turn, lost_input, placeholder, retried_block
from penguin.engine.summary import summary_of
from penguin.protocol.blocks import read_blocks
from penguin.protocol.events import Decision, StopReason
from penguin.protocol.messages import (
    Abort,
    ApprovalDecision,
    CompactionBegin,
    CompactionEnd,
    ImageUrl,
    InlineData,
    InlineThinking,
    Message,
    RequestBegin,
    RequestEnd,
    SessionMeta,
    Text,
    Thinking,
    TokenCounts,
    TokenUsage,
    ToolCall,
    ToolCallOutput,
)

Ending = Literal["open", "failed", "aborted"]
"""How the uncommitted request stands: still open (or its process died), given up, stopped by the user."""


class Facts(Struct, frozen=True):
    """What must be equal for a session that lived on and for one that was resumed."""

    history: list[bytes]
    carry_over: list[bytes]
    turns: int
    tokens: TokenCounts
    unanswered: list[str]


@dataclass(slots=True)
class _Compaction:
    begin: CompactionBegin
    held: list[Message]
    reply: list[Message] = field(default_factory=list)


class Ledger:
    """The state of one context.

    Attributes:
        meta: the configuration record of this context.
        history: what the model remembers, in order; only committed requests.
        turns: committed requests of this context, compaction requests not counted.
        session_turns: the same over all contexts of the session.
        tokens: the session's usage so far, across contexts.
        context_tokens: tokens the last request occupied.
        opening_tokens: tokens the first request of this context occupied.
        call_ids: every tool-call id seen, for the session-wide allocator.
        closed: whether a completed compaction closed this context; the next one starts empty.
        summary: what opens the next context after a summarizing compaction.
        opened_by_summary: whether this context began with such a summary.
        requests: the user's words since the last reply that asked for no tool, oldest first.
        request_images: what the user showed with them.
        contexts: how many contexts the session has had, this one included.
        records: how many records this context has so far, its configuration included.

    Example::

        ledger = Ledger()
        for message in read_trace(path):
            ledger.observe(message)
        model.set_history(ledger.history)
    """

    def __init__(self) -> None:
        self.meta: SessionMeta | None = None
        self.history: list[Message] = []
        self.turns = 0
        self.session_turns = 0
        self.tokens = TokenCounts()
        self.context_tokens = 0
        self.opening_tokens = 0
        self.call_ids: set[str] = set()
        self.closed = False
        self.summary: str | None = None
        self.opened_by_summary = False
        self.requests: list[str] = []
        self.request_images: list[Message] = []
        self.contexts = 0
        self.records = 0
        self._due: list[PendingCall] = []
        self._held: list[Message] = []
        self._attempts: list[Attempt] = []
        self._ending: Ending = "open"
        self._compaction: _Compaction | None = None

    # --- the fold ---------------------------------------------------------------------------------

    def observe(self, message: Message) -> None:
        """Take in one record; messages of children and unknown payloads change nothing."""
        if message.origin:
            return
        self.records += 1
        match message.payload:
            case SessionMeta() as meta:
                self._open_context(meta)
            case Text(role="user", text=text):
                self._hold(message)
                self._hear_user(text)
            case ImageUrl() | InlineData(role="user"):
                self._hold(message)
                self._see_image(message)
            case ToolCall() as call:
                self._take_call(message, call)
            case Text() | Thinking() | InlineThinking() | InlineData():
                self._take_words(message)
            case ApprovalDecision(decision=decision, tool_call_id=call_id):
                self._decide(call_id, decision)
            case ToolCallOutput(tool_call_id=call_id):
                self._answer(message, call_id)
            case RequestBegin():
                self._begin(message)
            case RequestEnd() as end:
                self._end(message, end)
            case TokenUsage() as usage:
                self._count(usage)
            case Abort():
                self._abort(message)
            case CompactionBegin() as begin:
                self._begin_compaction(begin)
            case CompactionEnd(status=status):
                self._end_compaction(status)
            case _:
                pass

    def _open_context(self, meta: SessionMeta) -> None:
        """A new file: the summary that opens it is its first user record."""
        self.meta = meta
        self.contexts, self.records = self.contexts + 1, 1
        self.closed, self.summary, self._compaction = False, None, None
        self.opened_by_summary = False
        self._forget()

    def _forget(self) -> None:
        self.history = []
        self.turns = 0
        self.context_tokens = self.opening_tokens = 0
        self._due, self._held, self._attempts, self._ending = [], [], [], "open"

    def _hold(self, message: Message) -> None:
        self._settle()
        self._held.append(message)

    def _hear_user(self, text: str) -> None:
        """Keep the user's own words until they are answered; texts of the harness are blocks."""
        if self._compaction is not None:
            return
        if text.startswith("[context_summary]"):
            self.opened_by_summary = self.opened_by_summary or self.turns == 0
            return
        words = read_blocks("user_steering", text) if text.startswith("[user_steering]") else [text]
        self.requests += [word for word in words if not word.startswith("[background_task_done]")]

    def _see_image(self, message: Message) -> None:
        # One that survived a compaction stands in the records of both contexts.
        if self._compaction is None and all(message.payload != each.payload for each in self.request_images):
            self.request_images.append(message)

    def _take_call(self, message: Message, call: ToolCall) -> None:
        self.call_ids.add(call.tool_call_id)
        # A second line with this id can only be the first once more: a request that holds it twice is refused.
        twice = self._trying and any(call.tool_call_id == each.call.tool_call_id for each in self._attempts[-1].calls)
        if self._trying and not twice:
            self._attempts[-1].said.append(message)
            self._attempts[-1].calls.append(PendingCall(message, call))

    def _take_words(self, message: Message) -> None:
        # Assistant text outside a request is a notice of the engine (E8): shown, never remembered.
        if self._trying:
            self._attempts[-1].said.append(message)

    def _decide(self, call_id: str, decision: Decision) -> None:
        pending = self._find(call_id)
        if pending is not None:
            pending.decision = decision

    def _answer(self, message: Message, call_id: str) -> None:
        pending = self._find(call_id)
        if pending is not None:
            pending.output = message

    def _begin(self, message: Message) -> None:
        if self._trying or self._ending != "open":
            self._settle()
        # No request is sent without input, so its record is damaged; the reply must not stand there unasked.
        sent = (self._opening() or [lost_input(message.timestamp)]) if not self._attempts else self._attempts[0].input
        if any(attempt.said for attempt in self._attempts):
            sent = [*sent, retried_block(self._attempts)]
        self._attempts.append(Attempt(sent))

    def _end(self, message: Message, end: RequestEnd) -> None:
        if not self._trying:
            return
        attempt = self._attempts[-1]
        attempt.end = message
        if end.status == "completed":
            self._commit(attempt)
        elif end.retry_in_ms is None:
            self._ending = "aborted" if end.status == "aborted" else "failed"

    def _commit(self, attempt: Attempt) -> None:
        self.history += attempt.input
        self.history += attempt.said
        self._due = attempt.calls
        self._held, self._attempts, self._ending = [], [], "open"
        if self._compaction is None:
            self.turns += 1
            self.session_turns += 1
            if not attempt.calls:
                self.requests, self.request_images = [], []
        else:
            self._compaction.reply, self._compaction.held = attempt.said, []

    def _count(self, usage: TokenUsage) -> None:
        self.tokens = usage.session
        self.context_tokens = usage.request.total
        if self.turns == 0 and self._compaction is None:
            self.opening_tokens = usage.request.total

    def _abort(self, message: Message) -> None:
        if self._attempts:
            self._ending = "aborted"
        for pending in self._due:
            pending.aborted = True
        if self._attempts and self._attempts[-1].end is None:
            self._attempts[-1].end = message

    def _settle(self) -> None:
        """Turn an uncommitted request into input for the next one; its late outputs are orphans from here."""
        if self._attempts:
            self._held = closed_turn(self._held, self._attempts, self._ending)
            self._attempts, self._ending = [], "open"

    def _begin_compaction(self, begin: CompactionBegin) -> None:
        self._settle()
        self._compaction = _Compaction(begin, list(self._held))

    def _end_compaction(self, status: StopReason) -> None:
        """Completed: the context is closed. Otherwise it stays in force and the draft is dropped (T10, E20).

        What a summary attempt committed stays in the history, because the model remembers it too.
        """
        compaction, self._compaction = self._compaction, None
        if compaction is None:
            return
        if status == "completed":
            # Empty from here on, not when the next one opens: its first record may never come (a crash, a discard).
            self._forget()
            self.closed = True
            self.summary = summary_of(compaction.reply) if compaction.begin.mode == "summarize" else None
        else:
            self._attempts, self._ending, self._held = [], "open", compaction.held

    # --- questions --------------------------------------------------------------------------------

    @property
    def _trying(self) -> bool:
        """Whether a request is open: begun and not ended."""
        return bool(self._attempts) and self._attempts[-1].end is None

    @property
    def compacting(self) -> CompactionBegin | None:
        """The compaction that was begun and not ended, if any."""
        return self._compaction.begin if self._compaction else None

    @property
    def request_input(self) -> list[Message]:
        """What the open request sends; the engine records ``request_begin`` and then asks here."""
        return self._attempts[-1].input

    @property
    def carry_over(self) -> list[Message]:
        """What the next request would send before any new prompt (E12).

        A pure function of the records, so it is the same, byte for byte, live and resumed.
        """
        held = closed_turn(self._held, self._attempts, self._ending) if self._attempts else self._held
        return [*self._outputs(), *held]

    @property
    def unanswered(self) -> list[str]:
        """Ids of committed calls without an output, in call order."""
        return [call.call.tool_call_id for call in self._due if call.output is None]

    @property
    def asked(self) -> list[PendingCall]:
        """The calls of the last committed turn, in call order."""
        return self._due

    def facts(self) -> Facts:
        """A comparable picture of the state (T11)."""
        return Facts(
            [message.line for message in self.history],
            [message.line for message in self.carry_over],
            self.turns,
            self.tokens,
            self.unanswered,
        )

    def _opening(self) -> list[Message]:
        return [*self._outputs(), *self._held]

    def _outputs(self) -> list[Message]:
        return [call.output or placeholder(call) for call in self._due]

    def _find(self, call_id: str) -> PendingCall | None:
        """The unanswered call with this id: of this attempt, of the turn before, or of an earlier attempt."""
        attempts = [call for attempt in reversed(self._attempts) for call in attempt.calls]
        for call in [*attempts, *self._due]:
            if call.call.tool_call_id == call_id and call.output is None:
                return call
        return None
