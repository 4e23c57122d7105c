"""The streaming discipline of one attempt (P8, P9, L3), the same for each provider.

An adapter says what the provider said (``say``, ``think``, ``open_call``, ``argue``); this class
emits ``start``, ``delta``, ``stop`` and the complete message, keeps one text or thinking segment open
at a time, any number of calls, and closes whatever is open when the attempt ends, for any reason.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, Raw
from msgspec.json import encode

from penguin.protocol.builders import now
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.events import StopReason
from penguin.protocol.interfaces import Emit
from penguin.protocol.messages import (
    Fidelity,
    InlineData,
    InlineThinking,
    Message,
    OmniMessage,
    PartialText,
    PartialThinking,
    PartialToolCall,
    Text,
    Thinking,
    ToolCall,
)


class Segment:
    """One open part of a reply.

    ``fidelity`` may be filled until it closes; ``late_fidelity`` is asked once, then, for data that
    grows with each delta.
    """

    __slots__ = ("fidelity", "late_fidelity", "parts", "source")

    def __init__(self, source: str = "") -> None:
        self.parts: list[str] = []
        self.fidelity: dict[str, Raw] = {}
        self.late_fidelity: Callable[[], dict[str, Raw]] | None = None
        self.source = source

    def content(self) -> str:
        """Everything said so far."""
        return "".join(self.parts)

    def opaque(self) -> Fidelity:
        """The provider's own data as it is stored."""
        fidelity = self.fidelity | self.late_fidelity() if self.late_fidelity else self.fidelity
        return Raw(encode(fidelity)) if fidelity else UNSET


class _TextSegment(Segment):
    __slots__ = ()


class _ThinkingSegment(Segment):
    __slots__ = ()


class CallSegment(Segment):
    """An open tool call with the id it keeps for the whole session (L9)."""

    __slots__ = ("name", "tool_call_id")

    def __init__(self, name: str, tool_call_id: str) -> None:
        super().__init__()
        self.name = name
        self.tool_call_id = tool_call_id


class Segments:
    """Emits the segments of one attempt in legal order.

    Example::

        segments = Segments(emit, ToolCallIdAllocator())
        segments.think("Hm.", "reasoning")
        segments.say("Hello")  # closes the thinking
        segments.close("completed")
    """

    def __init__(self, emit: Emit, ids: ToolCallIdAllocator) -> None:
        self._emit = emit
        self._ids = ids
        self._text: _TextSegment | None = None
        self._thinking: _ThinkingSegment | None = None
        self._open: list[Segment] = []
        self.complete: list[Message] = []
        """The complete messages so far, in the order they were emitted."""
        self.characters = 0
        """How much was said, thought and asked for, for an estimate of the output."""

    def say(self, text: str) -> Segment:
        """Add to the text, opening it if needed."""
        segment = self._text or self._open_text()
        segment.parts.append(text)
        self._emit(OmniMessage(now(), "model_msg", PartialText("assistant", "delta", text)))
        return segment

    def think(self, text: str, source: str) -> Segment:
        """Add to the thinking; another ``source`` (where the provider put it) begins another block."""
        segment = self._thinking
        if segment is None or segment.source != source:
            segment = self._open_thinking(source)
        if text:
            segment.parts.append(text)
            self._emit(OmniMessage(now(), "model_msg", PartialThinking("assistant", "delta", text)))
        return segment

    def open_call(self, name: str, wanted_id: str | None) -> CallSegment:
        """Open a call as soon as its name is known; closes text and thinking."""
        self.close_talk()
        segment = CallSegment(name, self._ids.allocate(wanted_id))
        self._open.append(segment)
        self._emit(
            OmniMessage(now(), "model_msg", PartialToolCall("assistant", "start", "", segment.tool_call_id, name))
        )
        return segment

    def argue(self, call: CallSegment, arguments: str) -> None:
        """Add to a call's arguments."""
        if arguments:
            call.parts.append(arguments)
            payload = PartialToolCall("assistant", "delta", arguments, call.tool_call_id)
            self._emit(OmniMessage(now(), "model_msg", payload))

    def finish_call(self, call: CallSegment) -> None:
        """The protocol says that a call is complete (L3): settle it, unless it was closed before."""
        if call in self._open:
            self._close(call, None)

    def present(self, payload: InlineData | InlineThinking) -> None:
        """Show data that comes whole; closes text and thinking."""
        self.close_talk()
        self._settle(OmniMessage(now(), "model_msg", payload))

    def close_talk(self) -> None:
        """Close the open text or thinking: something else begins."""
        if self._text is not None:
            self._close(self._text, None)
        if self._thinking is not None:
            self._close(self._thinking, None)

    def close(self, status: StopReason) -> None:
        """Close everything, in the order it was opened; synchronous, may be called again."""
        reason = None if status == "completed" else status
        while self._open:
            self._close(self._open[0], reason)

    def spoke(self) -> bool:
        """Whether there are words, calls or data for the user."""
        said = any(_is_for_the_user(message) for message in self.complete)
        return said or any(isinstance(part, CallSegment) for part in self._open) or _has_words(self._text)

    def thought_at_all(self) -> bool:
        """Whether there is thinking."""
        return self._thinking is not None or any(isinstance(each.payload, Thinking) for each in self.complete)

    def text(self) -> Segment | None:
        """The open text, to add to its fidelity."""
        return self._text

    def thinking_source(self) -> str | None:
        """Where the open thinking block comes from; ``None`` when none is open."""
        return self._thinking.source if self._thinking is not None else None

    def thought(self, source: str) -> Segment | None:
        """The open thinking block of ``source``, to add to its fidelity."""
        return self._thinking if self._thinking is not None and self._thinking.source == source else None

    def _open_text(self) -> _TextSegment:
        self.close_talk()
        self._text = segment = _TextSegment()
        self._open.append(segment)
        self._emit(OmniMessage(now(), "model_msg", PartialText("assistant", "start", "")))
        return segment

    def _open_thinking(self, source: str) -> _ThinkingSegment:
        self.close_talk()
        self._thinking = segment = _ThinkingSegment(source)
        self._open.append(segment)
        self._emit(OmniMessage(now(), "model_msg", PartialThinking("assistant", "start", "")))
        return segment

    def _close(self, segment: Segment, reason: StopReason | None) -> None:
        self._open.remove(segment)
        content = segment.content()
        self.characters += len(content)
        match segment:
            case _TextSegment():
                self._text = None
                self._emit(OmniMessage(now(), "model_msg", PartialText("assistant", "stop", "", reason)))
                self._settle(OmniMessage(now(), "model_msg", Text("assistant", content, segment.opaque(), reason)))
            case _ThinkingSegment():
                self._thinking = None
                self._emit(OmniMessage(now(), "model_msg", PartialThinking("assistant", "stop", "", reason)))
                self._settle(OmniMessage(now(), "model_msg", Thinking("assistant", content, segment.opaque(), reason)))
            case CallSegment(name=name, tool_call_id=call_id):
                stop = PartialToolCall("assistant", "stop", "", call_id, stop_reason=reason)
                call = ToolCall("assistant", name, content, call_id, segment.opaque(), reason)
                self._emit(OmniMessage(now(), "model_msg", stop))
                self._settle(OmniMessage(now(), "model_msg", call))
            case _:
                raise AssertionError(segment)

    def _settle(self, message: Message) -> None:
        self.complete.append(message)
        self._emit(message)


def _has_words(text: Segment | None) -> bool:
    return text is not None and text.content().strip() != ""


def _is_for_the_user(message: Message) -> bool:
    match message.payload:
        case Text(text=text):
            return text.strip() != ""
        case ToolCall() | InlineData():
            return True
        case _:
            return False
