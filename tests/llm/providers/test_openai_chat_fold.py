"""Unclean Chat Completions streams, each with the messages and the outcome it must give."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.llm_kit import (
    CALLS,
    DONE,
    STOP,
    Answer,
    Said,
    ask,
    call,
    chunk,
    fold,
    model,
    text,
    usage,
)

from penguin.llm.prefix import changed_block
from penguin.protocol.builders import user_text
from penguin.protocol.messages import InlineData, Text, Thinking, ToolCall
from penguin.testing import legality

pytestmark = pytest.mark.anyio


def fidelity(message: Text | Thinking | ToolCall) -> Any:
    return msgspec.json.decode(message.fidelity) if isinstance(message.fidelity, msgspec.Raw) else None


def raw_bytes(value: object) -> bytes:
    assert isinstance(value, msgspec.Raw)
    return bytes(value)


async def test_text_and_usage() -> None:
    said = await fold(text("Hel"), text("lo"), STOP, usage(), DONE)
    assert said.texts() == ["Hello"]
    assert said.outcome.status == "completed"
    assert said.usage().request.total == 8


async def test_D01_calls_without_index() -> None:
    said = await fold(
        call('{"path":', id="call_a", type="function", name="read_file"),
        call('"a.txt"}'),
        call('{"path":"b.txt"}', id="call_b", type="function", name="read_file"),
        CALLS,
        DONE,
    )
    assert [(c.tool_call_id, c.arguments) for c in said.calls()] == [
        ("call_a", '{"path":"a.txt"}'),
        ("call_b", '{"path":"b.txt"}'),
    ]


async def test_D02_an_index_is_a_label_not_a_position() -> None:
    said = await fold(
        text("Looking."),
        call('{"path":"a.txt"}', index=1, id="call_a", name="read_file"),
        call('{"path":"b.txt"}', index=4, id="call_b", name="read_file"),
        CALLS,
        DONE,
    )
    assert said.texts() == ["Looking."]
    assert [c.tool_call_id for c in said.calls()] == ["call_a", "call_b"]


async def test_D03_an_empty_id_or_name_means_absent() -> None:
    said = await fold(
        call('{"pa', index=0, id="call_1", name="read_file"),
        call('th":"a.txt', index=0, id="", name=""),
        call('"}', index=0, id="", name=""),
        CALLS,
        DONE,
    )
    assert [(c.tool_call_id, c.name, c.arguments) for c in said.calls()] == [
        ("call_1", "read_file", '{"path":"a.txt"}')
    ]


@pytest.mark.parametrize("arguments", ["", None, "  \n"])
async def test_D04_no_arguments_are_an_empty_object(arguments: str | None) -> None:
    said = await fold(call(arguments, index=0, id="call_1", name="list_tasks"), CALLS, DONE)
    assert json.loads(said.calls()[0].arguments) == {}
    assert said.outcome.status == "completed"


async def test_D04_the_history_carries_an_empty_object() -> None:
    one, transport = model(
        Answer([call("", index=0, id="call_1", name="list_tasks"), CALLS]), Answer([text("ok"), STOP])
    )
    await ask(one)
    await ask(one)
    assert transport.bodies()[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_a_call_without_its_inner_object_is_read_all_the_same() -> None:
    bare = {"index": 0, "id": "c", "name": "read_file", "arguments": '{"path": "a"}'}
    said = await fold(chunk({"tool_calls": [bare]}), CALLS)
    assert said.pairs() == [("read_file", '{"path": "a"}')]


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "eos", "end_turn", "new_word"])
async def test_D05_content_decides_not_the_label(finish: str) -> None:
    said = await fold(call('{"path":"a.txt"}', index=0, id="call_1", name="read_file"), chunk(finish=finish), DONE)
    assert said.pairs() == [("read_file", '{"path":"a.txt"}')]
    assert said.outcome.status == "completed"


@pytest.mark.parametrize("arguments", ['{"path":"notes.md","content":"line 1\\nline', '{"command":"rm -rf build"}', ""])
@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_D06_a_cut_off_call_is_never_complete(arguments: str, finish: str) -> None:
    said = await fold(
        call('{"whole":1}', index=0, id="call_0", name="read_file"),
        call(arguments, index=1, id="call_1", name="write_file"),
        chunk(finish=finish),
        chunk(finish="stop"),
        DONE,
    )
    assert said.outcome.status == "malformed"
    assert said.outcome.cut_off
    assert said.pairs() == []
    assert {c.stop_reason for c in said.calls()} == {"malformed"}


async def test_D06_a_cut_in_text_is_a_completed_reply_with_a_note() -> None:
    said = await fold(text("half a sent"), chunk(finish="length"), DONE)
    assert said.texts() == ["half a sent"]
    assert said.outcome.status == "completed"
    assert said.outcome.note is not None
    assert "cut" in said.outcome.note


async def test_D07_legal_but_unusual_framing() -> None:
    first = json.dumps({"id": "x", "choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]})
    stream = (
        ": keep-alive\r\n\r\n"
        f"data:{first}\r\n\r\n"
        'event: message\r\nid: 7\r\nretry: 100\r\ndata: {"id":"x","created":1,"model":"m",\r\n'
        'data: "choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\r\n\r\n'
        "data:\r\n\r\n: bye\r\n\r\n"
    ).encode()
    said = await fold(stream)
    assert said.texts() == ["Hello"]
    assert said.outcome.status == "completed"


async def test_D08_usage_after_the_finish_with_empty_choices() -> None:
    said = await fold(text("hi"), STOP, usage(7, 1, total_tokens=8), DONE)
    counted = said.usage()
    assert (counted.request.cache_write, counted.request.output, counted.request.total) == (7, 1, 8)
    assert not counted.estimated
    assert json.loads(raw_bytes(counted.provider)) == {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}


@pytest.mark.parametrize("ending", [[], [call('{"path":"x"', index=0, id="call_1", name="write_file")]])
async def test_D10_a_stream_without_its_last_event_is_broken(ending: list[bytes]) -> None:
    said = await fold(text("Half"), *ending)
    assert said.outcome.status == "malformed"
    assert said.pairs() == []
    assert said.stop_reasons()[-1] == "malformed"


async def test_D10_nothing_at_all_is_broken_too() -> None:
    assert (await fold()).outcome.status == "malformed"
    assert (await fold(DONE)).outcome.status == "malformed"
    assert (await fold(b": ping\n\n")).outcome.status == "malformed"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_D13_reasoning_goes_back_under_its_own_name(field: str) -> None:
    one, transport = model(
        Answer(
            [
                chunk({"role": "assistant", field: "Need the "}),
                chunk({field: "file.", "content": ""}),
                call('{"path":"a.txt"}', index=0, id="call_1", name="read_file"),
                CALLS,
                DONE,
            ]
        ),
        Answer([text("ok"), STOP]),
    )
    said = await ask(one)
    assert said.thoughts() == ["Need the file."]
    assert said.texts() == []
    await ask(one)
    assistant = transport.bodies()[1]["messages"][1]
    assert assistant[field] == "Need the file."
    assert {"reasoning_content", "reasoning"} & assistant.keys() == {field}


async def test_D14_one_byte_per_write() -> None:
    words = "✅ naïve 你😀"
    stream = text(words) + STOP + DONE
    said = await fold(*(stream[index : index + 1] for index in range(len(stream))))
    assert said.texts() == [words]


async def test_D14_one_line_of_five_megabytes() -> None:
    stream = text("a" * 5_242_880) + STOP
    started = time.process_time()
    said = await fold(*(stream[index : index + 65_536] for index in range(0, len(stream), 65_536)))
    assert said.texts() == ["a" * 5_242_880]
    assert time.process_time() - started < 2


async def test_D40_ids_are_unique_in_the_session_and_towards_the_provider() -> None:
    turn = [call("{}", index=0, id="call_0", name="list_tasks"), CALLS]
    one, transport = model(Answer(turn), Answer(turn), Answer([text("done"), STOP]))
    ids = [(await ask(one)).calls()[0].tool_call_id for _ in range(2)]
    await ask(one)
    assert ids == ["call_0", "call_0_2"]
    sent = [c["id"] for m in transport.bodies()[2]["messages"] for c in m.get("tool_calls", [])]
    assert sent == ids


@pytest.mark.parametrize("provider_id", [None, "", "read_file", "id with spaces and ümlauts " * 3])
async def test_L9_ids_are_legal(provider_id: str | None) -> None:
    piece = {"id": provider_id} if provider_id is not None else {}
    said = await fold(call("{}", index=0, name="read_file", **piece), CALLS)
    assert said.calls()[0].tool_call_id.replace("_", "a").replace("-", "a").isalnum()
    assert len(said.calls()[0].tool_call_id) <= 40


# --- the quirks listed in the design ------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [["read_file", "read_file"], ["read_", "file"], ["read_file", ""], ["read", "read_file"], ["read_file", None]],
)
async def test_names_in_pieces_or_repeated(names: list[str | None]) -> None:
    first, second = names
    said = await fold(
        call("", index=0, id="a", name=first), call("{}", index=0, name=second), call("", index=0, name=second), CALLS
    )
    assert said.pairs() == [("read_file", "{}")]


async def test_a_name_repeated_with_every_piece_is_one_call() -> None:
    said = await fold(
        call('{"a"', index=0, id="a", name="read_file"), call(":1}", index=0, id="a", name="read_file"), CALLS
    )
    assert said.pairs() == [("read_file", '{"a":1}')]


async def test_parallel_calls_that_all_say_index_0() -> None:
    said = await fold(
        call('{"a":1}', index=0, id="a", name="read_file"), call('{"a":2}', index=0, id="b", name="read_file"), CALLS
    )
    assert said.pairs() == [("read_file", '{"a":1}'), ("read_file", '{"a":2}')]


async def test_whole_calls_without_any_label() -> None:
    said = await fold(call('{"a":1}', name="read_file"), call('{"a":2}', name="read_file"), CALLS)
    assert said.pairs() == [("read_file", '{"a":1}'), ("read_file", '{"a":2}')]


async def test_a_fresh_id_with_each_piece_is_still_one_call() -> None:
    said = await fold(call('{"a"', index=0, id="x1", name="read_file"), call(":1}", index=0, id="x2"), CALLS)
    assert said.pairs() == [("read_file", '{"a":1}')]


async def test_interleaved_parallel_calls() -> None:
    said = await fold(
        call("", index=0, id="a", name="read_file"),
        call("", index=1, id="b", name="write_file"),
        call('{"a":', index=0),
        call('{"b":', index=1),
        call("1}", index=0),
        call("2}", index=1),
        CALLS,
    )
    assert said.pairs() == [("read_file", '{"a":1}'), ("write_file", '{"b":2}')]


@pytest.mark.parametrize("arguments", [{"path": "a.txt"}, '{"path":"a.txt"}'])
async def test_arguments_as_an_object(arguments: Any) -> None:
    said = await fold(call(arguments, index=0, id="a", name="read_file"), CALLS)
    assert [(n, json.loads(a)) for n, a in said.pairs()] == [("read_file", {"path": "a.txt"})]


async def test_function_null_and_tool_calls_with_nulls() -> None:
    said = await fold(
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": None}, None]}),
        chunk({"tool_calls": [{"index": "0", "function": {"name": "read_file", "arguments": None}}]}),
        chunk({"tool_calls": [{"index": 0.0, "function": {"arguments": "{}"}}]}),
        CALLS,
    )
    assert said.pairs() == [("read_file", "{}")]


async def test_the_old_function_call_field() -> None:
    said = await fold(
        chunk({"function_call": {"name": "read_file", "arguments": '{"a"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
        chunk(finish="function_call"),
    )
    assert said.pairs() == [("read_file", '{"a":1}')]


async def test_call_finish_and_usage_in_one_chunk() -> None:
    piece = {"index": 0, "id": "a", "function": {"name": "read_file", "arguments": "{}"}}
    said = await fold(
        chunk({"tool_calls": [piece]}, "tool_calls", usage={"prompt_tokens": 5, "completion_tokens": 2}), DONE
    )
    assert said.pairs() == [("read_file", "{}")]
    assert said.usage().request.total == 7


async def test_two_finish_chunks() -> None:
    said = await fold(text("hi"), STOP, call("{}", index=0, id="a", name="read_file"), CALLS, DONE)
    assert said.texts() == ["hi"]
    assert said.pairs() == [("read_file", "{}")]


async def test_a_phantom_call_without_name_and_arguments_is_dropped() -> None:
    said = await fold(text("hi"), chunk({"tool_calls": [{"index": 0, "id": "a"}]}), STOP)
    assert said.calls() == []
    assert said.outcome.status == "completed"


async def test_a_call_that_never_gets_a_name_is_malformed() -> None:
    said = await fold(call('{"a":1}', index=0, id="a"), CALLS)
    assert said.outcome.status == "malformed"
    assert said.calls() == []


async def test_usage_in_every_chunk_the_last_wins() -> None:
    said = await fold(
        chunk({"content": "a"}, usage={"prompt_tokens": 7, "completion_tokens": 1}),
        chunk({"content": "b"}, "stop", usage={"prompt_tokens": 7, "completion_tokens": 2}),
        chunk(choices=[], usage=None),
        chunk(choices=[], usage={}),
    )
    assert said.usage().request.output == 2


@pytest.mark.parametrize("reported", [[], [usage(0, 0)]])
async def test_L12_missing_usage_is_estimated_and_says_so(reported: list[bytes]) -> None:
    said = await fold(text("word " * 40), STOP, *reported)
    counted = said.usage()
    assert counted.estimated
    assert counted.request.output == 50
    assert counted.request.cache_write > 0


@pytest.mark.parametrize(
    "event", [chunk(choices=None), chunk(choices=[]), b'data: {"timings":{}}\n\n', b"data: {}\n\n", b"data: null\n\n"]
)
async def test_chunks_that_say_nothing(event: bytes) -> None:
    said = await fold(event, text("hi"), event, STOP, event, DONE)
    assert said.texts() == ["hi"]
    assert said.outcome.status == "completed"


async def test_refusal_is_shown_and_fails() -> None:
    said = await fold(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), STOP)
    assert said.texts() == ["I cannot."]
    assert said.outcome.status == "failed"
    assert said.outcome.error is not None
    assert (said.outcome.error.kind, said.outcome.error.message) == ("refused", "I cannot.")


async def test_a_filter_before_the_first_word_is_a_refusal() -> None:
    said = await fold(chunk(finish="content_filter"), DONE)
    assert said.outcome.error is not None
    assert said.outcome.error.kind == "refused"


async def test_content_as_a_list_of_parts() -> None:
    said = await fold(
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        chunk({"content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}),
        STOP,
    )
    assert (said.thoughts(), said.texts()) == (["Hm."], ["Hello"])


async def test_both_reasoning_names_at_once_say_it_once() -> None:
    said = await fold(chunk({"reasoning": "Hm.", "reasoning_content": "Hm."}), text("ok"), STOP)
    assert said.thoughts() == ["Hm."]


async def test_reasoning_details_are_kept_and_joined() -> None:
    def details(**item: Any) -> bytes:
        return chunk({"reasoning": item.get("text"), "reasoning_details": [item]})

    one, transport = model(
        Answer(
            [
                details(type="reasoning.text", text="Let me ", index=0, format="f", signature=None),
                details(type="reasoning.text", text="think.", index=0),
                chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "SIG=="}]}),
                chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "XYZ", "id": "r1", "n": 1.0}]}),
                text("ok"),
                STOP,
            ]
        ),
        Answer([text("ok"), STOP]),
    )
    said = await ask(one)
    assert said.thoughts() == ["Let me think."]
    await ask(one)
    assistant = transport.bodies()[1]["messages"][1]
    assert assistant["reasoning"] == "Let me think."
    assert assistant["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "format": "f", "signature": "SIG==", "text": "Let me think."},
        {"type": "reasoning.encrypted", "data": "XYZ", "id": "r1", "n": 1.0},
    ]


async def test_reasoning_only_in_details_is_shown() -> None:
    said = await fold(
        chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": "Plan: "}]}),
        chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": "none."}]}),
        text("ok"),
        STOP,
    )
    assert said.thoughts() == ["Plan: none."]


async def test_long_reasoning_details_stay_linear() -> None:
    piece = chunk({"reasoning": "12345678", "reasoning_details": [{"type": "reasoning.text", "text": "12345678"}]})
    started = time.process_time()
    said = await fold(*[piece] * 10_000, text("ok"), STOP)
    assert len(said.thoughts()[0]) == 80_000
    assert time.process_time() - started < 3


async def test_thought_signatures_stay_on_their_call() -> None:
    extra = {"google": {"thought_signature": "SIG=="}}
    one, transport = model(
        Answer(
            [
                call("{}", index=0, id="a", name="read_file", extra_content=extra),
                call("{}", index=1, id="b", name="list_tasks"),
                CALLS,
            ]
        ),
        Answer([text("ok"), STOP]),
    )
    said = await ask(one)
    assert [fidelity(c) for c in said.calls()] == [{"extra_content": extra}, None]
    await ask(one)
    first, second = transport.bodies()[1]["messages"][1]["tool_calls"]
    assert first["extra_content"] == extra
    assert "extra_content" not in second


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"error": {"message": "Overloaded", "type": "overloaded_error"}}, "timeout", "overloaded"),
        ({"error": {"message": "Rate limit exceeded", "code": 429}}, "timeout", "rate_limit"),
        ({"error": {"message": "Provider returned error", "code": 502}, "choices": []}, "timeout", "overloaded"),
        ({"error": "maximum context length is 10 tokens"}, "failed", "context_overflow"),
        ({"object": "error", "message": "bad", "code": 400}, "failed", "bad_request"),
        ({"error": {"message": "insufficient_quota"}}, "failed", "quota"),
        ({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "failed", "quota"),
    ],
)
async def test_an_error_inside_the_stream(error: dict[str, Any], status: str, kind: str) -> None:
    said = await fold(text("Par"), b"data: " + json.dumps(error).encode() + b"\n\n", text("never"), STOP)
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == (status, kind)
    assert said.texts() == ["Par"]


@pytest.mark.parametrize("around", [{}, {"choices": None, "usage": {"total_tokens": 0}}, {"choices": []}])
async def test_L4_a_200_whose_document_only_says_that_the_log_in_failed(around: dict[str, Any]) -> None:
    words = "login fail: Please carry the API secret key in the 'Authorization' field"
    body = json.dumps({"id": "x"} | around | {"base_resp": {"status_code": 1004, "status_msg": words}}).encode()
    for steps, kind in (([body], "application/json"), ([b"data: " + body + b"\n\n"], "text/event-stream")):
        said = await ask(model(Answer(steps, headers={"content-type": kind}))[0])
        assert said.outcome.error is not None
        assert (said.outcome.status, said.outcome.error.kind) == ("failed", "auth")
        assert words in said.outcome.error.message
        assert "Change `api_key` in the [[models]] entry of custom/m" in said.outcome.error.message


async def test_a_base_resp_that_says_all_is_well_is_no_error() -> None:
    said = await fold(text("Hi"), chunk(finish="stop", base_resp={"status_code": 0, "status_msg": ""}))
    assert said.outcome.status == "completed"


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def whole_reply(**message: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


@pytest.mark.parametrize(
    "stream",
    [
        [text("Here."), chunk({"images": [IMAGE]}), STOP, DONE],
        [chunk({"content": "Here.", "images": [IMAGE]}), chunk({"images": [IMAGE]}), STOP, DONE],
        [chunk({"content": [{"type": "text", "text": "Here."}, IMAGE]}), STOP, DONE],
        [chunk({"content": "Here.", "images": [5, None, {}, {"image_url": IMAGE["image_url"]}]}), STOP],
        [chunk({"content": "Here.", "images": [{"image_url": "data:image/png;base64,iVBORw0KGgo="}]}, finish="stop")],
        [b"data: " + whole_reply(content="Here.", images=[IMAGE]) + b"\n\n"],
    ],
)
async def test_an_image_the_model_made_is_shown_once_as_data(stream: list[bytes]) -> None:
    said = await fold(*stream)
    assert said.outcome.status == "completed"
    assert said.texts() == ["Here."]
    shown = [
        (m.payload.role, m.payload.mime_type, m.payload.data)
        for m in said.complete()
        if isinstance(m.payload, InlineData)
    ]
    assert shown == [("assistant", "image/png", "iVBORw0KGgo=")]


async def test_a_reply_that_is_an_image_is_a_reply() -> None:
    said = await fold(chunk({"images": [IMAGE]}), STOP, DONE)
    assert (said.outcome.status, said.outcome.note) == ("completed", None)


async def test_an_image_at_an_address_is_a_link() -> None:
    said = await fold(chunk({"images": [{"image_url": {"url": "https://example.org/a.png"}}]}), STOP, DONE)
    assert said.texts() == ["![image](https://example.org/a.png)"]


async def test_an_image_inside_a_think_block_does_not_end_it() -> None:
    answers = [Answer([text("<think>Hm"), chunk({"images": [IMAGE]}), text(" so.</think>"), text("Done"), STOP])]
    one, transport = model(*answers, Answer([text("ok"), STOP]))
    said = await ask(one)
    assert (said.thoughts(), said.texts()) == (["Hm", " so."], ["Done"])
    await ask(one)
    reply = next(message for message in transport.bodies()[1]["messages"] if message["role"] == "assistant")
    assert "".join(part["text"] for part in reply["content"]) == "<think>Hm so.</think>Done"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("data:image/jpg;base64,/9j/4AAQ", "image/jpeg"),
        ("DATA:image/png;charset=x;base64,iVBOR\nw0KGgo=", "image/png"),
        ("data:image/png;base64,/9j/4AAQ", "image/jpeg"),
        ("data:image/svg+xml;base64,PHN2Zy8+", "[image/svg+xml data left out: it cannot be shown]"),
        ("data:image/svg+xml,<svg/>", "[image/svg+xml data left out: it cannot be shown]"),
        ("data:image/png;base64,@@@", "[image/png data left out: it cannot be shown]"),
        ("data:image/png;base64,", "[image/png data left out: it cannot be shown]"),
        ("https://example.org/a.svg", "![image](https://example.org/a.svg)"),
    ],
)
async def test_L14_only_an_image_that_can_go_back_is_kept(url: str, shown: str) -> None:
    said = await fold(chunk({"images": [{"image_url": {"url": url}}]}), STOP, DONE)
    kinds = [message.payload.mime_type for message in said.complete() if isinstance(message.payload, InlineData)]
    assert kinds + said.texts() == [shown]


async def test_an_image_the_model_made_goes_back_with_the_next_words_of_the_user() -> None:
    answers = [Answer([chunk({"images": [IMAGE]}), STOP]), Answer([text("ok"), STOP]), Answer([text("ok"), STOP])]
    one, transport = model(*answers)
    for _ in range(3):
        await ask(one, user_text("Bluer."))
    asked, reply, words = transport.bodies()[1]["messages"]
    assert reply == {"role": "assistant", "content": [{"type": "text", "text": "[no words]"}]}
    assert words["role"] == "user"
    assert words["content"] == [{"type": "text", "text": "[made by you, in the reply above]"}, IMAGE, *asked["content"]]
    assert legality.check("openai-chat", transport.bodies()[1], model="m") == []
    assert changed_block(transport.requests[1].body, transport.requests[2].body) is None
    assert transport.requests[2].body.count(b"iVBORw0KGgo=") == 1


@pytest.mark.parametrize("empty", [{}, {"message": None, "code": None}, {"message": "", "code": 0, "type": ""}])
async def test_D05_an_error_that_says_nothing_is_none(empty: dict[str, Any]) -> None:
    said = await fold(chunk({"content": "Hi"}, error=empty), chunk(choices=[], error=empty), chunk(finish="stop"))
    assert (said.outcome.status, said.texts()) == ("completed", ["Hi"])


async def test_D05_a_reason_beside_a_plain_finish_counts_where_nothing_was_said() -> None:
    error = {"code": 502, "message": "late"}
    empty = await fold(chunk({}, finish="stop", error=error), DONE)
    assert empty.outcome.status == "timeout"
    assert empty.outcome.error is not None
    assert empty.outcome.error.message == "HTTP 502: late"
    said = await fold(chunk({"content": "Hi"}, finish="stop", error=error), DONE)
    assert said.outcome.status == "completed"


async def test_an_error_event_by_name() -> None:
    said = await fold(text("Par"), b'event: error\ndata: {"reason":"upstream unavailable, try again later"}\n\n')
    assert said.outcome.status == "timeout"


async def test_the_reply_was_broken_off_by_the_provider() -> None:
    said = await fold(text("Par"), chunk(finish="insufficient_system_resource"))
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("timeout", "overloaded")


def broken_off(error: Any, finish: str | None = "error", **more: Any) -> bytes:
    """A chunk that carries an error beside its choice, as OpenRouter words one in the middle of a stream."""
    return chunk({"content": ""}, finish, error=error, **more)


@pytest.mark.parametrize("finish", ["error", None])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"code": 402, "message": "Insufficient credits. Add more"}, "failed", "quota"),
        ({"code": 429, "message": "slow down"}, "timeout", "rate_limit"),
        ({"code": 400, "message": "maximum context length is 10 tokens"}, "failed", "context_overflow"),
        ({"code": 400, "message": "a field is wrong"}, "failed", "bad_request"),
        ({"code": "server_error", "message": "Provider disconnected unexpectedly"}, "timeout", "overloaded"),
        ("maximum context length is 10 tokens", "failed", "context_overflow"),
    ],
)
async def test_L4_the_providers_error_says_more_than_the_finish_beside_it(
    error: Any, status: str, kind: str, finish: str | None
) -> None:
    within = {"index": 0, "delta": {"content": ""}, "finish_reason": finish, "error": error}
    for last in (
        [broken_off(error, finish)],
        [chunk(choices=[within])],
        [chunk(finish="error"), broken_off(error, None)],
        [chunk(finish="error"), chunk(error=error, choices=[])],
        [chunk(finish="error"), b"data: " + json.dumps({"error": error}).encode() + b"\n\n"],
    ):
        said = await fold(text("Par"), *last, DONE)
        assert said.outcome.error is not None
        assert (said.outcome.status, said.outcome.error.kind) == (status, kind)
        words = error if isinstance(error, str) else error["message"]
        assert words in said.outcome.error.message
        assert said.stop_reasons() == [status]


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "length"])
async def test_L4_an_error_beside_or_after_an_ordinary_finish_takes_nothing_back(finish: str) -> None:
    error = {"code": 402, "message": "Insufficient credits"}
    for last in ([broken_off(error, finish)], [chunk(finish=finish), broken_off(error)]):
        said = await fold(text("All of it."), *last)
        assert said.outcome.status == "completed"
        assert said.texts() == ["All of it."]


@pytest.mark.parametrize("error", [None, {}, "", False])
async def test_L4_an_empty_error_is_none(error: Any) -> None:
    said = await fold(broken_off(error, None), text("Hi"), STOP)
    assert said.outcome.status == "completed"


@pytest.mark.parametrize("finish", ["error", "abort", "cancelled", "network_error"])
async def test_L4_a_reply_the_server_broke_off_without_a_reason_is_asked_for_again(finish: str) -> None:
    said = await fold(text("Par"), chunk(finish=finish), DONE)
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("timeout", "overloaded")
    assert finish in said.outcome.error.message


@pytest.mark.parametrize("junk", [b"data: {oops\n\n", b'data: {"error":{"message":"late"}}\n\n', b"\x00\xff garbage"])
async def test_L4_after_the_finish_nothing_matters(junk: bytes) -> None:
    said = await fold(text("hi"), STOP, junk)
    assert said.outcome.status == "completed"


async def test_junk_before_the_finish_is_malformed() -> None:
    said = await fold(text("hi"), b"data: {oops\n\n", text("never"), STOP)
    assert said.outcome.status == "malformed"
    assert said.texts() == ["hi"]


async def test_done_followed_by_bytes() -> None:
    said = await fold(text("hi"), DONE, b"data: {oops\n\n", text("never"))
    assert said.texts() == ["hi"]
    assert said.outcome.status == "completed"


async def test_done_without_a_finish_does_not_complete_half_a_call() -> None:
    whole = await fold(call('{"a":1}', index=0, id="a", name="read_file"), DONE)
    half = await fold(call('{"a":', index=0, id="a", name="read_file"), DONE)
    assert (whole.outcome.status, whole.pairs()) == ("completed", [("read_file", '{"a":1}')])
    assert (half.outcome.status, half.pairs()) == ("malformed", [])


async def test_lines_without_blank_lines_between() -> None:
    stream = b"".join(event[:-1] for event in (text("a"), text("b"), STOP))
    said = await fold(stream)
    assert said.texts() == ["ab"]


async def test_lone_surrogates_are_replaced() -> None:
    said = await fold(b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n', STOP)
    assert said.texts() == ["a\ufffd"]


@pytest.mark.parametrize(
    "delta",
    [
        '{"tool_calls":[{"index":0,"id":"a","function":{"name":"read_file","arguments":"{\\"p\\":\\"\\ud800\\"}"}}]}',
        '{"tool_calls":[{"index":0,"id":"a","function":{"name":"read_file","arguments":{"p":"\\ud800"}}}]}',
        '{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"},"extra_content":{"s":"\\ud800"}}]}',
        '{"reasoning_details":[{"type":"reasoning.text","text":"\\ud800","signature":"\\ud800"}],"content":"a"}',
        '{"content":"a","extra_content":{ "s": "\\ud800" }}',
        '{"reasoning":"\\ud83d","content":"a"}',
    ],
)
async def test_lone_surrogates_anywhere(delta: str) -> None:
    one, _ = model(
        Answer([b'data: {"choices":[{"delta":' + delta.encode() + b"}]}\n\n", STOP]), Answer([text("b"), STOP])
    )
    said = await ask(one)
    assert said.outcome.status == "completed"
    assert all(message.line.decode() for message in said.messages)
    assert (await ask(one)).outcome.status == "completed"


async def test_a_whole_reply_instead_of_a_stream() -> None:
    document = {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "Hi",
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    one, _ = model(Answer([json.dumps(document, indent=2).encode()], headers={"content-type": "application/json"}))
    said = await ask(one)
    assert (said.texts(), said.pairs()) == (["Hi"], [("read_file", "{}")])
    assert said.outcome.status == "completed"


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", ""])
async def test_a_200_with_an_error_as_json(content_type: str) -> None:
    body = json.dumps({"error": {"message": "model is overloaded", "type": "server_error"}}, indent=1).encode()
    one, _ = model(Answer([body], headers={"content-type": content_type}))
    said = await ask(one)
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("timeout", "overloaded")


async def test_a_200_with_a_web_page() -> None:
    one, _ = model(Answer([b"<!DOCTYPE html>\n<html><title>Log in</title>\n\n</html>"], headers={}))
    said = await ask(one)
    assert said.outcome.error is not None
    assert said.outcome.status == "malformed"
    assert "web page" in said.outcome.error.message
    assert "Log in" in said.outcome.error.message


async def test_text_after_a_call_and_before_the_next() -> None:
    said = await fold(
        call("{}", index=0, id="a", name="read_file"),
        text("and"),
        call("{}", index=1, id="b", name="list_tasks"),
        CALLS,
    )
    kinds = [type(message.payload).__name__ for message in said.complete()]
    assert kinds == ["Text", "ToolCall", "ToolCall"]
    assert said.outcome.status == "completed"


# --- <think> ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
async def test_think_tags_split_anywhere(size: int) -> None:
    content = "\n<think>\nLet me see: 1 < 2, </thin no.\n</think>\n\nThe answer, with <think> in it."
    pieces = [text(content[index : index + size]) for index in range(0, len(content), size)]
    one, transport = model(Answer([*pieces, STOP]), Answer([text("ok"), STOP]))
    said = await ask(one)
    assert said.thoughts() == ["Let me see: 1 < 2, </thin no."]
    assert said.texts() == ["The answer, with <think> in it."]
    await ask(one)
    assert transport.bodies()[1]["messages"][1]["content"] == [{"type": "text", "text": content}]


async def test_think_tags_that_never_close() -> None:
    said = await fold(text("<think>endless"), text(" </thi"), STOP)
    assert said.thoughts() == ["endless </thi"]
    assert said.texts() == []


async def test_an_empty_think_block_shows_nothing() -> None:
    said = await fold(text("<think>\n\n</think>\n\nHi"), STOP)
    assert (said.thoughts(), said.texts()) == ([], ["Hi"])


async def test_white_space_alone_is_no_text() -> None:
    said = await fold(text("\n\n"), call("{}", index=0, id="a", name="read_file"), CALLS)
    assert said.texts() == []


# --- properties ---------------------------------------------------------------------------------------

CLEAN = b"".join(
    [
        b": hello\n\n",
        chunk({"role": "assistant", "reasoning_content": "Hm ✅"}),
        chunk({"content": "Look"}),
        chunk({"content": "ing 你."}),
        call("", index=0, id="a", name="read_file"),
        call('{"path":', index=0),
        call('{"b":2}', index=1, id="b", name="write_file"),
        call('"a.txt"}', index=0),
        CALLS,
        usage(),
        DONE,
    ]
)
FINISHED_AT = CLEAN.index(b'"tool_calls"}]')


@settings(max_examples=200)
@given(cut=st.integers(0, len(CLEAN)), splits=st.lists(st.integers(0, len(CLEAN)), max_size=6))
async def test_any_cut_gives_a_legal_outcome_and_no_half_call(cut: int, splits: list[int]) -> None:
    places = [0, *sorted(place for place in splits if place < cut), cut]
    said = await fold(*(CLEAN[start:end] for start, end in itertools.pairwise(places)))
    _check(said, whole=cut > FINISHED_AT + 20)


def _check(said: Said, *, whole: bool) -> None:
    assert said.outcome.status == ("completed" if whole else said.outcome.status)
    if said.outcome.status == "completed":
        assert said.pairs() == [("read_file", '{"path":"a.txt"}'), ("write_file", '{"b":2}')]
    else:
        assert said.outcome.status == "malformed"
        assert said.pairs() == []


@settings(max_examples=80)
@given(st.lists(st.sampled_from(CLEAN.split(b"\n\n")), max_size=14), st.binary(max_size=30))
async def test_any_order_of_events_and_junk_never_raises(events: list[bytes], junk: bytes) -> None:
    said = await fold(b"\n\n".join(events), junk)
    assert said.outcome.error is None or said.outcome.error.kind != "unknown"


WORDS = str.split(
    "choices delta message content tool_calls function name arguments index id finish_reason usage reasoning"
    " reasoning_content reasoning_details type text prompt_tokens extra_content refusal function_call x_groq"
    " thinking signature"
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=80)
@given(st.lists(json_values.map(lambda delta: chunk(choices=[{"delta": delta, "finish_reason": None}])), max_size=5))
async def test_any_delta_never_raises(events: list[bytes]) -> None:
    said = await fold(*events, STOP)
    assert said.outcome.error is None or "internal error" not in said.outcome.error.message


@settings(max_examples=80)
@given(st.lists(json_values, max_size=4))
async def test_any_json_event_never_raises(documents: list[Any]) -> None:
    said = await fold(*(b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents))
    assert said.outcome.error is None or "internal error" not in said.outcome.error.message


# --- what may not be told wrongly -------------------------------------------------------------------------


@pytest.mark.parametrize("second", [{"index": 0, "id": "c0"}, {"index": 0}, {"id": "c0"}])
async def test_D03_arguments_that_come_before_the_name_are_one_call(second: dict[str, Any]) -> None:
    said = await fold(
        call('{"path":', index=0, id="c0"),
        call('"a"', name="read_file", **second),
        call("}", **second),
        CALLS,
        DONE,
    )
    assert said.pairs() == [("read_file", '{"path":"a"}')]
    assert said.outcome.status == "completed"


async def test_D03_a_call_with_a_name_after_whole_arguments_without_one_is_not_joined_to_them() -> None:
    said = await fold(call('{"a":1}', index=0), call('{"path":"a"}', index=0, name="read_file"), CALLS, DONE)
    assert said.outcome.status == "malformed"
    assert said.pairs() == []


async def test_L4_a_filter_inside_a_call_is_called_a_filter() -> None:
    said = await fold(call('{"path":', index=0, id="c0", name="read_file"), chunk(finish="content_filter"), DONE)
    assert said.outcome.status == "malformed"
    assert said.outcome.cut_off
    assert said.outcome.error is not None
    assert said.outcome.error.kind == "refused"
    assert "filter" in said.outcome.error.message
    assert "limit" not in said.outcome.error.message


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([STOP], "The model ended its reply without a word."),
        ([chunk({"content": "\n\n"}), STOP], "The model ended its reply without a word."),
        ([chunk({"reasoning": "Hm."}), STOP], "The model ended its reply before it answered."),
        ([chunk({"reasoning": "Hm."}), chunk(finish="length")], "cut at the output limit. That was before it answered"),
        ([text("Half"), chunk(finish="length")], "The reply was cut at the output limit."),
    ],
)
async def test_L4_a_completed_reply_without_an_answer_says_so(pieces: list[bytes], words: str) -> None:
    said = await fold(*pieces, DONE)
    assert said.outcome.status == "completed"
    assert words in (said.outcome.note or "")


async def test_L4_a_whole_reply_has_no_note() -> None:
    assert (await fold(text("Yes."), STOP, DONE)).outcome.note is None
    assert (await fold(call("{}", index=0, id="c", name="list_tasks"), CALLS, DONE)).outcome.note is None
