"""The OmniMessage envelope and the payloads that live inside a model's context.

One shape serves the SDK stream, the trace file and the server's event stream. A message is an
envelope (``timestamp``, ``type``, ``payload``, optional ``origin``) around exactly one payload
struct; code reads it with ``match``::

    match message.payload:
        case Text(role="assistant", text=text):
            print(text)
        case ToolCall(name=name, arguments=arguments):
            print(f"{name}({arguments})")

Absent optional fields are ``None`` in Python (``UNSET`` for the opaque ``fidelity``) and are left
out of the encoded line.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penguin.protocol.events import (
    Abort,
    ApprovalDecision,
    CompactionBegin,
    CompactionEnd,
    EventPayload,
    RequestBegin,
    RequestEnd,
    StopReason,
    Subagent,
    TokenCounts,
    TokenUsage,
)

__all__ = [
    "THINKING_LEVELS",
    "UNSET",
    "Abort",
    "ApprovalDecision",
    "CompactionBegin",
    "CompactionEnd",
    "CompleteModelPayload",
    "EventPayload",
    "Fidelity",
    "ImageUrl",
    "InlineData",
    "InlineThinking",
    "Message",
    "MessageType",
    "ModelPayload",
    "OmniMessage",
    "PartialModelPayload",
    "PartialText",
    "PartialThinking",
    "PartialToolCall",
    "PartialToolCallOutput",
    "Payload",
    "RequestBegin",
    "RequestEnd",
    "Role",
    "SessionMeta",
    "StopReason",
    "StreamEventType",
    "Subagent",
    "Text",
    "Thinking",
    "ThinkingLevel",
    "TokenCounts",
    "TokenUsage",
    "ToolCall",
    "ToolCallOutput",
    "ToolDefinition",
    "UnknownPayload",
]

MessageType: TypeAlias = Literal["session_meta", "model_msg", "event_msg"]
Role: TypeAlias = Literal["user", "assistant"]
StreamEventType: TypeAlias = Literal["start", "delta", "stop"]
ThinkingLevel: TypeAlias = Literal["none", "low", "medium", "high", "xhigh", "max"]
THINKING_LEVELS: Final[tuple[ThinkingLevel, ...]] = get_args(ThinkingLevel)
"""Every level, from the least to the most."""

Fidelity: TypeAlias = Raw | UnsetType
"""A provider's own JSON object, kept as minified bytes and never interpreted outside its adapter."""


class ToolDefinition(Struct, omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """A tool as the model sees it: ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any] | None = None


class SessionMeta(Struct, omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """The runtime configuration of one model context; the first record of every trace file.

    ``model_context_window`` is in tokens; traces of the original may hold a string. ``tools`` and
    ``thinking_level`` are absent in some old traces.
    """

    session_id: str
    provider: str
    model_id: str
    system_prompt: str
    workspace: str
    agent_state: str = ""
    model_context_window: int | float | str | None = None
    tools: list[ToolDefinition] | None = None
    thinking_level: str | None = None


# Tagged structs are strict on purpose: an unknown field raises while decoding, and the codec then
# takes the slow road that keeps the whole line (see codec.py). msgspec would drop it silently.


class Text(Struct, tag_field="type", tag="text", omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """Words of the user or the assistant."""

    role: Role
    text: str
    fidelity: Fidelity = UNSET
    stop_reason: StopReason | None = None


class Thinking(Struct, tag_field="type", tag="thinking", omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """Reasoning text; may be empty when only ``fidelity`` matters (signed or encrypted reasoning)."""

    role: Literal["assistant"]
    thinking: str
    fidelity: Fidelity = UNSET
    stop_reason: StopReason | None = None


class InlineThinking(
    Struct, tag_field="type", tag="inline_thinking", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """Reasoning in binary form: ``data`` is base64."""

    role: Literal["assistant"]
    data: str
    mime_type: str
    fidelity: Fidelity = UNSET
    stop_reason: StopReason | None = None


class InlineData(
    Struct, tag_field="type", tag="inline_data", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """Other binary content: ``data`` is base64."""

    role: Role
    data: str
    mime_type: str
    fidelity: Fidelity = UNSET
    stop_reason: StopReason | None = None


class ImageUrl(Struct, tag_field="type", tag="image_url", omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """An image of the user: a web URL or a ``data:<mime>;base64,…`` URL."""

    role: Literal["user"]
    image_url: str
    stop_reason: StopReason | None = None


class ToolCall(Struct, tag_field="type", tag="tool_call", omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """A call the model asks for; ``arguments`` is the text of a JSON object."""

    role: Literal["assistant"]
    name: str
    arguments: str
    tool_call_id: str
    fidelity: Fidelity = UNSET
    stop_reason: StopReason | None = None


class ToolCallOutput(
    Struct, tag_field="type", tag="tool_call_output", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """The answer to one call; ``images`` are data URLs."""

    role: Literal["user"]
    output: str
    tool_call_id: str
    images: list[str] | None = None
    stop_reason: StopReason | None = None


class PartialText(
    Struct,
    tag_field="type",
    tag="partial_text",
    omit_defaults=True,
    frozen=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """A fragment of assistant text; ``text`` is what this fragment adds."""

    role: Role
    event_type: StreamEventType
    text: str
    stop_reason: StopReason | None = None


class PartialThinking(
    Struct,
    tag_field="type",
    tag="partial_thinking",
    omit_defaults=True,
    frozen=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """A fragment of reasoning text."""

    role: Literal["assistant"]
    event_type: StreamEventType
    thinking: str
    stop_reason: StopReason | None = None


class PartialToolCall(
    Struct,
    tag_field="type",
    tag="partial_tool_call",
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """A fragment of a call's arguments; ``name`` is filled on ``start`` only."""

    role: Literal["assistant"]
    event_type: StreamEventType
    arguments: str
    tool_call_id: str
    name: str = ""
    stop_reason: StopReason | None = None


class PartialToolCallOutput(
    Struct,
    tag_field="type",
    tag="partial_tool_call_output",
    omit_defaults=True,
    frozen=True,
    forbid_unknown_fields=True,
):
    """A fragment of a tool's output; images come whole, in one delta."""

    role: Literal["user"]
    event_type: StreamEventType
    output: str
    tool_call_id: str
    images: list[str] | None = None
    stop_reason: StopReason | None = None


class UnknownPayload(Struct, frozen=True):
    """A payload of a dialect this version does not know: kept, never interpreted.

    ``raw`` holds the minified JSON of the payload.
    """

    type: str
    raw: Raw


CompleteModelPayload: TypeAlias = Text | Thinking | InlineThinking | InlineData | ImageUrl | ToolCall | ToolCallOutput
PartialModelPayload: TypeAlias = PartialText | PartialThinking | PartialToolCall | PartialToolCallOutput
ModelPayload: TypeAlias = CompleteModelPayload | PartialModelPayload
Payload: TypeAlias = SessionMeta | ModelPayload | EventPayload | UnknownPayload

P_co = TypeVar("P_co", bound=Payload, covariant=True)


class OmniMessage(Struct, Generic[P_co], frozen=True, omit_defaults=True, dict=True):
    """The one message of Penguin.

    ``timestamp`` is ISO 8601 UTC with milliseconds and ``Z``. ``origin`` is the chain of child
    session ids, outermost first; ``None`` means the main session (never an empty list).

    Example::

        message = user_text("List the files here")
        assert message.type == "model_msg" and message.origin is None
    """

    timestamp: str
    type: MessageType
    payload: P_co
    origin: list[str] | None = None

    @cached_property
    def line(self) -> bytes:
        """The encoded message without a newline: made once, shared by trace and wire (P14)."""
        return encode_message(self)


Message: TypeAlias = OmniMessage[Payload]
"""A message with any payload: what streams, traces and callbacks carry."""

_encoder = msgspec.json.Encoder()


class _Envelope(Struct, omit_defaults=True):
    timestamp: str
    type: str
    payload: Raw
    origin: list[str] | None = None


def encode_message(message: OmniMessage[Payload]) -> bytes:
    """Encode ``message`` as one line of UTF-8 JSON without the newline; never raises for text."""
    if isinstance(message.payload, UnknownPayload):
        return _encoder.encode(_Envelope(message.timestamp, message.type, message.payload.raw, message.origin))
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        # A lone surrogate slipped past the places where text enters: a damaged character is
        # better than a lost record.
        return _encoder.encode(_scrubbed(message))


def _scrubbed(message: OmniMessage[Payload]) -> OmniMessage[Payload]:
    changes = {
        field: scrub_value(getattr(message.payload, field))
        for field in message.payload.__struct_fields__
        if not isinstance(getattr(message.payload, field), Raw | UnsetType)
    }
    payload = msgspec.structs.replace(message.payload, **changes)
    return msgspec.structs.replace(message, payload=payload, origin=scrub_value(message.origin))


def scrub_value(value: Any) -> Any:
    """The same value with every string inside it scrubbed; see :func:`scrub`."""
    match value:
        case str():
            return scrub(value)
        case list():
            return [scrub_value(item) for item in value]
        case dict():
            return {scrub_value(key): scrub_value(item) for key, item in value.items()}
        case Struct():
            return msgspec.structs.replace(
                value, **{field: scrub_value(getattr(value, field)) for field in value.__struct_fields__}
            )
        case _:
            return value


def scrub(text: str) -> str:
    r"""Replace lone surrogates by U+FFFD; text from a provider, tool, file or terminal passes here once.

    Example::

        assert scrub("a\ud800") == "a\ufffd"
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        # utf-16 with surrogatepass joins real pairs and leaves the lone halves for "replace".
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
