"""A builder for each kind of message, and the guards that tell kinds apart (P15)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penguin.protocol import events as ev
from penguin.protocol.codec import fidelity_bytes
from penguin.protocol.messages import (
    Abort,
    ApprovalDecision,
    CompactionBegin,
    CompactionEnd,
    CompleteModelPayload,
    EventPayload,
    Fidelity,
    ImageUrl,
    InlineData,
    InlineThinking,
    Message,
    ModelPayload,
    OmniMessage,
    PartialModelPayload,
    PartialText,
    PartialThinking,
    PartialToolCall,
    PartialToolCallOutput,
    RequestBegin,
    RequestEnd,
    SessionMeta,
    Subagent,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolCallOutput,
    ToolDefinition,
    UnknownPayload,
    scrub,
)

if TYPE_CHECKING:
    from penguin.protocol.messages import P_co, Role, StopReason, StreamEventType

_COMPLETE = (Text, Thinking, InlineThinking, InlineData, ImageUrl, ToolCall, ToolCallOutput)
_PARTIAL = (PartialText, PartialThinking, PartialToolCall, PartialToolCallOutput)
_EVENT = (
    RequestBegin,
    RequestEnd,
    ApprovalDecision,
    TokenUsage,
    CompactionBegin,
    CompactionEnd,
    Abort,
    Subagent,
)

# What was formatted last, each with its time, as one object: threads may stamp messages too.
_last_second = (0, "")
_last_millisecond = (0, "")


def now() -> str:
    """The current time as the envelope wants it: ISO 8601 UTC, milliseconds, ``Z``."""
    global _last_millisecond  # noqa: PLW0603 - formatting a date a million times a minute is the cost
    millisecond = time.time_ns() // 1_000_000
    known, stamp = _last_millisecond
    if millisecond != known:
        second, rest = divmod(millisecond, 1000)
        stamp = f"{_date_and_time(second)}.{rest:03d}Z"
        _last_millisecond = millisecond, stamp
    return stamp


def _date_and_time(second: int) -> str:
    global _last_second  # noqa: PLW0603 - as above
    known, text = _last_second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _last_second = second, text
    return text


def model_message(payload: ModelPayload) -> OmniMessage[Any]:
    """Wrap a model payload in an envelope stamped now."""
    return OmniMessage(now(), "model_msg", payload)


def event_message(payload: EventPayload) -> OmniMessage[Any]:
    """Wrap an event payload in an envelope stamped now."""
    return OmniMessage(now(), "event_msg", payload)


def _fidelity(value: Fidelity | dict[str, Any] | bytes | None) -> Fidelity:
    match value:
        case None | UnsetType():
            return UNSET
        case Raw():
            return value
        case _:
            return fidelity_bytes(value)


def _abnormal(stop_reason: StopReason | None) -> StopReason | None:
    """An absent stop reason means completed, and so we write it (P3)."""
    return None if stop_reason == "completed" else stop_reason


def user_text(text: str) -> OmniMessage[Text]:
    """Words of the user.

    Example::

        prompt = user_text("Create hello.txt containing hi")
    """
    return model_message(Text("user", scrub(text)))


def assistant_text(
    text: str, *, fidelity: Fidelity | dict[str, Any] | None = None, stop_reason: StopReason | None = None
) -> OmniMessage[Text]:
    """Words of the assistant."""
    return model_message(Text("assistant", scrub(text), _fidelity(fidelity), _abnormal(stop_reason)))


def thinking(
    text: str, *, fidelity: Fidelity | dict[str, Any] | None = None, stop_reason: StopReason | None = None
) -> OmniMessage[Thinking]:
    """Reasoning of the assistant."""
    return model_message(Thinking("assistant", scrub(text), _fidelity(fidelity), _abnormal(stop_reason)))


def inline_thinking(
    data: str,
    mime_type: str,
    *,
    fidelity: Fidelity | dict[str, Any] | None = None,
    stop_reason: StopReason | None = None,
) -> OmniMessage[InlineThinking]:
    """Reasoning in binary form; ``data`` is base64."""
    return model_message(InlineThinking("assistant", data, mime_type, _fidelity(fidelity), _abnormal(stop_reason)))


def inline_data(
    data: str,
    mime_type: str,
    *,
    role: Role = "user",
    fidelity: Fidelity | dict[str, Any] | None = None,
    stop_reason: StopReason | None = None,
) -> OmniMessage[InlineData]:
    """Binary content; ``data`` is base64."""
    return model_message(InlineData(role, data, mime_type, _fidelity(fidelity), _abnormal(stop_reason)))


def image_url(url: str, *, stop_reason: StopReason | None = None) -> OmniMessage[ImageUrl]:
    """An image of the user: a web URL or a base64 data URL."""
    return model_message(ImageUrl("user", url, _abnormal(stop_reason)))


def tool_call(
    name: str,
    arguments: str,
    tool_call_id: str,
    *,
    fidelity: Fidelity | dict[str, Any] | None = None,
    stop_reason: StopReason | None = None,
) -> OmniMessage[ToolCall]:
    """A call; ``arguments`` is the text of a JSON object."""
    return model_message(
        ToolCall("assistant", scrub(name), scrub(arguments), tool_call_id, _fidelity(fidelity), _abnormal(stop_reason))
    )


def tool_call_output(
    output: str,
    tool_call_id: str,
    *,
    images: Sequence[str] | None = None,
    stop_reason: StopReason | None = None,
) -> OmniMessage[ToolCallOutput]:
    """The answer to a call; ``images`` are data URLs."""
    return model_message(
        ToolCallOutput("user", scrub(output), tool_call_id, list(images) if images else None, _abnormal(stop_reason))
    )


def partial_text(
    event_type: StreamEventType, text: str = "", *, stop_reason: StopReason | None = None
) -> OmniMessage[PartialText]:
    """A fragment of assistant text."""
    return model_message(PartialText("assistant", event_type, text, _abnormal(stop_reason)))


def partial_thinking(
    event_type: StreamEventType, text: str = "", *, stop_reason: StopReason | None = None
) -> OmniMessage[PartialThinking]:
    """A fragment of reasoning text."""
    return model_message(PartialThinking("assistant", event_type, text, _abnormal(stop_reason)))


def partial_tool_call(
    event_type: StreamEventType,
    tool_call_id: str,
    arguments: str = "",
    *,
    name: str = "",
    stop_reason: StopReason | None = None,
) -> OmniMessage[PartialToolCall]:
    """A fragment of a call's arguments; give ``name`` on ``start``."""
    return model_message(
        PartialToolCall("assistant", event_type, arguments, tool_call_id, name, _abnormal(stop_reason))
    )


def partial_tool_call_output(
    event_type: StreamEventType,
    tool_call_id: str,
    output: str = "",
    *,
    images: Sequence[str] | None = None,
    stop_reason: StopReason | None = None,
) -> OmniMessage[PartialToolCallOutput]:
    """A fragment of a tool's output."""
    return model_message(
        PartialToolCallOutput(
            "user", event_type, output, tool_call_id, list(images) if images else None, _abnormal(stop_reason)
        )
    )


def request_begin() -> OmniMessage[RequestBegin]:
    """An attempt starts."""
    return event_message(RequestBegin())


def request_end(
    status: StopReason,
    *,
    attempt: int | None = None,
    error: ev.ErrorDetail | None = None,
    retry_in_ms: int | None = None,
    request_digest: str | None = None,
) -> OmniMessage[RequestEnd]:
    """An attempt ended; see :class:`RequestEnd`."""
    return event_message(RequestEnd(status, attempt, error, retry_in_ms, request_digest))


def approval_decision(decision: ev.Decision, tool_call_id: str) -> OmniMessage[ApprovalDecision]:
    """The verdict over a call."""
    return event_message(ApprovalDecision(decision, tool_call_id))


def token_usage(
    session: ev.TokenCounts,
    request: ev.TokenCounts,
    *,
    estimated: bool = False,
    provider: Raw | UnsetType = UNSET,
) -> OmniMessage[TokenUsage]:
    """Usage of the session so far and of this request."""
    return event_message(TokenUsage(session, request, estimated, provider))


def compaction_begin(
    reason: ev.CompactionReason, mode: ev.CompactionMode, *, context: int, turns: int
) -> OmniMessage[CompactionBegin]:
    """Compaction starts."""
    return event_message(CompactionBegin(reason, mode, context, turns))


def compaction_end(
    reason: ev.CompactionReason,
    mode: ev.CompactionMode,
    status: StopReason,
    *,
    attempt: int | None = None,
    error: ev.ErrorDetail | None = None,
) -> OmniMessage[CompactionEnd]:
    """Compaction ended."""
    return event_message(CompactionEnd(reason, mode, status, attempt, error))


def abort(reason: str | UnsetType | None = UNSET) -> OmniMessage[Abort]:
    """The task was interrupted."""
    return event_message(Abort(reason))


def subagent(session_id: str) -> OmniMessage[Subagent]:
    """Pointer to a direct child's session."""
    return event_message(Subagent(session_id))


def session_meta(
    *,
    session_id: str,
    provider: str,
    model_id: str,
    system_prompt: str,
    workspace: str,
    agent_state: str = "",
    model_context_window: float | str | None = None,
    tools: Sequence[ToolDefinition] | None = None,
    thinking_level: str | None = None,
) -> OmniMessage[SessionMeta]:
    """The configuration of one model context."""
    payload = SessionMeta(
        session_id,
        provider,
        model_id,
        system_prompt,
        workspace,
        agent_state,
        model_context_window,
        None if tools is None else list(tools),
        thinking_level,
    )
    return OmniMessage(now(), "session_meta", payload)


def with_origin(message: OmniMessage[P_co], session_id: str) -> OmniMessage[P_co]:
    """Prepend one child session id to the message's origin; unknown fields of an old record stay."""
    origin = [session_id, *(message.origin or [])]
    moved = msgspec.structs.replace(message, origin=origin)
    kept = message.__dict__.get("line")
    if kept is not None:
        fields = msgspec.json.decode(kept, type=dict[str, Raw])
        fields["origin"] = Raw(msgspec.json.encode(origin))
        moved.__dict__["line"] = msgspec.json.encode(fields)
    return moved


def is_partial(message: Message) -> TypeGuard[OmniMessage[PartialModelPayload]]:
    """Whether the message is a streamed fragment."""
    return isinstance(message.payload, _PARTIAL)


def is_complete_model_message(message: Message) -> TypeGuard[OmniMessage[CompleteModelPayload]]:
    """Whether the message is a complete part of the model's context; such messages go to the trace."""
    return isinstance(message.payload, _COMPLETE)


def is_model_message(message: Message) -> TypeGuard[OmniMessage[ModelPayload]]:
    """Whether the message belongs to the model's context, complete or partial."""
    return isinstance(message.payload, _COMPLETE + _PARTIAL)


def is_tool_call(message: Message) -> TypeGuard[OmniMessage[ToolCall]]:
    """Whether the message is a complete tool call."""
    return isinstance(message.payload, ToolCall)


def is_event_message(message: Message) -> TypeGuard[OmniMessage[EventPayload]]:
    """Whether the message is an event beside the context."""
    return isinstance(message.payload, _EVENT)


def is_session_meta(message: Message) -> TypeGuard[OmniMessage[SessionMeta]]:
    """Whether the message opens a context."""
    return isinstance(message.payload, SessionMeta)


def is_unknown(message: Message) -> TypeGuard[OmniMessage[UnknownPayload]]:
    """Whether the message comes from a dialect this version does not know."""
    return isinstance(message.payload, UnknownPayload)
