"""Data that knows how to merge with the next piece of itself.

``merge_adjacent`` joins adjacent deltas of one segment (for readers that lag); ``PartialAggregator``
turns a stream of partials into complete messages (for clients that joined late or lost one).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

import msgspec

from penguin.protocol.builders import (
    assistant_text,
    partial_text,
    partial_thinking,
    partial_tool_call,
    partial_tool_call_output,
    thinking,
    tool_call,
    tool_call_output,
)
from penguin.protocol.messages import (
    Message,
    OmniMessage,
    PartialModelPayload,
    PartialText,
    PartialThinking,
    PartialToolCall,
    PartialToolCallOutput,
    StopReason,
)

SegmentKey: TypeAlias = tuple[tuple[str, ...], str, str]
"""Origin chain, kind of segment, and the tool call id for tool segments."""


def segment_key(message: Message) -> SegmentKey | None:
    """Which segment a partial belongs to; ``None`` for anything else."""
    payload = message.payload
    return _key_of(payload, message.origin) if isinstance(payload, _PARTIALS) else None


def _key_of(payload: PartialModelPayload, origin: list[str] | None) -> SegmentKey:
    child = tuple(origin) if origin else ()
    match payload:
        case PartialText():
            return child, "text", ""
        case PartialThinking():
            return child, "thinking", ""
        case PartialToolCall(tool_call_id=call_id):
            return child, "tool_call", call_id
        case PartialToolCallOutput(tool_call_id=call_id):
            return child, "tool_call_output", call_id


_TEXT: SegmentKey = ((), "text", "")
"""By far the most fragments are of this one; each would make the same key anew."""

_PARTIALS = (PartialText, PartialThinking, PartialToolCall, PartialToolCallOutput)
_CONTENT: dict[type, str] = {
    PartialText: "text",
    PartialThinking: "thinking",
    PartialToolCall: "arguments",
    PartialToolCallOutput: "output",
}


def merge_adjacent(messages: Iterable[Message]) -> list[Message]:
    """The same stream with adjacent deltas of one segment joined; everything else stays as it is.

    Linear in the content, since a run is joined once.

    Example::

        merge_adjacent([partial_text("delta", "Hel"), partial_text("delta", "lo")])  # one delta "Hello"
    """
    merged: list[Message] = []
    for key, run in groupby(messages, _joinable):
        deltas = list(run)
        merged += deltas if key is None or len(deltas) == 1 else [_joined(deltas)]
    return merged


def _joinable(message: Message) -> SegmentKey | None:
    payload = message.payload
    if not isinstance(payload, _PARTIALS) or payload.event_type != "delta":
        return None
    if isinstance(payload, PartialToolCallOutput) and payload.images:
        return None
    return segment_key(message)


def _joined(deltas: list[Message]) -> Message:
    first = deltas[0]
    field_name = _CONTENT[type(first.payload)]
    content = "".join(getattr(delta.payload, field_name) for delta in deltas)
    payload = msgspec.structs.replace(first.payload, **{field_name: content})
    return OmniMessage(first.timestamp, first.type, payload, first.origin)


@dataclass(slots=True)
class _Segment:
    first: Message
    parts: list[str] = field(default_factory=list)
    images: list[str] | None = None
    name: str = ""


class PartialAggregator:
    """Collects partials by segment.

    Feeding it any part of any stream never raises: a segment whose ``start`` was missed begins with
    its first fragment, a ``start`` on an open segment begins it anew.

    Example::

        aggregator = PartialAggregator()
        for message in stream:
            complete = aggregator.add(message)   # the message, when this fragment closed a segment
    """

    def __init__(self) -> None:
        self._open: dict[SegmentKey, _Segment] = {}

    def add(self, message: Message) -> Message | None:
        """Take one message; returns the complete message when it closes a segment."""
        payload = message.payload
        if not isinstance(payload, _PARTIALS):
            return None
        key = _TEXT if type(payload) is PartialText and not message.origin else _key_of(payload, message.origin)
        segment = self._open.get(key)
        if segment is None or payload.event_type == "start":
            segment = self._open[key] = _Segment(message)
        self._append(segment, payload)
        if payload.event_type != "stop":
            return None
        del self._open[key]
        return _complete(segment, payload.stop_reason)

    def fragments(self) -> list[Message]:
        """One accumulated delta for each open segment, in opening order."""
        return [_accumulated(segment) for segment in self._open.values()]

    def close(self, stop_reason: StopReason) -> list[Message]:
        """End every open segment: its ``stop`` and the complete message, in opening order."""
        closing: list[Message] = []
        for segment in self._open.values():
            closing += [_stop(segment, stop_reason), _complete(segment, stop_reason)]
        self._open.clear()
        return closing

    @staticmethod
    def _append(segment: _Segment, payload: PartialModelPayload) -> None:
        match payload:
            case PartialText():
                segment.parts.append(payload.text)
            case PartialThinking(thinking=text):
                segment.parts.append(text)
            case PartialToolCall(arguments=text, name=name):
                segment.parts.append(text)
                segment.name = segment.name or name
            case PartialToolCallOutput(output=text, images=images):
                segment.parts.append(text)
                segment.images = images or segment.images


def _complete(segment: _Segment, stop_reason: StopReason | None) -> Message:
    content = "".join(segment.parts)
    complete: Message
    match segment.first.payload:
        case PartialText():
            complete = assistant_text(content, stop_reason=stop_reason)
        case PartialThinking():
            complete = thinking(content, stop_reason=stop_reason)
        case PartialToolCall(tool_call_id=call_id):
            complete = tool_call(segment.name, content, call_id, stop_reason=stop_reason)
        case PartialToolCallOutput(tool_call_id=call_id):
            complete = tool_call_output(content, call_id, images=segment.images, stop_reason=stop_reason)
        case _:  # pragma: no cover - segments are opened by partials only
            raise AssertionError(segment.first)
    return msgspec.structs.replace(complete, origin=segment.first.origin)


def _stop(segment: _Segment, stop_reason: StopReason) -> Message:
    first = segment.first
    origin_less: Message
    match first.payload:
        case PartialText():
            origin_less = partial_text("stop", stop_reason=stop_reason)
        case PartialThinking():
            origin_less = partial_thinking("stop", stop_reason=stop_reason)
        case PartialToolCall(tool_call_id=call_id):
            origin_less = partial_tool_call("stop", call_id, stop_reason=stop_reason)
        case PartialToolCallOutput(tool_call_id=call_id):
            origin_less = partial_tool_call_output("stop", call_id, stop_reason=stop_reason)
        case _:  # pragma: no cover - segments are opened by partials only
            raise AssertionError(first)
    return msgspec.structs.replace(origin_less, origin=first.origin)


def _accumulated(segment: _Segment) -> Message:
    content = "".join(segment.parts)
    first = segment.first
    match first.payload:
        case PartialText() as payload:
            delta: PartialModelPayload = msgspec.structs.replace(payload, event_type="delta", text=content)
        case PartialThinking() as payload:
            delta = msgspec.structs.replace(payload, event_type="delta", thinking=content)
        case PartialToolCall() as payload:
            delta = msgspec.structs.replace(payload, event_type="delta", arguments=content, name=segment.name)
        case PartialToolCallOutput() as payload:
            delta = msgspec.structs.replace(payload, event_type="delta", output=content, images=segment.images)
        case _:  # pragma: no cover - segments are opened by partials only
            raise AssertionError(first)
    return OmniMessage(first.timestamp, first.type, delta, first.origin)
