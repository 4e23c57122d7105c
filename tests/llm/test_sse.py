from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.llm.sse import EventSplitter, EventTooLarge, StreamEvent


def split(*chunks: bytes) -> list[StreamEvent]:
    splitter = EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events + splitter.finish()


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in split(*chunks)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": ping\n\ndata: a\n\n: bye\n\n", [b"a"]),
        (b": ping\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data:\n\ndata: \n\ndata\n\ndata: a\n\n", [b"a"]),
        (b"event: ping\n\n\n\n\ndata: a\n\n", [b"a"]),
        (b"id: 7\nretry: 100\ndata: a\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: [DONE]\n\njunk", [b"[DONE]"]),
        (b"", []),
        (b"\n\n\n", []),
        (b"<html>\n\n</html>", []),
    ],
)
def test_all_sse_framing(stream: bytes, expected: list[bytes]) -> None:
    assert data(stream) == expected
    assert data(*(stream[index : index + 1] for index in range(len(stream)))) == expected


def test_the_event_name_is_kept() -> None:
    assert split(b'event: error\ndata: {"a":1}\n\n') == [StreamEvent(b'{"a":1}', "error")]


def test_an_event_that_ends_with_a_lone_cr_is_not_held_back() -> None:
    assert [event.data for event in EventSplitter().feed(b"data: a\r\r")] == [b"a"]


@given(st.data())
def test_cuts_anywhere_change_nothing(draw: st.DataObject) -> None:
    stream = "\ufeff: hi\r\n\r\ndata: ✅ naïve 你😀\r\n\r\ndata:x\rdata: y\r\r\nevent: e\ndata: z\n\n".encode()
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(*chunks) == split(stream)
    assert data(stream) == ["✅ naïve 你😀".encode(), b"x\ny", b"z"]


def test_D14_a_line_of_megabytes_costs_its_length() -> None:
    def seconds(size: int) -> float:
        stream = b"data: " + b"a" * size + b"\n\n"
        started = time.process_time()
        events = data(*(stream[index : index + 4096] for index in range(0, len(stream), 4096)))
        assert len(events[0]) == size
        return time.process_time() - started

    seconds(1_000_000)
    small, large = min(seconds(2_000_000) for _ in range(3)), min(seconds(16_000_000) for _ in range(3))
    assert large < 8 * 4 * max(small, 0.001)  # a quadratic splitter would need 64 times


def test_one_event_cannot_eat_the_memory() -> None:
    splitter = EventSplitter(limit=1000)
    for _ in range(10):
        splitter.feed(b"x" * 100)
    with pytest.raises(EventTooLarge, match="1000"):
        splitter.feed(b"x")
