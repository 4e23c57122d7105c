"""What the next request sends of what came before: pure functions of the recorded past (E12, E13, T9).

The texts are for the model. Generated messages take the timestamp of a record, never the clock, so
that a resumed session makes the same bytes as one that lived on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penguin.protocol.blocks import ABORTED_BY_USER, block, inline_block, interrupted
from penguin.protocol.events import Decision, ErrorDetail
from penguin.protocol.messages import (
    Message,
    OmniMessage,
    RequestEnd,
    Text,
    Thinking,
    ToolCall,
    ToolCallOutput,
)

DENIED = "This tool call was denied, by the user or by the approval settings. It was not run."
NEVER_STARTED = "the process ended before this call was started; it did not run"
OUTCOME_UNKNOWN = (
    "the process ended while this call was running; its outcome is unknown, check the state before repeating it"
)
LOST_INPUT = "what was said here could not be read from the records of this conversation"
CUT_OFF = (
    "The reply was cut off at the output limit inside a tool call, and nothing of it was run."
    " Send the call again in smaller pieces: write less at once."
)
NOTHING_BEFORE_THE_LIMIT = (
    "The reply reached the output limit before its first word, and nothing of it was run."
    " Think less, and write less at once."
)
FILTERED = (
    "The provider's content filter stopped the reply inside a tool call, and nothing of it was run."
    " Make the call in another way, or say why it cannot be made."
)
_LABELS = {
    "aborted": "The user stopped this turn before the reply was complete. It holds what was said and done so far.",
    "open": "The process ended in the middle of this turn. It holds what was recorded of it.",
}


@dataclass(slots=True)
class PendingCall:
    """A call, the verdict over it and its answer, as far as they are recorded."""

    message: Message
    call: ToolCall
    decision: Decision | None = None
    output: Message | None = None
    aborted: bool = False


@dataclass(slots=True)
class Attempt:
    """One try of a request: what was sent and what came back before it ended."""

    input: list[Message]
    said: list[Message] = field(default_factory=list)
    calls: list[PendingCall] = field(default_factory=list)
    end: Message | None = None


def placeholder(call: PendingCall) -> Message:
    """The answer to a call whose answer is in no record: says what is known and no more (T9)."""
    if call.decision == "deny":
        text = DENIED
    elif call.aborted:
        text = interrupted(ABORTED_BY_USER)
    elif call.decision == "allow":
        text = interrupted(OUTCOME_UNKNOWN)
    else:
        text = interrupted(NEVER_STARTED)
    payload = ToolCallOutput("user", text, call.call.tool_call_id, stop_reason="aborted")
    return OmniMessage(call.message.timestamp, "model_msg", payload)


def lost_input(timestamp: str) -> Message:
    """Stands for the input of a request whose record cannot be read (T4)."""
    return OmniMessage(timestamp, "model_msg", Text("user", inline_block("note", LOST_INPUT)))


def retried_block(attempts: list[Attempt]) -> Message:
    """One text for the next attempt with what the failed ones already produced."""
    body = _joined([_account(attempt) for attempt in attempts] + _advice(attempts))
    return _at(attempts[-1], block("turn_retried", body))


def closed_turn(
    held: list[Message], attempts: list[Attempt], ending: Literal["open", "failed", "aborted"]
) -> list[Message]:
    """The input of a request that never committed, as input for the next one.

    A request that failed keeps its input as it was, with an account of what came back. One that was
    stopped becomes a single text with the user's words and the partial reply, then the images.
    """
    if ending == "failed":
        produced = any(attempt.said for attempt in attempts)
        return [*held, retried_block(attempts)] if produced else held
    words = [inline_block("user_input", message.payload.text) for message in held if isinstance(message.payload, Text)]
    accounts = [_account(attempt) for attempt in attempts]
    body = _joined([inline_block("note", _LABELS[ending]), *words, *accounts])
    images = [message for message in held if not isinstance(message.payload, Text)]
    return [_at(attempts[-1], block("turn_aborted", body)), *images]


def _account(attempt: Attempt) -> str:
    parts = []
    answers = {id(call.message): call for call in attempt.calls}
    for message in attempt.said:
        match message.payload:
            case Text(text=text):
                parts.append(inline_block("text", text))
            case Thinking(thinking=text) if text:
                parts.append(inline_block("thinking", text))
            case ToolCall() as call:
                parts.append(inline_block("tool_call", f"{call.name} {call.arguments}"))
                parts.append(_answer(answers.get(id(message)), call))
            case _:
                pass
    return _joined(parts)


def _answer(pending: PendingCall | None, call: ToolCall) -> str:
    if pending is not None and pending.output is not None and isinstance(pending.output.payload, ToolCallOutput):
        return inline_block("tool_call_output", pending.output.payload.output)
    if pending is not None and pending.decision == "allow":
        return inline_block("note", OUTCOME_UNKNOWN)
    if call.stop_reason not in (None, "completed"):
        return inline_block("note", "this call was cut off and not run")
    return inline_block("note", "this call was not run")


def _advice(attempts: list[Attempt]) -> list[str]:
    # A malformed attempt that is retried without a wait is the protocol's sign of a reply cut at the limit.
    last = attempts[-1].end
    end = last.payload if last is not None else None
    match end:
        case RequestEnd(status="malformed", retry_in_ms=0, error=ErrorDetail(kind="refused")):
            return [inline_block("note", FILTERED)]
        case RequestEnd(status="malformed", retry_in_ms=0):
            # Some protocols do not show a call that is cut at all (Gemini).
            spoke = any(isinstance(message.payload, Text | ToolCall) for message in attempts[-1].said)
            return [inline_block("note", CUT_OFF if spoke else NOTHING_BEFORE_THE_LIMIT)]
        case _:
            return []


def _joined(parts: list[str]) -> str:
    return "\n".join(part for part in parts if part)


def _at(attempt: Attempt, text: str) -> Message:
    timestamp = attempt.end.timestamp if attempt.end else _latest(attempt)
    return OmniMessage(timestamp, "model_msg", Text("user", text))


def _latest(attempt: Attempt) -> str:
    known = [*attempt.input, *attempt.said]
    return known[-1].timestamp if known else ""


__all__ = [
    "DENIED",
    "Attempt",
    "PendingCall",
    "closed_turn",
    "placeholder",
    "retried_block",
]
