"""Streams of Anthropic Messages that were damaged on the way: whatever arrives, an attempt ends in one of five ways.

The fold is fed without a transport, so that many streams take little time; how the model turns a
conclusion into an outcome is repeated here only as far as it decides what is open at the end.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.anthropic_kit import PING, STOP, begin, call, delta, end, error, finish, start, text, thinking

from penguin.llm.adapter import Conclusion
from penguin.llm.providers.anthropic_messages_fold import MessagesFold
from penguin.llm.segments import Segments
from penguin.llm.sse import EventSplitter
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.events import StopReason
from penguin.protocol.messages import Message, ToolCall
from penguin.testing.framing import assert_well_framed

SEARCH = begin(2, "server_tool_use", id="s", name="web_search", input={})
CLEAN: list[bytes] = [
    start(input_tokens=3)
    + PING
    + thinking(0, "Let me ", "see… 😀", signature="SIG+/=")
    + text(1, "I will ", "look: ", "ü")
    + call(2, "read_file", '{"path": "a', '.txt"', "}", id="c1")
    + call(3, "exec_command", '{"command":', ' "rm -rf build"}', id="c2")
    + finish("tool_use"),
    start() + begin(0, "redacted_thinking", data="Zm9v") + end(0) + text(1, "Plain.") + finish("end_turn"),
    start()
    + call(0, "list_tasks", id="c1")
    + text(1, "then")
    + call(2, "write_file", '{"a', id="c2")
    + finish("max_tokens"),
    start() + call(0, "exec_command", '{"command":"rm -rf build"}') + finish("max_tokens"),
    start()
    + SEARCH
    + delta(2, "input_json_delta", partial_json='{"q":1}')
    + end(2)
    + text(3, "a")
    + finish("pause_turn"),
    start() + text(0, "Par") + error("overloaded_error", "Overloaded"),
    start() + text(0, "No.") + call(1, "read_file", "{}") + finish("refusal"),
]


def status_of(conclusion: Conclusion) -> StopReason:
    if conclusion.rejection is not None:
        return "failed"
    if not conclusion.delivered or conclusion.cut_off or conclusion.unreadable:
        return "malformed"
    return "failed" if conclusion.refusal else "completed"


def folded(chunks: list[bytes]) -> tuple[StopReason, list[Message]]:
    emitted: list[Message] = []
    segments = Segments(emitted.append, ToolCallIdAllocator())
    fold, splitter = MessagesFold(segments), EventSplitter()
    for chunk in chunks:
        for parsed in splitter.feed(chunk):
            fold.fold(parsed)
    for parsed in splitter.finish():
        fold.fold(parsed)
    status = status_of(fold.conclude())
    segments.close(status)
    return status, emitted


def events_of(stream: bytes) -> list[bytes]:
    return [part + b"\n\n" for part in stream.split(b"\n\n") if part]


def executed(emitted: list[Message]) -> list[ToolCall]:
    return [m.payload for m in emitted if isinstance(m.payload, ToolCall) and m.payload.stop_reason is None]


def ids_of_calls(events: list[bytes]) -> list[str]:
    return re.findall(r'"tool_use", "id": "(\w+)"', b"".join(events).decode(errors="replace"))


def unproven(events: list[bytes]) -> set[str]:
    """Calls after which nothing else began: only a good end can tell that they are whole."""
    others = [
        number for number, one in enumerate(events) if re.search(rb'_start", "index"|text_delta|thinking_delta', one)
    ]
    last = max((number for number in others if b"tool_use" not in events[number]), default=-1)
    return set(ids_of_calls(events[last + 1 :])) - set(ids_of_calls(events[: last + 1]))


def check(events: list[bytes], status: StopReason, emitted: list[Message]) -> None:
    assert status in {"completed", "failed", "malformed"}
    assert_well_framed(emitted)
    assert len(executed(emitted)) <= b"".join(events).count(b'"content_block_stop"')
    if status != "completed":
        assert unproven(events).isdisjoint(call.tool_call_id for call in executed(emitted))


clean = st.sampled_from(CLEAN)


@given(clean, st.data())
def test_split_at_any_byte_gives_the_same(stream: bytes, data: st.DataObject) -> None:
    at = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *at], [*at, len(stream)], strict=True)]
    whole, cut = folded([stream]), folded(chunks)
    assert cut[0] == whole[0]
    assert [m.payload for m in cut[1]] == [m.payload for m in whole[1]]


def places(stream: bytes) -> set[int]:
    """Every 13th byte, and the neighbourhood of each end of an event."""
    ends = [found.start() for found in re.finditer(rb"\n\n", stream)]
    near = {end + off for end in ends for off in (-3, -1, 0, 1, 2, 3) if 0 <= end + off < len(stream)}
    return near | set(range(0, len(stream), 13))


@pytest.mark.parametrize("stream", CLEAN)
def test_cut_anywhere_nothing_half_runs(stream: bytes) -> None:
    _check_cuts(stream, places(stream))


@pytest.mark.long
@pytest.mark.parametrize("stream", CLEAN)
def test_cut_at_every_byte_nothing_half_runs(stream: bytes) -> None:
    _check_cuts(stream, set(range(len(stream))))


def _check_cuts(stream: bytes, lengths: set[int]) -> None:
    whole = {(c.tool_call_id, c.arguments) for c in executed(folded([stream])[1])}
    delivered_at = stream.find(b'"message_stop"')
    for length in lengths:
        status, emitted = folded([stream[:length]])
        check(events_of(stream[:length]), status, emitted)
        assert {(c.tool_call_id, c.arguments) for c in executed(emitted)} <= whole
        if delivered_at < 0 or length <= delivered_at:
            assert status != "completed"


@given(clean, st.data())
def test_events_twice_dropped_or_swapped(stream: bytes, data: st.DataObject) -> None:
    events = events_of(stream)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(events) - 1)) if events else 0
        match data.draw(st.sampled_from(["twice", "drop", "swap", "move"])):
            case "twice":
                events[at : at + 1] = events[at : at + 1] * 2
            case "drop":
                del events[at : at + 1]
            case "swap":
                events[at : at + 2] = events[at : at + 2][::-1]
            case _:
                moved = events[at : at + 1]
                del events[at : at + 1]
                to = data.draw(st.integers(0, len(events)))
                events[to:to] = moved
    status, emitted = folded(events)
    check(events, status, emitted)


@given(clean, st.data())
def test_any_byte_changed(stream: bytes, data: st.DataObject) -> None:
    damaged = bytearray(stream)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    status, emitted = folded([bytes(damaged)])
    assert status in {"completed", "failed", "malformed"}
    assert_well_framed(emitted)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
json_values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=5), scalars, max_size=2)
members = st.sampled_from(
    ["index", "delta", "content_block", "message", "usage", "error", "type", "text", "thinking", "partial_json",
     "signature", "citation", "stop_reason", "stop_details", "name", "id", "input", "citations", "content"]
)  # fmt: skip
kinds = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
     "message_stop", "error", "message", "ping", ""]
)  # fmt: skip
block_types = st.sampled_from(["text", "thinking", "tool_use", "redacted_thinking", "text_delta", "input_json_delta"])


inner = st.dictionaries(members, json_values | block_types, max_size=3)
odd_events = st.builds(
    lambda kind, value: b"data: " + json.dumps({"type": kind} | value).encode() + b"\n\n",
    kinds,
    st.dictionaries(members, json_values | inner, max_size=3),
)
"""Events with the right names and anything at all as values."""


@given(st.lists(odd_events, max_size=5))
def test_events_of_any_shape_never_raise(events: list[bytes]) -> None:
    status, emitted = folded([*events, STOP])
    assert status in {"completed", "failed", "malformed"}
    assert_well_framed(emitted)
