"""Streams of Anthropic Messages, each with the messages and the outcome it must give."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.support.anthropic_kit import (
    PING,
    STOP,
    begin,
    call,
    delta,
    end,
    error,
    event,
    finish,
    fold,
    model,
    start,
    text,
    thinking,
)
from tests.support.llm_kit import Answer, Step, ask

from penguin.llm.providers.anthropic_messages_fold import ERROR_STATUSES
from penguin.protocol.builders import tool_call_output, user_text
from penguin.protocol.interfaces import GenerateRequest
from penguin.protocol.messages import Message, PartialToolCall, Text, Thinking, TokenUsage, ToolCall

pytestmark = pytest.mark.anyio

WEB = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "Zm/9"}]}
CITATION = {"type": "web_search_result_location", "url": "https://e.org", "encrypted_index": "Eo8B", "cited_text": "é"}


def told(messages: list[Message]) -> list[tuple[Any, ...]]:
    """Complete messages as short rows: kind, content, fidelity, stop reason if any."""
    return [_row(message.payload) for message in messages if isinstance(message.payload, Text | Thinking | ToolCall)]


def _row(payload: Text | Thinking | ToolCall) -> tuple[Any, ...]:
    opaque = json.loads(bytes(payload.fidelity)) if isinstance(payload.fidelity, msgspec.Raw) else None
    reason = () if payload.stop_reason is None else (payload.stop_reason,)
    match payload:
        case Text(text=words):
            return "text", words, opaque, *reason
        case Thinking(thinking=thought):
            return "thinking", thought, opaque, *reason
        case ToolCall(name=name, arguments=arguments, tool_call_id=call_id):
            return "call", call_id, name, arguments, opaque, *reason


def as_text(raw: bytes) -> bytes:
    """A delta with exactly these bytes in its string."""
    head = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'
    return head + raw + b'"}}\n\n'


TABLE: dict[str, tuple[list[bytes], list[tuple[Any, ...]]]] = {
    "text in pieces": ([text(0, "Hel", "lo"), finish()], [("text", "Hello", None)]),
    "a ping anywhere": (
        [PING, begin(0, "text", text=""), PING, delta(0, "text_delta", text="a"), PING, end(0), finish()],
        [("text", "a", None)],
    ),
    "an unknown event": ([event("message_brewing", percent=7), text(0, "a"), finish()], [("text", "a", None)]),
    "words with the announcement": (
        [begin(0, "text", text="Hel"), delta(0, "text_delta", text="lo"), end(0), finish()],
        [("text", "Hello", None)],
    ),
    "two text blocks stay two": ([text(0, "a"), text(1, "b"), finish()], [("text", "a", None), ("text", "b", None)]),
    "an empty text block is nothing": ([text(0), text(1, "", "b"), finish()], [("text", "b", None)]),
    "thinking with its signature, then text": (
        [thinking(0, "I should", " greet.", signature="SIG-abc123=="), text(1, "Hello there."), finish()],
        [("thinking", "I should greet.", {"signature": "SIG-abc123=="}), ("text", "Hello there.", None)],
    ),
    "D11 thinking with a signature only": (
        [thinking(0, signature="SIG=="), call(1, "list_tasks"), finish("tool_use")],
        [("thinking", "", {"signature": "SIG=="}), ("call", "toolu_1", "list_tasks", "{}", None)],
    ),
    "two thinking blocks stay two": (
        [thinking(0, "a", signature="A"), thinking(1, "b", signature="B"), text(2, "c"), finish()],
        [("thinking", "a", {"signature": "A"}), ("thinking", "b", {"signature": "B"}), ("text", "c", None)],
    ),
    "redacted thinking between thinking": (
        [
            thinking(0, "a", signature="A"),
            begin(1, "redacted_thinking", data="Zm9v+/="),
            end(1),
            thinking(2, "b", signature="B"),
            text(3, "c"),
            finish(),
        ],
        [
            ("thinking", "a", {"signature": "A"}),
            ("thinking", "", {"content_block": {"type": "redacted_thinking", "data": "Zm9v+/="}}),
            ("thinking", "b", {"signature": "B"}),
            ("text", "c", None),
        ],
    ),
    "interleaved thinking keeps its order": (
        [
            thinking(0, "a", signature="A"),
            call(1, "read_file", "{}", id="c1"),
            thinking(2, "b", signature="B"),
            call(3, "read_file", "{}", id="c2"),
            finish("tool_use"),
        ],
        [
            ("thinking", "a", {"signature": "A"}),
            ("call", "c1", "read_file", "{}", None),
            ("thinking", "b", {"signature": "B"}),
            ("call", "c2", "read_file", "{}", None),
        ],
    ),
    "D04 a call without any arguments": (
        [call(0, "list_tasks"), finish("tool_use")],
        [("call", "toolu_1", "list_tasks", "{}", None)],
    ),
    "D04 a call with empty arguments": (
        [call(0, "list_tasks", "", ""), finish("tool_use")],
        [("call", "toolu_1", "list_tasks", "{}", None)],
    ),
    "arguments with the announcement": (
        [begin(0, "tool_use", id="c", name="read_file", input={"path": "ü", "n": 1.0}), end(0), finish("tool_use")],
        [("call", "c", "read_file", '{"path":"ü","n":1.0}', None)],
    ),
    "arguments keep their text": (
        [call(0, "read_file", '{"n": 1.', '0, "s": "\\u00e9"}'), finish("tool_use")],
        [("call", "toolu_1", "read_file", '{"n": 1.0, "s": "\\u00e9"}', None)],
    ),
    "parallel calls": (
        [
            text(0, "Both."),
            call(1, "read_file", '{"a":1}', id="c1"),
            call(2, "read_file", '{"b":2}', id="c2"),
            finish("tool_use"),
        ],
        [
            ("text", "Both.", None),
            ("call", "c1", "read_file", '{"a":1}', None),
            ("call", "c2", "read_file", '{"b":2}', None),
        ],
    ),
    "L2 text after a call settles after it": (
        [call(0, "read_file", "{}", id="c1"), text(1, "Then."), finish("tool_use")],
        [("call", "c1", "read_file", "{}", None), ("text", "Then.", None)],
    ),
    "D05 a call with the label end_turn": (
        [call(0, "read_file", "{}"), finish("end_turn")],
        [("call", "toolu_1", "read_file", "{}", None)],
    ),
    "D05 a call with an unknown label": (
        [call(0, "read_file", "{}"), finish("brewed")],
        [("call", "toolu_1", "read_file", "{}", None)],
    ),
    "stop_sequence": ([text(0, "a"), finish("stop_sequence")], [("text", "a", None)]),
    "members of a call nobody knows": (
        [
            begin(0, "tool_use", id="c", name="read_file", input={}, caller={"type": "direct"}, toolset_name=None),
            end(0),
            finish("tool_use"),
        ],
        [("call", "c", "read_file", "{}", {"tool_use": {"caller": {"type": "direct"}}})],
    ),
    "a server tool and citations": (
        [
            begin(0, "server_tool_use", **{k: v for k, v in WEB.items() if k != "type"}, input={}),
            delta(0, "input_json_delta", partial_json='{"query":'),
            delta(0, "input_json_delta", partial_json=' "é"}'),
            end(0),
            begin(1, "web_search_tool_result", **{k: v for k, v in FOUND.items() if k != "type"}),
            end(1),
            begin(2, "text", text="", citations=[]),
            delta(2, "citations_delta", citation=CITATION),
            delta(2, "text_delta", text="It is."),
            end(2),
            finish(),
        ],
        [
            ("thinking", "", {"content_block": WEB | {"input": {"query": "é"}}}),
            ("thinking", "", {"content_block": FOUND}),
            ("text", "It is.", {"citations": [CITATION]}),
        ],
    ),
    "a block of the future": (
        [begin(0, "hologram", layers=[1, 2]), end(0), text(1, "a"), finish()],
        [("thinking", "", {"content_block": {"type": "hologram", "layers": [1, 2]}}), ("text", "a", None)],
    ),
    "words for a block that was never announced": (
        [delta(0, "text_delta", text="a"), end(0), finish()],
        [("text", "a", None)],
    ),
    "an announcement that comes twice": (
        [
            begin(0, "tool_use", id="c", name="read_file", input={}),
            begin(0, "tool_use", id="c", name="read_file", input={}),
            delta(0, "input_json_delta", partial_json="{}"),
            end(0),
            end(0),
            finish("tool_use"),
        ],
        [("call", "c", "read_file", "{}", None)],
    ),
    "every block is number 0": (
        [thinking(0, "a", signature="A"), text(0, "b"), call(0, "read_file", "{}"), finish()],
        [("thinking", "a", {"signature": "A"}), ("text", "b", None), ("call", "toolu_1", "read_file", "{}", None)],
    ),
    "no numbers at all": (
        [
            event("content_block_start", content_block={"type": "text", "text": ""}),
            event("content_block_delta", delta={"type": "text_delta", "text": "a"}),
            event("content_block_stop"),
            finish(),
        ],
        [("text", "a", None)],
    ),
    "a lone surrogate": ([as_text(rb"\ud83d!"), finish()], [("text", "\ufffd!", None)]),
    "a pair of surrogates": ([as_text(rb"\ud83d\ude00"), finish()], [("text", "😀", None)]),
    "no bytes of UTF-8": ([as_text(b"\xff"), finish()], [("text", "\ufffd", None)]),
    "types where none should be": (
        [
            event("content_block_delta", index="0", delta={"type": "text_delta", "text": "a", "thinking": 7}),
            event("content_block_delta", index=1e400, delta={"type": "text_delta", "text": None}),
            finish(),
        ],
        [("text", "a", None)],
    ),
    "names only in the event line": (
        [b'event: content_block_delta\ndata: {"index":0,"delta":{"type":"text_delta","text":"a"}}\n\n', finish()],
        [("text", "a", None)],
    ),
    "DONE as elsewhere": ([text(0, "a"), finish(), b"data: [DONE]\n\n"], [("text", "a", None)]),
}


@pytest.mark.parametrize("name", TABLE)
async def test_a_stream_gives_these_messages(name: str) -> None:
    stream, expected = TABLE[name]
    said = await fold(start(), *stream)
    assert said.outcome.status == "completed"
    assert said.outcome.note is None
    assert told(said.messages) == expected


@pytest.mark.parametrize("name", TABLE)
async def test_bytes_one_by_one_give_the_same(name: str) -> None:
    stream, expected = TABLE[name]
    said = await fold(*(bytes([byte]) for byte in start() + b"".join(stream)))
    assert told(said.messages) == expected


async def test_a_reply_that_is_not_streamed() -> None:
    content = [
        {"type": "thinking", "thinking": "a", "signature": "A"},
        {"type": "text", "text": "b", "citations": [CITATION]},
        {"type": "tool_use", "id": "c", "name": "read_file", "input": {"n": 1}},
    ]
    document = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 3}}
    one, _ = model(Answer([json.dumps(document).encode()], headers={"content-type": "application/json"}))
    said = await ask(one)
    assert said.outcome.status == "completed"
    assert told(said.messages) == [
        ("thinking", "a", {"signature": "A"}),
        ("text", "b", {"citations": [CITATION]}),
        ("call", "c", "read_file", '{"n":1}', None),
    ]


# --- the end ------------------------------------------------------------------------------------------


async def test_L3_a_call_is_settled_when_something_else_begins() -> None:
    settled: list[int] = []

    async def look() -> None:
        settled.append(sum(isinstance(m.payload, ToolCall) for m in emitted))

    emitted: list[Message] = []
    stream: list[Step] = [call(0, "read_file", "{}", id="c1"), look, call(1, "read_file", "{}", id="c2"), look]
    one, _ = model(Answer([start(), *stream, begin(2, "text", text=""), look, end(2), finish()]))
    await one.stream_generate(GenerateRequest([user_text("go")]), emitted.append)
    assert settled == [0, 0, 2]


async def test_L3_calls_at_the_end_are_settled_by_message_stop_not_by_the_connection() -> None:
    settled: list[int] = []

    async def look() -> None:
        settled.append(sum(isinstance(m.payload, ToolCall) for m in emitted))

    emitted: list[Message] = []
    one, _ = model(Answer([start(), call(0, "read_file", "{}"), look, finish("tool_use"), look]))
    await one.stream_generate(GenerateRequest([user_text("go")]), emitted.append)
    assert settled == [0, 1]


@pytest.mark.parametrize("arguments", ['{"path":"notes.md","content":"line 1\\nline', '{"command":"rm -rf build"}', ""])
@pytest.mark.parametrize("stopped", [True, False])
async def test_D06_no_call_of_a_cut_message_runs(arguments: str, stopped: bool) -> None:
    said = await fold(
        start(),
        call(0, "read_file", '{"whole":1}', id="c1"),
        call(1, "write_file", arguments, id="c2", stop=stopped),
        finish("max_tokens"),
    )
    assert said.outcome.status == "malformed"
    assert said.outcome.cut_off
    assert said.pairs() == []
    assert [c.stop_reason for c in said.calls()] == ["malformed", "malformed"]


async def test_D06_a_cut_in_text_is_a_completed_reply_with_a_note() -> None:
    said = await fold(start(), text(0, "half a sent"), finish("max_tokens"))
    assert (said.outcome.status, said.texts()) == ("completed", ["half a sent"])
    assert said.outcome.note == "The reply was cut at the output limit."


async def test_D06_a_cut_in_text_after_a_whole_call_leaves_the_call() -> None:
    said = await fold(start(), call(0, "read_file", "{}"), text(1, "half a sent"), finish("max_tokens"))
    assert said.outcome.status == "completed"
    assert said.pairs() == [("read_file", "{}")]


async def test_a_call_before_text_may_run_although_a_later_one_is_cut() -> None:
    # What the fold cannot know when the text begins; its module says so, and the engine copes (E13).
    said = await fold(
        start(), call(0, "read_file", "{}"), text(1, "and"), call(2, "write_file", '{"a', id="c2"), finish("max_tokens")
    )
    assert (said.outcome.status, said.outcome.cut_off) == ("malformed", True)
    assert said.pairs() == [("read_file", "{}")]


async def test_D09_an_error_inside_the_stream_is_judged_by_its_type() -> None:
    said = await fold(
        start(),
        PING,
        begin(0, "text", text=""),
        delta(0, "text_delta", text="Par"),
        error("overloaded_error", "Overloaded"),
    )
    assert said.outcome.status == "timeout"
    assert said.outcome.error is not None
    assert said.outcome.error.kind == "overloaded"
    assert said.outcome.error.message == "overloaded_error: Overloaded"
    assert said.outcome.error.http_status is None
    assert said.stop_reasons() == ["timeout"]


async def test_D09_what_the_type_stands_for_also_decides_on_the_advice() -> None:
    said = await fold(start(), error("not_found_error", "model: no-such"))
    assert said.outcome.error is not None
    assert said.outcome.error.message.startswith("not_found_error: model: no-such. Check `model_id` in the")


@pytest.mark.parametrize(
    ("kind", "message", "status", "error_kind"),
    [
        ("overloaded_error", "Overloaded", "timeout", "overloaded"),
        ("api_error", "Internal server error", "timeout", "overloaded"),
        ("timeout_error", "took too long", "timeout", "overloaded"),
        ("rate_limit_error", "slow down", "timeout", "rate_limit"),
        ("invalid_request_error", "messages.1: no", "failed", "bad_request"),
        ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", "failed", "context_overflow"),
        ("invalid_request_error", "Your credit balance is too low to access the API", "failed", "quota"),
        ("request_too_large", "Request exceeds the maximum size", "failed", "context_overflow"),
        ("authentication_error", "invalid x-api-key", "failed", "auth"),
        ("permission_error", "not allowed", "failed", "auth"),
        ("billing_error", "pay", "failed", "quota"),
        ("not_found_error", "model: m", "failed", "bad_request"),
        ("brand_new_error", "who knows", "failed", "unknown"),
    ],
)
async def test_L4_error_types(kind: str, message: str, status: str, error_kind: str) -> None:
    inside = await fold(start(), text(0, "a"), error(kind, message))
    assert inside.outcome.error is not None
    assert (inside.outcome.status, inside.outcome.error.kind) == (status, error_kind)
    assert message in inside.outcome.error.message
    if kind in ERROR_STATUSES:
        body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
        headers = {"content-type": "application/json"}
        outside = await ask(model(Answer([body], status=ERROR_STATUSES[kind], headers=headers))[0])
        assert outside.outcome.error is not None
        assert (outside.outcome.status, outside.outcome.error.kind) == (status, error_kind)


async def test_an_error_closes_calls_without_running_them() -> None:
    said = await fold(start(), call(0, "read_file", "{}"), error("overloaded_error", "Overloaded"))
    assert [c.stop_reason for c in said.calls()] == ["timeout"]


@pytest.mark.parametrize("body", [{"error": {"message": "no"}}, {"message": "no"}, {"detail": "no"}])
async def test_the_error_of_a_gateway_that_speaks_something_else(body: dict[str, Any]) -> None:
    one, _ = model(Answer([json.dumps(body).encode()], headers={"content-type": "application/json"}))
    said = await ask(one)
    assert said.outcome.status == "failed"
    assert said.outcome.error is not None
    assert said.outcome.error.message == "no"


async def test_a_refusal_fails_with_the_providers_words() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "This could harm."}
    said = await fold(start(), text(0, "I can"), call(1, "read_file", "{}"), finish("refusal", stop_details=details))
    assert said.outcome.status == "failed"
    assert said.outcome.error is not None
    assert (said.outcome.error.kind, said.outcome.error.message) == ("refused", "This could harm.")
    assert said.pairs() == []


async def test_a_refusal_without_words() -> None:
    said = await fold(start(), finish("refusal", stop_details=None))
    assert said.outcome.error is not None
    assert said.outcome.error.message == "the model refused to answer"


async def test_a_full_context_window_is_an_overflow() -> None:
    said = await fold(start(), text(0, "a"), call(1, "read_file", "{}"), finish("model_context_window_exceeded"))
    assert said.outcome.status == "failed"
    assert said.outcome.error is not None
    assert said.outcome.error.kind == "context_overflow"
    assert said.pairs() == []


async def test_a_paused_turn_completes_with_a_note() -> None:
    said = await fold(
        start(), begin(0, "server_tool_use", id="s", name="web_search", input={"q": 1}), end(0), finish("pause_turn")
    )
    assert said.outcome.status == "completed"
    assert said.outcome.note == "The provider paused its own tools before they were done; ask it to go on."


@pytest.mark.parametrize(
    ("stream", "note"),
    [
        ([], "The model ended its reply without a word."),
        ([text(0, " \n")], "The model ended its reply without a word."),
        ([thinking(0, "a", signature="A")], "The model ended its reply before it answered."),
    ],
)
async def test_L4_a_plain_end_without_a_word_completes_the_reply_and_says_so(stream: list[bytes], note: str) -> None:
    said = await fold(start(), *stream, finish("end_turn"))
    assert (said.outcome.status, said.outcome.note) == ("completed", note)


async def test_L4_only_a_cut_at_the_limit_asks_for_a_higher_one() -> None:
    said = await fold(start(), thinking(0, "a", signature="A"), finish("max_tokens"))
    assert "raise `max_tokens`" in (said.outcome.note or "")


@pytest.mark.parametrize(
    "stream",
    [
        [],
        [text(0, "a")],
        [call(0, "read_file", "{}")],
        [call(0, "read_file", '{"a"', stop=False)],
        [thinking(0, "a", signature="A"), event("message_delta", delta={"stop_reason": "end_turn"}, usage={})],
    ],
)
async def test_D10_a_stream_without_message_stop_is_malformed(stream: list[bytes]) -> None:
    said = await fold(start(), *stream)
    assert said.outcome.status == "malformed"
    assert said.pairs() == []


@pytest.mark.parametrize(
    "stream",
    [
        [call(0, "read_file", "{}", stop=False), finish("tool_use")],
        [call(0, "read_file", "{}"), STOP],
        [delta(0, "input_json_delta", partial_json="{}"), finish("tool_use")],
        [call(0, "read_file", "{"), delta(0, "input_json_delta", partial_json="}"), finish("tool_use")],
        [begin(0, "tool_use", id="c", input={}), end(0), finish("tool_use")],
        [text(0, "a"), b"data: {oops\n\n", finish()],
    ],
)
async def test_disorder_is_malformed_and_runs_nothing(stream: list[bytes]) -> None:
    said = await fold(start(), *stream)
    assert (said.outcome.status, said.outcome.cut_off) == ("malformed", False)
    assert said.pairs() == []


async def test_L4_nothing_after_message_stop_changes_a_delivered_reply() -> None:
    said = await fold(
        start(), text(0, "a"), finish(), error("overloaded_error", "late"), b"data: {oops\n\n", OSError("x")
    )
    assert said.outcome.status in {"completed", "failed"}
    assert said.texts() == ["a"]


async def test_a_name_is_streamed_as_soon_as_it_is_known() -> None:
    said = await fold(start(), call(0, "read_file", "{}"), finish("tool_use"))
    partials = [m.payload for m in said.messages if isinstance(m.payload, PartialToolCall)]
    assert [(p.event_type, p.name, p.arguments) for p in partials] == [
        ("start", "read_file", ""),
        ("delta", "", "{}"),
        ("stop", "", ""),
    ]


async def test_L9_ids_that_come_again_are_made_unique() -> None:
    one, transport = model(
        Answer([start(), call(0, "read_file", "{}", id="call_0"), finish("tool_use")]),
        Answer([start(), call(0, "read_file", "{}", id="call_0"), finish("tool_use")]),
        Answer([start(), text(0, "ok"), finish()]),
    )

    ids = [(await ask(one)).calls()[0].tool_call_id]
    ids.append((await ask(one, tool_call_output("A", ids[0]))).calls()[0].tool_call_id)
    await ask(one, tool_call_output("B", ids[1]))
    assert ids == ["call_0", "call_0_2"]
    blocks = [block for message in transport.bodies()[2]["messages"] for block in message["content"]]
    sent = [block.get("id") or block.get("tool_use_id") for block in blocks if block["type"] != "text"]
    assert sent == ["call_0", "call_0", "call_0_2", "call_0_2"]


# --- usage --------------------------------------------------------------------------------------------


async def test_P4_usage_is_cumulative_and_the_cache_is_counted_apart() -> None:
    said = await fold(
        start(input_tokens=10, cache_creation_input_tokens=20, cache_read_input_tokens=300),
        text(0, "a"),
        event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 4, "input_tokens": None}),
        finish(output=7),
    )
    usage = said.usage()
    assert (usage.request.cache_read, usage.request.cache_write, usage.request.output) == (300, 30, 7)
    assert usage.request.total == 337
    assert json.loads(bytes(usage.provider)) == {  # type: ignore[arg-type]
        "input_tokens": 10,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 300,
        "output_tokens": 7,
    }
    assert not usage.estimated


async def test_L12_missing_usage_is_estimated() -> None:
    said = await fold(text(0, "four letters and more"), event("message_delta", delta={"stop_reason": "end_turn"}), STOP)
    usage = said.usage()
    assert usage.estimated
    assert usage.request.output > 0


async def test_an_attempt_that_failed_reports_what_the_provider_counted() -> None:
    said = await fold(start(), text(0, "a"), error("overloaded_error", "Overloaded"))
    assert isinstance(said.messages[-1].payload, TokenUsage)
    assert said.usage().request.cache_write == 5
