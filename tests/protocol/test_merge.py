from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import STOP_REASONS, messages, texts

from penguin.protocol.builders import (
    assistant_text,
    partial_text,
    partial_thinking,
    partial_tool_call,
    partial_tool_call_output,
    thinking,
    tool_call,
    tool_call_output,
    with_origin,
)
from penguin.protocol.merge import PartialAggregator, merge_adjacent
from penguin.protocol.messages import Message

PIECES = st.lists(texts, max_size=2)
REASONS: Any = st.sampled_from(STOP_REASONS)


def segment(kind: str, call_id: str, pieces: list[str], reason: Any) -> list[Message]:
    """The framing of one segment and its complete message, as a producer emits them."""
    content = "".join(pieces)
    match kind:
        case "text":
            deltas = [partial_text("delta", piece) for piece in pieces]
            return [partial_text("start"), *deltas, partial_text("stop", stop_reason=reason),
                    assistant_text(content, stop_reason=reason)]  # fmt: skip
        case "thinking":
            thoughts = [partial_thinking("delta", piece) for piece in pieces]
            return [partial_thinking("start"), *thoughts, partial_thinking("stop", stop_reason=reason),
                    thinking(content, stop_reason=reason)]  # fmt: skip
        case "tool_call":
            parts = [partial_tool_call("delta", call_id, piece) for piece in pieces]
            return [partial_tool_call("start", call_id, name="ls"), *parts,
                    partial_tool_call("stop", call_id, stop_reason=reason),
                    tool_call("ls", content, call_id, stop_reason=reason)]  # fmt: skip
        case _:
            images = ["data:image/png;base64,QQ=="]
            outputs = [partial_tool_call_output("delta", call_id, piece) for piece in pieces]
            return [partial_tool_call_output("start", call_id), *outputs,
                    partial_tool_call_output("delta", call_id, images=images),
                    partial_tool_call_output("stop", call_id, stop_reason=reason),
                    tool_call_output(content, call_id, images=images, stop_reason=reason)]  # fmt: skip


KINDS = ["text", "thinking", "tool_call", "tool_call_output"]


@st.composite
def streams(draw: st.DrawFn) -> list[Message]:
    """Segments that do not share a key, interleaved as parallel tools and a child session interleave."""
    parts = [segment(kind, f"c{n}", draw(PIECES), draw(REASONS)) for n, kind in enumerate(KINDS)]
    parts.append([with_origin(message, "child") for message in segment("text", "", draw(PIECES), draw(REASONS))])
    stream: list[Message] = []
    while any(parts):
        stream.append(draw(st.sampled_from([part for part in parts if part])).pop(0))
    return stream


def content(message: Message) -> tuple[object, object, object]:
    return message.type, message.payload, message.origin


@given(streams())
def test_P11_a_whole_stream_gives_back_its_complete_messages(stream: list[Message]) -> None:
    aggregator = PartialAggregator()
    made = [complete for message in stream if (complete := aggregator.add(message)) is not None]
    # The complete message follows its stop at once, but another producer's may stand between.
    told = [message for message in stream if not hasattr(message.payload, "event_type")]
    assert sorted(map(repr, map(content, made))) == sorted(map(repr, map(content, told)))
    assert aggregator.fragments() == []


@given(streams(), st.data())
def test_P11_any_piece_of_a_stream_is_taken_and_can_be_closed(stream: list[Message], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(stream)))
    end = data.draw(st.integers(begin, len(stream)))
    aggregator = PartialAggregator()
    for message in stream[begin:end]:
        aggregator.add(message)
    still_open = len(aggregator.fragments())
    assert len(aggregator.close("aborted")) == 2 * still_open
    assert aggregator.fragments() == []


@given(st.lists(messages(), max_size=8))
def test_P11_no_sequence_of_messages_raises(stream: list[Message]) -> None:
    aggregator = PartialAggregator()
    for message in stream:
        aggregator.add(message)
    aggregator.close("failed")


@given(streams(), st.data())
def test_P11_a_late_client_reads_on_from_the_accumulated_fragments(stream: list[Message], data: st.DataObject) -> None:
    joined_at = data.draw(st.integers(0, len(stream)))
    early, late = PartialAggregator(), PartialAggregator()
    for message in stream[:joined_at]:
        early.add(message)
    for fragment in early.fragments():
        assert late.add(fragment) is None
    for message in stream[joined_at:]:
        first, second = early.add(message), late.add(message)
        assert (first and content(first)) == (second and content(second))


@given(streams())
def test_P8_merging_deltas_loses_no_character(stream: list[Message]) -> None:
    merged = merge_adjacent(stream)
    assert len(merged) <= len(stream)
    assert completed(merged) == completed(stream)
    rest = [message for message in stream if getattr(message.payload, "event_type", "") != "delta"]
    assert [message for message in merged if getattr(message.payload, "event_type", "") != "delta"] == rest


def completed(stream: list[Message]) -> list[object]:
    aggregator = PartialAggregator()
    made = [aggregator.add(message) for message in stream]
    return [content(complete) for complete in made if complete is not None]


def test_P8_adjacent_deltas_of_one_segment_become_one() -> None:
    pieces: list[Message] = [
        partial_text("delta", "Hel"),
        partial_text("delta", "lo"),
        partial_tool_call("delta", "c", "{"),
    ]
    other = partial_tool_call("delta", "d", "[")
    assert [message.payload for message in merge_adjacent([*pieces, pieces[2], other])] == [
        partial_text("delta", "Hello").payload,
        partial_tool_call("delta", "c", "{{").payload,
        other.payload,
    ]


def test_P10_images_come_in_one_delta_and_are_never_merged() -> None:
    image: Message = partial_tool_call_output("delta", "c", images=["data:a"])
    words: Message = partial_tool_call_output("delta", "c", "x")
    assert merge_adjacent([image, image, words]) == [image, image, words]
