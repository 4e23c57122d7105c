"""The model's contexts of one session, one after the other: when to compact, and what opens the next one."""

from __future__ import annotations

from collections.abc import Callable

from penguin.engine.compaction import Compactability, Compaction, CompactionPolicy, compactability, survivors
from penguin.engine.ports import ContextSource, TracePort
from penguin.engine.recorder import Recorder
from penguin.engine.retry import RetryLadder, RetryPolicy
from penguin.engine.summary import context_summary
from penguin.protocol.builders import assistant_text, user_text
from penguin.protocol.events import CompactionReason, StopReason
from penguin.protocol.interfaces import LLMInterface
from penguin.protocol.messages import Message, Text, ThinkingLevel

_GO_ON = "Go on with the task."


class Contexts:
    """Holds the present model and replaces it when its context is closed.

    Without a ``source`` of fresh contexts or without a policy nothing is ever compacted.

    Attributes:
        model: the model with the present context.
    """

    def __init__(
        self,
        model: LLMInterface,
        recorder: Recorder,
        trace: TracePort,
        *,
        source: ContextSource | None,
        policy: CompactionPolicy | None,
        retry: RetryPolicy,
        notes: Callable[[], str],
    ) -> None:
        self.model = model
        self._recorder = recorder
        self._trace = trace
        self._source = source
        self._policy = policy
        self._retry = retry
        self._notes = notes
        self._compaction: Compaction | None = None
        self._given_up = False
        self._said_so = False

    @property
    def keeps_what_was_asked(self) -> bool:
        """Whether a compaction now leaves the task what it works on: to discard is for the time after it (E19)."""
        return self._policy is not None and self._policy.mode != "discard"

    def compactability(self) -> Compactability:
        """Whether :meth:`compact` would do something now."""
        return compactability(self._recorder.ledger, supported=self._supported)

    def reason_to_compact(self, *, inside_task: bool) -> CompactionReason | None:
        """Why to compact after this turn, if there is a reason; ``discard`` waits for the task's end."""
        if self._policy is None or not self._supported or (inside_task and self._policy.mode == "discard"):
            return None
        reason = self._policy.reason_to_compact(self._recorder.ledger)
        return reason if reason != "context" or self._is_worth_it(self._policy) else None

    async def compact(self, reason: CompactionReason, thinking_level: ThinkingLevel | None = None) -> StopReason:
        """Compact now; on success the next context is open."""
        if self._policy is None or self._source is None:
            return "failed"
        self._compaction = Compaction(
            self.model,
            self._recorder,
            self._policy,
            RetryLadder(self._retry),
            reason=reason,
            empty_model=self._source.new_model,
            thinking_level=thinking_level,
        )
        status = await self._compaction.run()
        self._compaction = None
        if status == "completed":
            await self.open_next()
        else:
            self._given_up = True
        return status

    async def open_next(self) -> None:
        """A fresh context in a new trace file, opened by the summary if there is one."""
        if self._source is None:
            return
        ledger = self._recorder.ledger
        summary, waiting = ledger.summary, ledger.carry_over
        requests = _without(ledger.requests, waiting)
        images = [image for image in ledger.request_images if image not in waiting]
        meta = await self._source.next_meta()
        self.model = self._source.new_model()
        self._given_up = self._said_so = False
        self._trace.open_new_file()
        self._recorder.record(meta)
        if summary is not None:
            kept = survivors(requests, self._notes())
            self._recorder.record(user_text(context_summary("\n\n".join(part for part in (summary, kept) if part))))
            waiting = [*images, *waiting]
        for message in waiting:
            self._recorder.record(message)

    def nudge(self) -> None:
        """After a summary attempt that consumed the turn's outputs and failed: the task needs words to go on."""
        if not self._recorder.ledger.carry_over:
            self._recorder.record(user_text(_GO_ON))

    def skip_wait(self) -> None:
        """Fire the next attempt of a running compaction now."""
        if self._compaction is not None:
            self._compaction.skip_wait()

    def conclude_interruption(self) -> None:
        """Synchronous: end what a stopped compaction left open."""
        if self._compaction is not None:
            self._compaction.conclude_interruption()
            self._compaction = None

    @property
    def _supported(self) -> bool:
        return self._source is not None and self._policy is not None

    def _is_worth_it(self, policy: CompactionPolicy) -> bool:
        """A compaction that did not help is not repeated at once: only when the window is really full (E20)."""
        ledger = self._recorder.ledger
        futile = self._given_up or (ledger.opened_by_summary and ledger.opening_tokens >= policy.threshold)
        if not futile or (ledger.context_tokens >= policy.window_limit and ledger.turns > 1):
            return True
        self._say_once()
        return False

    def _say_once(self) -> None:
        if not self._said_so:
            self._said_so = True
            notice = "[the conversation is above its compaction threshold and could not be made shorter; going on]"
            self._recorder.emit(assistant_text(notice, stop_reason="failed"))


def _without(requests: list[str], waiting: list[Message]) -> list[str]:
    """The requests that do not go into the new context by themselves."""
    words = {message.payload.text for message in waiting if isinstance(message.payload, Text)}
    return [request for request in requests if request not in words]
