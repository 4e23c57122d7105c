"""Checks the streaming discipline (P8-P10) of any stream of messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from penguin.protocol.events import CompactionBegin, CompactionEnd, RequestEnd, StopReason
from penguin.protocol.messages import (
    Message,
    PartialModelPayload,
    PartialText,
    PartialThinking,
    PartialToolCall,
    PartialToolCallOutput,
    StreamEventType,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolCallOutput,
)

_Kind: TypeAlias = Literal["text", "thinking", "tool_call", "tool_call_output"]
_Streamable: TypeAlias = Text | Thinking | ToolCall | ToolCallOutput


@dataclass(frozen=True, slots=True)
class _Key:
    """Which segment a message belongs to: one text and one thinking per origin, calls and outputs by id."""

    origin: tuple[str, ...]
    kind: _Kind
    call_id: str = ""

    @property
    def producer(self) -> tuple[tuple[str, ...], str]:
        """Who streams the segment: the model of a session, or one running tool."""
        return (self.origin, self.call_id if self.kind == "tool_call_output" else "")

    def __str__(self) -> str:
        call_id = f" {self.call_id}" if self.call_id else ""
        origin = f" of {'/'.join(self.origin)}" if self.origin else ""
        return f"{self.kind}{call_id}{origin}"


@dataclass(slots=True)
class _Segment:
    name: str = ""
    content: list[str] = field(default_factory=list)
    images: list[str] | None = None
    stopped: bool = False
    stop_reason: StopReason = "completed"


class StreamChecker:
    """Watches a stream and notes every break of the streaming discipline.

    A segment is ``start``, deltas, ``stop``, and its complete message comes right after the stop with
    no other message of the same producer between; the deltas add up to the complete content, the stop
    reasons agree, and at the end nothing is open. Sessions and child sessions may be mixed. Between
    ``compaction_begin`` and ``compaction_end`` only the fragments of the summary are streamed (E21), so
    there a text needs no complete message.

    `observe` never raises, so it can stand wherever an ``emit`` is expected; `finish` raises.

    Args:
        streamed_only: Also complain about text, thinking and calls of the assistant that were not
            streamed. A session's own notices and denials come whole, so this is for models.

    Example::

        checker = StreamChecker()
        outcome = await model.stream_generate(request, checker.observe)
        checker.finish()
    """

    def __init__(self, *, streamed_only: bool = False) -> None:
        self.messages: list[Message] = []
        self.problems: list[str] = []
        self._streamed_only = streamed_only
        self._open: dict[_Key, _Segment] = {}
        self._due: dict[tuple[tuple[str, ...], str], _Key] = {}
        self._compacting: set[tuple[str, ...]] = set()

    @property
    def open_segments(self) -> list[str]:
        """The segments that are started and not yet followed by their complete message."""
        return [str(key) for key in self._open]

    def observe(self, message: Message) -> None:
        """Take the next message of the stream."""
        self.messages.append(message)
        origin = tuple(message.origin or ())
        match message.payload:
            case PartialText() | PartialThinking() | PartialToolCall() | PartialToolCallOutput() as partial:
                self._observe_partial(_key_of_partial(origin, partial), partial)
            case Text(role="assistant") | Thinking() | ToolCall() | ToolCallOutput() as complete:
                self._observe_complete(_key_of_complete(origin, complete), complete)
            case TokenUsage() | RequestEnd():
                self._expect_model_is_silent(origin, message.payload)
            case CompactionBegin():
                self._compacting.add(origin)
            case CompactionEnd():
                self._compacting.discard(origin)
            case _:
                pass

    def finish(self) -> None:
        """Declare the stream ended.

        Raises:
            AssertionError: With every problem on a line of its own.
        """
        problems = [*self.problems, *(f"at the end: {key} was never closed" for key in self._open)]
        if problems:
            raise AssertionError("the stream breaks the streaming discipline:\n" + "\n".join(problems))

    def _observe_partial(self, key: _Key, partial: PartialModelPayload) -> None:
        self._expect_nothing_due(key, partial.event_type)
        match partial.event_type:
            case "start":
                self._start(key, partial)
            case "delta":
                self._extend(key, partial)
            case "stop":
                self._stop(key, partial)

    def _start(self, key: _Key, partial: PartialModelPayload) -> None:
        if key in self._open:
            self._complain(f"{key} starts although it is open")
        if key.kind != "tool_call_output":
            self._expect_no_open_words(key)
        if _content(partial):
            self._complain(f"{key} has content in its start")
        self._open[key] = _Segment()
        if isinstance(partial, PartialToolCall):
            self._open[key].name = partial.name
            if not partial.name:
                self._complain(f"{key} starts without a name")

    def _expect_no_open_words(self, key: _Key) -> None:
        """L3: opening a segment closes an open text or thinking segment first."""
        for other in self._open:
            if other != key and other.origin == key.origin and other.kind in {"text", "thinking"}:
                self._complain(f"{key} starts although {other} is open")

    def _extend(self, key: _Key, partial: PartialModelPayload) -> None:
        segment = self._segment(key, "delta")
        if segment is None:
            return
        segment.content.append(_content(partial))
        if isinstance(partial, PartialToolCall) and partial.name:
            self._complain(f"{key} repeats its name in a delta")
        if isinstance(partial, PartialToolCallOutput) and partial.images is not None:
            if segment.images is not None:
                self._complain(f"{key} has images in more than one delta")
            segment.images = partial.images

    def _stop(self, key: _Key, partial: PartialModelPayload) -> None:
        segment = self._segment(key, "stop")
        if segment is None:
            return
        if _content(partial):
            self._complain(f"{key} has content in its stop")
        if key.kind == "text" and key.origin in self._compacting:
            del self._open[key]
            return
        segment.stopped = True
        segment.stop_reason = partial.stop_reason or "completed"
        self._due[key.producer] = key

    def _segment(self, key: _Key, event: StreamEventType) -> _Segment | None:
        segment = self._open.get(key)
        if segment is None:
            self._complain(f"{key} has a {event} without a start")
        return segment

    def _observe_complete(self, key: _Key, complete: _Streamable) -> None:
        self._expect_nothing_due(key, "complete")
        segment = self._open.pop(key, None)
        if segment is None:
            if self._streamed_only:
                self._complain(f"{key} comes whole, without a stream")
            return
        self._due.pop(key.producer, None)
        if not segment.stopped:
            self._complain(f"{key} is complete without a stop")
        self._compare(key, segment, complete)

    def _compare(self, key: _Key, segment: _Segment, complete: _Streamable) -> None:
        streamed, whole = "".join(segment.content), _complete_content(complete)
        if streamed != whole:
            self._complain(f"{key} streamed {_short(streamed)} but is complete with {_short(whole)}")
        reason = complete.stop_reason or "completed"
        if segment.stopped and segment.stop_reason != reason:
            self._complain(f"{key} stops as {segment.stop_reason} but is complete as {reason}")
        if isinstance(complete, ToolCall) and segment.name != complete.name:
            self._complain(f"{key} started as {segment.name!r} but is complete as {complete.name!r}")
        if isinstance(complete, ToolCallOutput) and (segment.images or None) != (complete.images or None):
            self._complain(f"{key} does not repeat its images")

    def _expect_nothing_due(self, key: _Key, event: str) -> None:
        due = self._due.get(key.producer)
        if due is None or (due == key and event == "complete"):
            return
        self._complain(f"{due} stopped, and a {event} of {key} came before its complete message")
        del self._due[key.producer]

    def _expect_model_is_silent(self, origin: tuple[str, ...], payload: TokenUsage | RequestEnd) -> None:
        for key in self._open:
            if key.origin == origin and key.kind != "tool_call_output":
                self._complain(f"{type(payload).__name__} came while {key} is open")

    def _complain(self, text: str) -> None:
        self.problems.append(f"message {len(self.messages) - 1}: {text}")


def assert_well_framed(messages: Iterable[Message], *, streamed_only: bool = False) -> None:
    """Check a whole stream at once; see `StreamChecker`.

    Raises:
        AssertionError: With every problem on a line of its own.

    Example::

        assert_well_framed([message async for message in stream])
    """
    checker = StreamChecker(streamed_only=streamed_only)
    for message in messages:
        checker.observe(message)
    checker.finish()


def _key_of_partial(origin: tuple[str, ...], partial: PartialModelPayload) -> _Key:
    match partial:
        case PartialText():
            return _Key(origin, "text")
        case PartialThinking():
            return _Key(origin, "thinking")
        case PartialToolCall(tool_call_id=call_id):
            return _Key(origin, "tool_call", call_id)
        case PartialToolCallOutput(tool_call_id=call_id):
            return _Key(origin, "tool_call_output", call_id)


def _key_of_complete(origin: tuple[str, ...], complete: _Streamable) -> _Key:
    match complete:
        case Text():
            return _Key(origin, "text")
        case Thinking():
            return _Key(origin, "thinking")
        case ToolCall(tool_call_id=call_id):
            return _Key(origin, "tool_call", call_id)
        case ToolCallOutput(tool_call_id=call_id):
            return _Key(origin, "tool_call_output", call_id)


def _content(partial: PartialModelPayload) -> str:
    match partial:
        case PartialText(text=content) | PartialThinking(thinking=content):
            return content
        case PartialToolCall(arguments=content) | PartialToolCallOutput(output=content):
            return content


def _complete_content(complete: _Streamable) -> str:
    match complete:
        case Text(text=content) | Thinking(thinking=content):
            return content
        case ToolCall(arguments=content) | ToolCallOutput(output=content):
            return content


def _short(text: str, longest: int = 60) -> str:
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}… ({len(text)} characters)"
