from __future__ import annotations

import pytest

from penguin.protocol import builders as b
from penguin.protocol.messages import Message
from penguin.testing import StreamChecker, assert_well_framed, usage

COUNTS = usage(output=1)


def text(*deltas: str) -> list[Message]:
    whole = "".join(deltas)
    return [
        b.partial_text("start"),
        *(b.partial_text("delta", d) for d in deltas),
        b.partial_text("stop"),
        b.assistant_text(whole),
    ]


def call(call_id: str, arguments: str = "{}") -> list[Message]:
    return [
        b.partial_tool_call("start", call_id, name="t"),
        b.partial_tool_call("delta", call_id, arguments),
        b.partial_tool_call("stop", call_id),
        b.tool_call("t", arguments, call_id),
    ]


def output(call_id: str, *deltas: str) -> list[Message]:
    return [
        b.partial_tool_call_output("start", call_id),
        *(b.partial_tool_call_output("delta", call_id, d) for d in deltas),
        b.partial_tool_call_output("stop", call_id),
        b.tool_call_output("".join(deltas), call_id),
    ]


def woven(*streams: list[Message]) -> list[Message]:
    longest = max(len(stream) for stream in streams)
    return [stream[i] for i in range(longest) for stream in streams if i < len(stream)]


IMAGE = "data:image/png;base64,AA=="
WELL_FRAMED: dict[str, list[Message]] = {
    "nothing": [],
    "text": text("a", "b"),
    "text without deltas": text(),
    "completed said and unsaid": [
        b.partial_text("start"),
        b.partial_text("stop", stop_reason="completed"),
        b.assistant_text(""),
    ],
    "aborted": [
        b.partial_thinking("start"),
        b.partial_thinking("stop", stop_reason="aborted"),
        b.thinking("", stop_reason="aborted"),
    ],
    "two outputs of two tools at once": woven(output("1", "a"), output("2", "b")),
    "an output while the model speaks": woven(output("1", "a"), text("b")),
    "calls open in parallel": [*call("1")[:2], *call("2"), *call("1")[2:]],
    "a child beside its parent": woven(text("a", "b"), [b.with_origin(m, "child") for m in text("a", "b")]),
    "images": [
        b.partial_tool_call_output("start", "1"),
        b.partial_tool_call_output("delta", "1", "x", images=[IMAGE]),
        b.partial_tool_call_output("stop", "1"),
        b.tool_call_output("x", "1", images=[IMAGE]),
    ],
    "the words of a summary": [
        b.compaction_begin("manual", "summarize", context=1, turns=1),
        *text("a")[:-1],
        b.token_usage(COUNTS, COUNTS),
        b.compaction_end("manual", "summarize", "completed"),
        *text("b"),
    ],
    "a denial comes whole": [*call("1"), b.tool_call_output("denied", "1", stop_reason="aborted")],
    "words of the user are nobody's segment": [*text("a")[:1], b.user_text("hi"), *text("a")[1:]],
}

BROKEN: list[tuple[str, list[Message], str]] = [
    ("open at the end", text("a")[:2], "text was never closed"),
    ("no complete message", text("a")[:3], "text was never closed"),
    ("delta without start", text("a")[1:], "delta without a start"),
    ("stop without start", [b.partial_text("stop")], "stop without a start"),
    ("started twice", [b.partial_text("start"), *text("a")], "starts although it is open"),
    ("complete without stop", [*text("a")[:2], b.assistant_text("a")], "complete without a stop"),
    ("other content", [*text("a")[:3], b.assistant_text("b")], "streamed 'a' but is complete with 'b'"),
    (
        "other stop reason",
        [*text("a")[:2], b.partial_text("stop", stop_reason="timeout"), b.assistant_text("a")],
        "stops as timeout but is complete as completed",
    ),
    ("other name", [*call("1")[:3], b.tool_call("u", "{}", "1")], "started as 't' but is complete as 'u'"),
    ("no name", [b.partial_tool_call("start", "1"), *call("1")[1:]], "starts without a name"),
    (
        "name repeated",
        [call("1")[0], b.partial_tool_call("delta", "1", "{}", name="t"), *call("1")[2:]],
        "repeats its name",
    ),
    ("something between stop and complete", [*text("a")[:3], call("1")[0], text("a")[3]], "before its complete"),
    ("thinking inside text", [text("a")[0], b.partial_thinking("start")], "thinking starts although text is open"),
    ("usage inside a segment", [*text("a")[:2], b.token_usage(COUNTS, COUNTS)], "TokenUsage came while text is open"),
    ("request_end inside a segment", [*text("a")[:2], b.request_end("timeout")], "RequestEnd came while text is open"),
    ("content in the start", [b.partial_text("start", "a")], "content in its start"),
    (
        "images lost",
        [*output("1", "a")[:3], b.tool_call_output("a", "1", images=[IMAGE])],
        "does not repeat its images",
    ),
    ("a child's segment stays open", [b.with_origin(text("a")[0], "kid"), *text("a")], "text of kid was never closed"),
    ("two outputs mixed up", [*output("1", "a")[:3], output("2", "a")[3]], "output 1 was never closed"),
]


@pytest.mark.parametrize("name", WELL_FRAMED)
def test_P8_well_framed_streams_pass(name: str) -> None:
    assert_well_framed(WELL_FRAMED[name])


@pytest.mark.parametrize(("messages", "complaint"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_P8_every_break_is_named(messages: list[Message], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_well_framed(messages)


def test_a_model_must_stream_what_it_says() -> None:
    whole = [b.assistant_text("hi")]
    assert_well_framed(whole)
    with pytest.raises(AssertionError, match="comes whole"):
        assert_well_framed(whole, streamed_only=True)


def test_the_checker_names_what_is_open_and_where_it_broke() -> None:
    checker = StreamChecker()
    for message in [*text("a"), b.partial_tool_call("start", "c", name="t")]:
        checker.observe(message)
    assert checker.open_segments == ["tool_call c"]
    checker.observe(b.partial_text("delta"))
    assert checker.problems == ["message 5: text has a delta without a start"]
