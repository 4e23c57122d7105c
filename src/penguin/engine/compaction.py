"""Replacing a context that grows too large by a summary of it (E18 to E22)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import anyio
from msgspec import Struct

from penguin.engine.ledger import Ledger
from penguin.engine.recorder import Recorder
from penguin.engine.retry import RetryLadder, Rung
from penguin.engine.summary import summary_of
from penguin.engine.summary_request import clipped_input, transcript_input
from penguin.protocol.blocks import block
from penguin.protocol.builders import (
    compaction_begin,
    compaction_end,
    request_begin,
    request_end,
    tool_call_output,
    user_text,
)
from penguin.protocol.events import CompactionMode, CompactionReason
from penguin.protocol.interfaces import GenerateRequest, LLMInterface, LLMOutcome, ModelError
from penguin.protocol.merge import PartialAggregator
from penguin.protocol.messages import Message, PartialText, StopReason, Text, ThinkingLevel, TokenUsage, ToolCall

_log = logging.getLogger("penguin.engine")

Compactability = Literal["ok", "unsupported", "empty", "just_compacted"]

_UNKNOWN_WINDOW = 128_000
_MARGIN = 2_048
_SQUEEZES = 3  # long outputs clipped, a transcript in a quarter of the window, in an eighth
_NO_TOOLS = "Not run: the conversation is being summarized, and no tool is available for that."
_NO_SUMMARY = LLMOutcome("malformed", ModelError("malformed", "the reply to the summary request is no summary"))
_CORRECTION = (
    "Your last reply was no summary: it called a tool, was empty, or was cut off before its end. Reply with text only,"
    " and with less of it.\n\n"
)


class CompactionPolicy(Struct, frozen=True):
    """When and how to compact. Sizes in tokens; ``None`` for turns is off, for the window unknown."""

    prompt: str
    mode: CompactionMode = "summarize"
    max_context_length: int = 256_000
    max_session_turns: int | None = None
    window: int | None = None

    @property
    def window_limit(self) -> int:
        """Tokens at which the model's window counts as full."""
        return (self.window or _UNKNOWN_WINDOW) - _MARGIN

    @property
    def threshold(self) -> int:
        """Tokens at which a context is compacted (E18)."""
        return min(self.max_context_length, self.window_limit)

    def reason_to_compact(self, ledger: Ledger) -> CompactionReason | None:
        """Which limit the context has reached, if any."""
        if ledger.context_tokens >= self.threshold:
            return "context"
        if self.max_session_turns is not None and ledger.turns >= self.max_session_turns:
            return "turns"
        return None


@dataclass(slots=True)
class _Attempt:
    said: list[Message] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    unfinished: bool = False

    @property
    def usable(self) -> bool:
        return not self.calls and not self.unfinished and bool(summary_of(self.said))


class Compaction:
    """One compaction, from its trigger to a summary or to giving up.

    The summary is asked for on the old context, so that the provider's cache serves the prefix. When
    the window has no room for that any more, the largest outputs of the request are clipped, and in
    the last resort an empty context is given a transcript that fits.

    Attributes:
        open: whether ``compaction_begin`` stands without its end.
    """

    def __init__(
        self,
        model: LLMInterface,
        recorder: Recorder,
        policy: CompactionPolicy,
        ladder: RetryLadder,
        *,
        reason: CompactionReason,
        empty_model: Callable[[], LLMInterface],
        thinking_level: ThinkingLevel | None = None,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._policy = policy
        self._ladder = ladder
        self._reason = reason
        self._empty_model = empty_model
        self._thinking_level = thinking_level
        self._squeezed = 0
        self._attempts = 0
        self._segments = PartialAggregator()
        self._skip = anyio.Event()
        self._request_open = False
        self._rung: Rung | None = None
        self.open = False

    async def run(self) -> StopReason:
        """Compact; ``completed`` closes the context in the ledger, anything else leaves it in force."""
        ledger = self._recorder.ledger
        self._recorder.emit(
            compaction_begin(self._reason, self._policy.mode, context=ledger.context_tokens, turns=ledger.turns)
        )
        self.open = True
        if self._policy.mode == "discard":
            return self._end("completed")
        return await self._summarize()

    def skip_wait(self) -> None:
        """Fire the next attempt now, if one is waiting."""
        self._skip.set()

    def conclude_interruption(self) -> None:
        """Synchronous, for use after the scope was cancelled."""
        self._close_segments("aborted")
        if self._request_open:
            self._end_request(LLMOutcome("aborted"), None)
        if self.open:
            self._end("aborted")

    def _end(self, status: StopReason, error: ModelError | None = None) -> StopReason:
        self.open = False
        self._recorder.emit(
            compaction_end(
                self._reason,
                self._policy.mode,
                status,
                attempt=self._attempts or None,
                error=error.detail() if error else None,
            )
        )
        return status

    # --- asking for the summary -----------------------------------------------------------------------

    async def _summarize(self) -> StopReason:
        self._recorder.record(user_text(self._policy.prompt))
        while True:
            attempt, outcome = await self._try()
            if outcome.status == "completed" and attempt.usable:
                return self._end("completed")
            verdict = outcome if outcome.status != "completed" else _NO_SUMMARY
            if not self._may_squeeze(verdict) and not await self._climbed(verdict, attempt, outcome):
                return self._end("failed", verdict.error)

    async def _try(self) -> tuple[_Attempt, LLMOutcome]:
        self._attempts += 1
        attempt = _Attempt()
        self._recorder.record(request_begin())
        self._request_open = True
        outcome = await self._listen(attempt)
        attempt.unfinished = outcome.unfinished
        self._close_segments(outcome.status)
        if self._squeezed > 1 and outcome.status == "completed" and not attempt.usable:
            # Said by a model without the session's history: it must not count as committed there.
            outcome = _NO_SUMMARY
        self._rung = self._ladder.climb(outcome)
        self._end_request(outcome, self._rung)
        return attempt, outcome

    async def _climbed(self, verdict: LLMOutcome, attempt: _Attempt, outcome: LLMOutcome) -> bool:
        """Wait for the next attempt; ``False`` when there is none.

        A committed reply that is no summary climbs here: the request itself ended well, so nothing was
        announced with its end.
        """
        if outcome.status == "completed":
            self._rung = self._ladder.climb(verdict)
            self._correct(attempt, again=self._rung is not None)
        if self._rung is None:
            return False
        self._skip = anyio.Event()
        await self._rung.wait(self._skip)
        return True

    async def _listen(self, attempt: _Attempt) -> LLMOutcome:
        def hear(message: Message) -> None:
            self._hear(message, attempt)

        model, messages, held = self._request()
        try:
            return await model.stream_generate(GenerateRequest(messages, self._thinking_level, held), hear)
        except Exception as error:  # noqa: BLE001 - a model is a plug-in: its faults become an outcome
            _log.exception("the model interface raised; it should return an outcome")
            return LLMOutcome("failed", ModelError("unknown", f"{type(error).__name__}: {error}"))

    def _request(self) -> tuple[LLMInterface, list[Message], int]:
        """The model to ask, what to send, and the tokens its context holds already."""
        ledger = self._recorder.ledger
        match self._squeezed:
            case 0:
                return self._model, ledger.request_input, ledger.context_tokens
            case 1:
                return self._model, clipped_input(ledger.request_input), ledger.context_tokens
            case _:
                room = self._policy.window_limit // 2**self._squeezed
                return self._empty_model(), transcript_input(ledger.history, ledger.request_input, room), 0

    def _may_squeeze(self, outcome: LLMOutcome) -> bool:
        """After an overflow: whether a smaller request is worth a try."""
        overflow = outcome.error is not None and outcome.error.kind == "context_overflow"
        if not overflow or self._squeezed >= _SQUEEZES:
            return False
        self._squeezed += 1
        return True

    def _correct(self, attempt: _Attempt, *, again: bool) -> None:
        """The reply is committed and useless: answer its calls, say what was wrong, ask again (E19)."""
        for call in attempt.calls:
            self._recorder.record(tool_call_output(_NO_TOOLS, call.tool_call_id, stop_reason="failed"))
        if again:
            self._recorder.record(user_text(_CORRECTION + self._policy.prompt))

    # --- what comes back ------------------------------------------------------------------------------

    def _hear(self, message: Message, attempt: _Attempt) -> None:
        """Of this request only the words are shown while they are written, and its usage (E21)."""
        match message.payload:
            case PartialText():
                self._segments.add(message)
                self._recorder.forward(message)
            case TokenUsage() as usage:
                self._recorder.emit_usage(message, usage)
            case Text():
                attempt.said.append(message)
                self._recorder.record(message)
            case ToolCall() as call:
                attempt.calls.append(call)
                self._recorder.record(message)
            case _:
                self._recorder.record_complete(message)

    def _close_segments(self, stop_reason: StopReason) -> None:
        closing = "failed" if stop_reason == "completed" else stop_reason
        for message in self._segments.close(closing):
            if isinstance(message.payload, PartialText):
                self._recorder.forward(message)
            else:
                self._recorder.record(message)

    def _end_request(self, outcome: LLMOutcome, rung: Rung | None) -> None:
        self._request_open = False
        self._recorder.record(
            request_end(
                outcome.status,
                attempt=self._attempts if self._attempts > 1 or outcome.status != "completed" else None,
                error=outcome.error.detail() if outcome.error else None,
                retry_in_ms=None if rung is None else rung.announced_ms,
                request_digest=outcome.request_digest,
            )
        )


def compactability(ledger: Ledger, *, supported: bool) -> Compactability:
    """Whether a compaction makes sense now: a pure function of the records, so the same after a restart (E21)."""
    if not supported:
        return "unsupported"
    if ledger.turns > 0:
        return "ok"
    return "just_compacted" if ledger.closed or ledger.contexts > 1 else "empty"


def survivors(requests: list[str], notes: str) -> str:
    """What the harness itself appends to a summary, since a model might leave it out (E22)."""
    # A request that waited while a context was opened stands in the records of both.
    parts = [block("user_input", request) for request in dict.fromkeys(requests)]
    if parts:
        parts.insert(0, "Requests of the user that are still being worked on, word for word:")
    if notes.strip():
        parts.append(notes.strip())
    return "\n\n".join(parts)
