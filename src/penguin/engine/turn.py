"""One turn: a model request with its retries, and the tool calls it asked for."""

from __future__ import annotations

import logging
from functools import partial

import anyio
from msgspec import Struct

from penguin.engine.recorder import Recorder
from penguin.engine.retry import RetryLadder, Rung
from penguin.engine.tool_desk import ToolDesk, ToolDeskFactory
from penguin.protocol.builders import assistant_text, is_tool_call, request_begin, request_end
from penguin.protocol.events import ErrorDetail
from penguin.protocol.interfaces import GenerateRequest, LLMInterface, LLMOutcome, ModelError, SupportsIsolation
from penguin.protocol.merge import PartialAggregator
from penguin.protocol.messages import (
    Message,
    PartialText,
    PartialThinking,
    PartialToolCall,
    StopReason,
    Text,
    ThinkingLevel,
    TokenUsage,
    ToolCall,
)

_log = logging.getLogger("penguin.engine")

# A tuple: `A | B` in isinstance would build the union anew for each delta.
_FRAGMENTS = (PartialText, PartialThinking, PartialToolCall)


class TurnSettings(Struct, frozen=True):
    """What a turn needs besides its parts."""

    thinking_level: ThinkingLevel | None = None


class Turn:
    """Runs attempts until one commits or the ladder ends.

    Attributes:
        outcome: how the last attempt ended; ``None`` before that.
        text: the assistant's words of the last attempt.
        open: whether a request is begun and not ended.
    """

    def __init__(
        self,
        model: LLMInterface,
        recorder: Recorder,
        open_desk: ToolDeskFactory,
        ladder: RetryLadder,
        settings: TurnSettings,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._open_desk = open_desk
        self._ladder = ladder
        self._settings = settings
        self._desk: ToolDesk | None = None
        self._attempt = 0
        self._isolated = False
        self._said: list[str] = []
        self._segments = PartialAggregator()
        self._skip = anyio.Event()
        self.outcome: LLMOutcome | None = None
        self.open = False

    async def run(self) -> LLMOutcome:
        """Attempt after attempt; returns when the turn is committed and every call answered, or given up."""
        while True:
            outcome, rung = await self._try()
            if rung is None:
                return outcome

    def skip_wait(self) -> None:
        """Fire the next attempt now, if one is waiting (E14)."""
        self._skip.set()

    @property
    def text(self) -> str:
        """The assistant's words in the last attempt, its text blocks joined."""
        return "".join(self._said)

    @property
    def completed(self) -> bool:
        """Whether the turn is committed."""
        return self.outcome is not None and self.outcome.status == "completed"

    @property
    def overflowed(self) -> bool:
        """Whether the provider refused the request because the context is too large."""
        error = self.outcome.error if self.outcome else None
        return error is not None and error.kind == "context_overflow"

    def conclude_interruption(self) -> None:
        """Synchronous, for use after the scope was cancelled: close, answer, end the request."""
        self._close_segments("aborted")
        committed = not self.open and self.completed
        if self._desk is not None:
            self._desk.answer_interrupted(committed=committed)
        if self.open:
            self._end_request(LLMOutcome("aborted"), None)

    # --- one attempt --------------------------------------------------------------------------------

    async def _try(self) -> tuple[LLMOutcome, Rung | None]:
        self._begin_request()
        async with anyio.create_task_group() as tools:
            with self._open_desk(tools) as desk:
                self._desk = desk
                outcome = await self._listen_to_model(desk)
                self._close_segments(outcome.status)
                left_out = self._isolate(outcome)
                rung = self._ladder.climb(outcome) if left_out is None else Rung(0.0)
                self._end_request(outcome, rung)
                if left_out is not None:
                    self._recorder.emit(assistant_text(f"[left out, trying again: {left_out}]", stop_reason="failed"))
                if outcome.status != "completed":
                    desk.drop_undecided()
            if rung is not None:
                await rung.wait(self._skip)
        if outcome.status == "completed":
            desk.answer_lost()
        return outcome, rung

    def _isolate(self, outcome: LLMOutcome) -> str | None:
        """After a permanent refusal of one item: leave it out and try again, once a turn (E26)."""
        error = outcome.error
        permanent = outcome.status == "failed" and error is not None and error.kind == "bad_request"
        if not permanent or error is None or self._isolated or not isinstance(self._model, SupportsIsolation):
            return None
        self._isolated = True
        return self._model.isolate(error, self._recorder.ledger.request_input)

    def _begin_request(self) -> None:
        self._attempt += 1
        self._said = []
        self._skip = anyio.Event()
        self.outcome = None
        self._recorder.emit(request_begin())
        self.open = True

    def _end_request(self, outcome: LLMOutcome, rung: Rung | None) -> None:
        self.open = False
        self.outcome = outcome
        clean = outcome.status == "completed" and self._attempt == 1
        self._recorder.emit(
            request_end(
                outcome.status,
                attempt=None if clean else self._attempt,
                error=_detail(outcome),
                retry_in_ms=None if rung is None else rung.announced_ms,
                request_digest=outcome.request_digest,
            )
        )

    async def _listen_to_model(self, desk: ToolDesk) -> LLMOutcome:
        ledger = self._recorder.ledger
        request = GenerateRequest(ledger.request_input, self._settings.thinking_level, ledger.context_tokens)
        try:
            return await self._model.stream_generate(request, partial(self._hear, desk))
        except Exception as error:  # noqa: BLE001 - a model is a plug-in: its faults become an outcome
            _log.exception("the model interface raised; it should return an outcome")
            return LLMOutcome("failed", ModelError("unknown", f"{type(error).__name__}: {error}"))

    def _hear(self, desk: ToolDesk, message: Message) -> None:
        """The model's ``emit``: synchronous and quick, since the provider's stream waits for it."""
        payload = message.payload
        if isinstance(payload, _FRAGMENTS):
            self._segments.add(message)
            self._recorder.forward(message)
            return
        match payload:
            case TokenUsage() as usage:
                self._recorder.emit_usage(message, usage)
            case ToolCall(stop_reason=stop_reason):
                self._recorder.emit(message)
                if stop_reason in (None, "completed") and is_tool_call(message):
                    desk.submit(message)
            case Text(text=text):
                self._said.append(text)
                self._recorder.emit(message)
            case _:
                self._recorder.emit(message)

    def _close_segments(self, stop_reason: StopReason) -> None:
        """A model closes its own segments; one that did not must not leave them open for the consumer (P8)."""
        closing = "failed" if stop_reason == "completed" else stop_reason
        for message in self._segments.close(closing):
            self._recorder.emit(message)


def _detail(outcome: LLMOutcome) -> ErrorDetail | None:
    if outcome.error is not None:
        return outcome.error.detail()
    return ErrorDetail("note", outcome.note) if outcome.note else None
