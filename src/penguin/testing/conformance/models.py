"""Does a model keep its contract (P8, P9, L1, L2, L9)?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel

from penguin.protocol import builders
from penguin.protocol.interfaces import GenerateRequest, LLMInterface, LLMOutcome, SupportsHistory
from penguin.protocol.messages import (
    CompleteModelPayload,
    InlineData,
    InlineThinking,
    Message,
    PartialText,
    PartialThinking,
    PartialToolCall,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
)
from penguin.testing.conformance.expectations import PATIENCE_S, expect
from penguin.testing.framing import StreamChecker

ReadHistory: TypeAlias = Callable[[LLMInterface], Sequence[Message]]

_STATUSES: Final = ("completed", "failed", "aborted", "timeout", "malformed")
_LEGAL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")


async def check_llm(
    build: Callable[[], LLMInterface],
    *,
    failing: Callable[[], LLMInterface] | None = None,
    history: ReadHistory | None = None,
    prompt: str = "Say hello.",
    cancellations: int = 20,
) -> None:
    """Check a model: framing, usage, two turns, refusals, cancellation at each message, faults.

    Args:
        build: A new model with an empty context, able to answer two requests after a cancelled one. For
            each of them it may say whatever it likes, calls included; they are answered with "ok".
        failing: A model whose first attempt does not complete.
        history: Reads the committed history of a model; without it the history's rules are not checked.
        prompt: The first words of the user.
        cancellations: Cancel at most at this many messages, each time on a new model.

    Raises:
        AssertionError: The model breaks the contract; the text says how.

    Example::

        await check_llm(lambda: ScriptedModel(["Hello.", "Hello again.", "Bye."]), history=lambda m: m.history)
    """
    first = GenerateRequest([builders.user_text(prompt)])
    length = await _check_two_turns(build(), first, history)
    await _check_refusal(build(), first, history)
    for position in range(1, min(length, cancellations) + 1):
        await _check_cancellation(build(), first, history, position)
    await _check_cancelled_before(build(), first, history)
    if failing is not None:
        await _check_fault(failing(), first, history)
    await _check_resumed(build())


async def _check_two_turns(model: LLMInterface, first: GenerateRequest, history: ReadHistory | None) -> int:
    said = await _completed(model, first, "the first turn")
    _expect_history(model, history, [*first.new_messages, *_complete(said)], "after a completed turn")
    second = _answer(said)
    more = await _completed(model, second, "the second turn")
    committed = [*first.new_messages, *_complete(said), *second.new_messages, *_complete(more)]
    _expect_history(model, history, committed, "after two completed turns")
    ids = [call.tool_call_id for call in _calls([*said, *more])]
    expect(len(ids) == len(set(ids)), f"L9: tool call ids repeat: {ids}")
    return len(said)


async def _check_refusal(model: LLMInterface, first: GenerateRequest, history: ReadHistory | None) -> None:
    mixed = GenerateRequest([*first.new_messages, builders.assistant_text("I never said this.")])
    outcome, messages = await _attempt(model, mixed, "a request with words of the assistant")
    expect(
        outcome.status == "failed",
        f"L1: a request with words of the assistant ended {outcome.status}; it must be refused as failed",
    )
    expect(not _complete(messages), "L1: a refused request said something")
    _expect_history(model, history, [], "after a refused request")


async def _check_cancellation(
    model: LLMInterface, first: GenerateRequest, history: ReadHistory | None, position: int
) -> None:
    what = f"an attempt cancelled at message {position}"
    checker = StreamChecker(streamed_only=True)
    outcome: LLMOutcome | None = None
    with anyio.CancelScope() as scope:

        def emit(message: Message) -> None:
            checker.observe(message)
            if len(checker.messages) == position:
                scope.cancel()

        outcome = await _never_raises(model, first, emit, what)
    _finish(checker, what)
    if outcome is None:
        _expect_history(model, history, [], f"after {what}")
        await _completed(model, first, f"the same request after {what}")
    else:
        # It did not await any more, so it could not notice: then the turn has to be a complete one.
        _check_completed(outcome, checker.messages, what)


async def _check_cancelled_before(model: LLMInterface, first: GenerateRequest, history: ReadHistory | None) -> None:
    checker = StreamChecker(streamed_only=True)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await _never_raises(model, first, checker.observe, "an attempt cancelled before it began")
        await anyio.lowlevel.checkpoint()
    _finish(checker, "an attempt cancelled before it began")
    if not _complete(checker.messages):
        _expect_history(model, history, [], "after an attempt cancelled before it began")


async def _check_fault(model: LLMInterface, first: GenerateRequest, history: ReadHistory | None) -> None:
    outcome, messages = await _attempt(model, first, "the failing attempt")
    expect(outcome.status != "completed", "the model given as failing completed its first attempt")
    expect(outcome.error is not None, f"an attempt that ended {outcome.status} has no error")
    for payload in _payloads(messages):
        reason = payload.stop_reason or "completed"
        expect(
            reason in {"completed", outcome.status},
            f"P9: the attempt ended {outcome.status}, but a segment of it says {reason}",
        )
    _expect_history(model, history, [], "after an attempt that did not complete")


async def _check_resumed(model: LLMInterface) -> None:
    if not isinstance(model, SupportsHistory):
        return
    model.set_history([builders.user_text("Do you remember?"), builders.assistant_text("I do.")])
    await _completed(model, GenerateRequest([builders.user_text("What?")]), "the first turn after set_history")


async def _completed(model: LLMInterface, request: GenerateRequest, what: str) -> list[Message]:
    outcome, messages = await _attempt(model, request, what)
    _check_completed(outcome, messages, what)
    return messages


def _check_completed(outcome: LLMOutcome, messages: list[Message], what: str) -> None:
    why = f": {outcome.error.message}" if outcome.error else ""
    expect(outcome.status == "completed", f"{what} ended {outcome.status}{why}")
    expect(outcome.error is None, f"{what} completed, but has an error{why}")
    expect(bool(_complete(messages)), f"{what} completed without saying anything")
    for payload in _payloads(messages):
        reason = payload.stop_reason or "completed"
        expect(reason == "completed", f"P9: {what} completed, but a segment of it says {reason}")
    usages = [message.payload for message in messages if isinstance(message.payload, TokenUsage)]
    expect(len(usages) == 1, f"E2: {what} reported token_usage {len(usages)} times, not once")
    expect(isinstance(messages[-1].payload, TokenUsage), f"L2: token_usage is not the last message of {what}")
    counts = usages[0].request
    expect(
        counts.total == counts.cache_read + counts.cache_write + counts.output,
        f"P4: the total of {what} is not the sum of its parts: {counts}",
    )


async def _attempt(model: LLMInterface, request: GenerateRequest, what: str) -> tuple[LLMOutcome, list[Message]]:
    checker = StreamChecker(streamed_only=True)
    outcome = await _never_raises(model, request, checker.observe, what)
    _finish(checker, what)
    return outcome, checker.messages


async def _never_raises(
    model: LLMInterface, request: GenerateRequest, emit: Callable[[Message], None], what: str
) -> LLMOutcome:
    outcome: LLMOutcome | None = None
    try:
        with anyio.move_on_after(PATIENCE_S):
            outcome = await model.stream_generate(request, emit)
    except Exception as error:
        raise AssertionError(f"L1: {what} raised {type(error).__name__}: {error}") from error
    if outcome is None:
        raise AssertionError(f"{what} returned nothing, or took longer than {PATIENCE_S:g} s")
    expect(isinstance(outcome, LLMOutcome), f"{what} returned {outcome!r}, not an LLMOutcome")
    expect(outcome.status in _STATUSES, f"P3: {what} ended with the unknown status {outcome.status!r}")
    return outcome


def _finish(checker: StreamChecker, what: str) -> None:
    for message in checker.messages:
        expect(message.origin is None, f"{what} emitted a message with an origin")
        match message.payload:
            case PartialText() | PartialThinking() | PartialToolCall() | TokenUsage():
                pass
            case Text() | Thinking() | InlineThinking() | InlineData() as said:
                expect(said.role == "assistant", f"{what} emitted words of the user")
            case ToolCall(tool_call_id=call_id):
                expect(bool(_LEGAL_ID.match(call_id)), f"L9: {what} has the illegal tool call id {call_id!r}")
            case other:
                raise AssertionError(f"{what} emitted a {type(other).__name__}, which is not for a model to say")
    try:
        checker.finish()
    except AssertionError as error:
        raise AssertionError(f"P8: in {what} {error}") from None


def _expect_history(model: LLMInterface, history: ReadHistory | None, expected: Sequence[Message], when: str) -> None:
    if history is None:
        return
    found = [message.payload for message in history(model)]
    wanted = [message.payload for message in expected]
    expect(found == wanted, f"L1: {when} the history is {found}, and should be {wanted}")


def _answer(said: list[Message]) -> GenerateRequest:
    outputs: list[Message] = [builders.tool_call_output("ok", call.tool_call_id) for call in _calls(said)]
    return GenerateRequest(outputs or [builders.user_text("Go on.")])


def _complete(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if builders.is_complete_model_message(message)]


def _payloads(messages: Sequence[Message]) -> list[CompleteModelPayload]:
    return [message.payload for message in messages if builders.is_complete_model_message(message)]


def _calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [payload for payload in _payloads(messages) if isinstance(payload, ToolCall)]
