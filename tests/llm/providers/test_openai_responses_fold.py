"""Streams of Responses servers, clean and unclean, each with the messages and the outcome it must give."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import json_objects
from tests.support.llm_kit import Answer, Said, Step, ask
from tests.support.responses_kit import (
    CREATED,
    added,
    arguments,
    arguments_done,
    call,
    call_begin,
    call_item,
    completed,
    delta,
    done,
    event,
    fold,
    incomplete,
    message,
    message_item,
    model,
    reasoning,
    reasoning_item,
    response,
)
from tests.support.stream_mutations import Damaged, damaged

from penguin.llm.transport import TransportError
from penguin.protocol.builders import tool_call_output, user_text
from penguin.protocol.messages import InlineData, Message, PartialText, PartialThinking, Text, Thinking, ToolCall

pytestmark = pytest.mark.anyio
DONE = completed()


def fidelity(message: Text | Thinking | ToolCall | InlineData) -> Any:
    return msgspec.json.decode(message.fidelity) if isinstance(message.fidelity, msgspec.Raw) else None


def payloads(said: Said) -> list[Any]:
    return [message.payload for message in said.complete()]


def trouble(said: Said) -> tuple[str, str]:
    """Status and kind of an attempt that did not complete."""
    assert said.outcome.error is not None
    return said.outcome.status, said.outcome.error.kind


# --- clean streams --------------------------------------------------------------------------------------


async def test_reasoning_text_and_a_call_in_the_order_of_the_output() -> None:
    said = await fold(
        CREATED,
        reasoning(0, "Hm."),
        message(1, "Look", "ing.", phase="commentary"),
        call(2, "read_file", '{"path":', '"a.txt"}'),
        completed(),
    )
    assert [type(payload).__name__ for payload in payloads(said)] == ["Thinking", "Text", "ToolCall"]
    assert (said.thoughts(), said.texts()) == (["Hm."], ["Looking."])
    assert said.pairs() == [("read_file", '{"path":"a.txt"}')]
    assert said.calls()[0].tool_call_id == "call_1"
    assert (said.outcome.status, said.outcome.note) == ("completed", None)


async def test_P4_usage_input_includes_cached_and_output_includes_reasoning() -> None:
    said = await fold(message(0, "Hi"), DONE)
    counts = said.usage().request
    assert (counts.cache_read, counts.cache_write, counts.output, counts.total) == (3, 4, 5, 12)
    assert not said.usage().estimated


async def test_P5_fidelity_is_what_was_around_the_words() -> None:
    said = await fold(
        reasoning(0, "Hm.", new_field={"b": 1, "a": [1.50]}),
        message(1, "Hi", phase="final_answer"),
        call(2, "list_tasks", "{}", namespace="n"),
        DONE,
    )
    thought, words, asked = payloads(said)
    assert bytes(thought.fidelity) == msgspec.json.format(
        json.dumps({"item": reasoning_item("rs_1", "Hm.", new_field={"b": 1, "a": [1.50]})}).encode(), indent=-1
    )
    assert fidelity(words) == {
        "phase": "final_answer",
        "item": {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"},
        "part": {"type": "output_text", "annotations": []},
    }
    assert fidelity(asked) == {"item": {"id": "fc_1", "status": "completed", "namespace": "n"}}


async def test_several_summary_parts_are_one_block_of_paragraphs() -> None:
    said = await fold(reasoning(0, "First.", "Second."), message(1, "Hi"), DONE)
    assert said.thoughts() == ["First.\n\nSecond."]
    assert len([m for m in said.messages if isinstance(m.payload, PartialThinking)]) == 5


async def test_open_reasoning_is_shown_where_there_is_no_summary() -> None:
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "So."}]}
    said = await fold(
        added(0, id="rs_1", type="reasoning", summary=[]),
        delta(0, "rs_1", "reasoning_text", "S", content_index=0),
        delta(0, "rs_1", "reasoning_text", "o.", content_index=0),
        done(0, **item),
        message(1, "Hi"),
        DONE,
    )
    assert said.thoughts() == ["So."]
    assert fidelity(payloads(said)[0]) == {"item": item}


async def test_encrypted_reasoning_without_a_summary_is_an_empty_block() -> None:
    said = await fold(reasoning(0), reasoning(1, id="rs_2"), message(2, "Hi"), DONE)
    assert said.thoughts() == ["", ""]
    assert [fidelity(payload)["item"]["id"] for payload in payloads(said)[:2]] == ["rs_1", "rs_2"]


async def test_an_unknown_item_type_is_kept_raw() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"query": "x"}}
    said = await fold(
        added(0, id="ws_1", type="web_search_call", status="in_progress"),
        event("response.web_search_call.searching", output_index=0, item_id="ws_1"),
        done(0, **search),
        message(1, "Found."),
        DONE,
    )
    assert (said.thoughts(), said.texts()) == ([""], ["Found."])
    assert fidelity(payloads(said)[0]) == {"item": search}


IMAGE = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "output_format": "webp"}


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize(
    ("result", "mime"), [("iVBORw0KGgo=", "image/png"), ("/9j/AA==", "image/jpeg"), ("AAAA", "image/webp")]
)
async def test_an_image_the_model_made_is_shown_and_goes_back_once(result: str, mime: str, announced: bool) -> None:
    first = Answer(
        [
            CREATED,
            reasoning(0, "Hm."),
            *([added(1, **IMAGE | {"status": "in_progress"}), done(1, **IMAGE, result=result)] if announced else []),
            completed(reasoning_item("rs_1", "Hm."), {**IMAGE, "result": result}),
        ]
    )
    one, transport = model(first, Answer([message(0, "ok"), DONE]))
    said = await ask(one)
    assert (said.outcome.status, said.outcome.note) == ("completed", None)
    [image] = [payload for payload in payloads(said) if isinstance(payload, InlineData)]
    assert (image.role, image.data, image.mime_type) == ("assistant", result, mime)
    assert fidelity(image) == {"item": IMAGE}
    await ask(one)
    assert transport.requests[1].body.count(result.encode()) == 1
    sent = transport.bodies()[1]["input"]
    assert [item["type"] for item in sent] == ["message", "reasoning", "image_generation_call", "message"]
    assert sent[2] == {**IMAGE, "result": result}


async def test_a_filter_after_an_image_takes_it_not_back() -> None:
    said = await fold(done(0, **IMAGE, result="AAAA"), incomplete("content_filter"))
    assert said.outcome.status == "completed"
    assert "filter" in (said.outcome.note or "")


@pytest.mark.parametrize("more", [{}, {"result": None}, {"result": ""}, {"result": {"odd": 1}}])
async def test_an_image_that_did_not_come_is_kept_as_the_item_it_is(more: dict[str, Any]) -> None:
    said = await fold(done(0, **IMAGE, **more), message(1, "Sorry."), DONE)
    assert said.texts() == ["Sorry."]
    assert fidelity(payloads(said)[0]) == {"item": {**IMAGE, **more}}


# --- calls ----------------------------------------------------------------------------------------------


async def test_interleaved_calls_are_told_apart() -> None:
    said = await fold(
        call_begin(0, "read_file", "a"),
        call_begin(1, "write_file", "b"),
        arguments(1, "b", '{"b":'),
        arguments(0, "a", '{"a":'),
        arguments(1, "b", "2}"),
        arguments(0, "a", "1}"),
        done(1, **call_item("write_file", '{"b":2}', "b")),
        done(0, **call_item("read_file", '{"a":1}', "a")),
        DONE,
    )
    assert sorted(said.pairs()) == [("read_file", '{"a":1}'), ("write_file", '{"b":2}')]
    assert said.outcome.status == "completed"


async def test_interleaved_words_and_calls_are_read_from_top_to_bottom() -> None:
    said = await fold(
        added(0, id="m", type="message", role="assistant", content=[]),
        delta(0, "m", "output_text", "One"),
        call_begin(1, "read_file", "a"),
        arguments(1, "a", "{}"),
        delta(0, "m", "output_text", " two"),
        done(1, **call_item("read_file", "{}", "a")),
        delta(0, "m", "output_text", " three"),
        done(0, **message_item("One two three", "m")),
        DONE,
    )
    assert [type(payload).__name__ for payload in payloads(said)] == ["Text", "ToolCall"]
    assert said.texts() == ["One two three"]
    assert said.pairs() == [("read_file", "{}")]


async def test_two_messages_at_once_do_not_mix() -> None:
    said = await fold(
        added(0, id="m", type="message", role="assistant", content=[]),
        added(1, id="n", type="message", role="assistant", content=[]),
        delta(1, "n", "output_text", "second"),
        delta(0, "m", "output_text", "first"),
        done(1, **message_item("second", "n")),
        done(0, **message_item("first", "m")),
        DONE,
    )
    assert said.texts() == ["first", "second"]


async def test_text_streams_while_it_comes() -> None:
    """Holding back is for interleaved items; the usual stream is shown at once."""
    seen: list[int] = []
    emitted: list[Any] = []

    async def look() -> None:
        seen.append(sum(isinstance(m.payload, PartialText) for m in emitted))

    begin = added(0, id="m", type="message", role="assistant", content=[])
    steps: list[Step] = [begin, delta(0, "m", "output_text", "a"), look, delta(0, "m", "output_text", "b"), look, DONE]
    one, _ = model(Answer(steps))
    from penguin.protocol.interfaces import GenerateRequest  # noqa: PLC0415 - only here

    await one.stream_generate(GenerateRequest([user_text("go")]), emitted.append)
    assert seen == [2, 3]


async def test_arguments_only_in_the_done_event() -> None:
    said = await fold(
        call_begin(0, "read_file", "a"),
        arguments_done(0, "a", '{"path":"x"}'),
        done(0, **call_item("read_file", '{"path":"x"}', "a")),
        DONE,
    )
    assert said.pairs() == [("read_file", '{"path":"x"}')]


async def test_arguments_only_in_the_item() -> None:
    said = await fold(done(0, **call_item("read_file", '{"path":"x"}', "a")), DONE)
    assert said.pairs() == [("read_file", '{"path":"x"}')]


@pytest.mark.parametrize("given", ["", "  \n"])
async def test_D04_no_arguments_are_an_empty_object(given: str) -> None:
    said = await fold(call(0, "list_tasks", given), DONE)
    assert json.loads(said.calls()[0].arguments) == {}
    assert said.outcome.status == "completed"


async def test_D05_content_decides_whatever_the_response_says_of_itself() -> None:
    said = await fold(call(0, "read_file", "{}"), completed(message_item("ok", "other")))
    assert said.pairs() == [("read_file", "{}")]
    assert said.texts() == ["ok"]


@pytest.mark.parametrize("arguments_so_far", ['{"path":"notes.md","content":"li', '{"command":"rm -rf build"}', ""])
@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
@pytest.mark.parametrize("ending", ["nothing", "incomplete", "completed"])
async def test_D06_a_cut_off_call_is_never_run(arguments_so_far: str, reason: str, ending: str) -> None:
    item = call_item("write_file", arguments_so_far, "b", status=ending)
    said = await fold(
        call(0, "read_file", "{}", id="a"),
        call_begin(1, "write_file", "b"),
        arguments(1, "b", arguments_so_far),
        *([] if ending == "nothing" else [done(1, **item)]),
        incomplete(reason),
    )
    assert said.outcome.status == "malformed"
    assert said.outcome.cut_off
    assert {call.stop_reason for call in said.calls()} == {"malformed"}


async def test_D06_an_item_that_only_the_end_tells_of_stands_where_the_end_says() -> None:
    cut = call_item("write_file", "{}", "b")
    events = [call_begin(1, "write_file", "b"), done(1, **cut)]
    said = await fold(*events, incomplete("max_output_tokens", reasoning_item("rs_1", "Hm."), cut))
    assert (said.outcome.status, said.outcome.cut_off) == ("malformed", True)
    assert {one.stop_reason for one in said.calls()} == {"malformed"}
    whole = await fold(*events, completed(reasoning_item("rs_1", "Hm."), cut))
    kinds = [type(message.payload) for message in whole.complete()]
    assert kinds.index(Thinking) < kinds.index(ToolCall)


async def test_L2_items_announced_out_of_order_are_told_in_order() -> None:
    late = [arguments(1, "a", "{}"), done(1, **call_item("read_file", "{}", "a"))]
    said = await fold(call_begin(1, "read_file", "a"), message(0, "First."), *late, completed())
    kinds = [type(message.payload) for message in said.complete()]
    assert kinds.index(Text) < kinds.index(ToolCall)


async def test_an_item_that_comes_late_never_mixes_with_words_already_shown() -> None:
    begun = [added(1, **message_item("", "m_1")), delta(1, "m_1", "output_text", "One", content_index=0)]
    rest = [delta(1, "m_1", "output_text", " two", content_index=0), done(1, **message_item("One two", "m_1"))]
    said = await fold(*begun, message(0, "Zero", id="m_0"), *rest, completed())
    assert said.texts() == ["One two", "Zero"]


async def test_D06_a_cut_in_text_is_a_completed_reply_with_a_note() -> None:
    item = message_item("half a sent", status="incomplete")
    said = await fold(message(0, "half a sent"), incomplete("max_output_tokens", item))
    assert (said.texts(), said.outcome.status) == (["half a sent"], "completed")
    assert "cut" in (said.outcome.note or "")


async def test_calls_that_were_whole_before_the_text_was_cut_are_run() -> None:
    said = await fold(call(0, "read_file", "{}"), message(1, "and"), incomplete("max_output_tokens"))
    assert (said.pairs(), said.outcome.status) == ([("read_file", "{}")], "completed")


async def test_a_call_whose_pieces_differ_from_its_end_is_not_run() -> None:
    said = await fold(
        call_begin(0, "read_file", "a"),
        arguments(0, "a", '{"path":"a'),
        arguments(0, "a", '.txt"}'),
        done(0, **call_item("read_file", '{"path":"a b.txt"}', "a")),
        DONE,
    )
    assert trouble(said) == ("malformed", "malformed")
    assert said.pairs() == []


async def test_a_server_may_write_the_same_arguments_differently_at_the_end() -> None:
    said = await fold(
        call_begin(0, "read_file", "a"),
        arguments(0, "a", '{"path": "a"}'),
        done(0, **call_item("read_file", '{"path":"a"}', "a")),
        DONE,
    )
    assert said.pairs() == [("read_file", '{"path": "a"}')]


async def test_a_call_without_its_end_is_not_run() -> None:
    said = await fold(call_begin(0, "read_file", "a"), arguments(0, "a", "{}"), DONE)
    assert trouble(said) == ("malformed", "malformed")
    assert said.pairs() == []


async def test_a_server_that_ends_arguments_but_not_items() -> None:
    said = await fold(call_begin(0, "read_file", "a"), arguments(0, "a", "{}"), arguments_done(0, "a", "{}"), DONE)
    assert said.pairs() == [("read_file", "{}")]


@pytest.mark.parametrize("name", [None, ""])
async def test_a_call_without_a_name_is_malformed(name: str | None) -> None:
    said = await fold(done(0, type="function_call", id="fc", call_id="c", name=name, arguments="{}"), DONE)
    assert trouble(said) == ("malformed", "malformed")


async def test_D40_ids_that_repeat_become_unique() -> None:
    replies = [Answer([call(0, "exec_command", "{}", id="0"), DONE]) for _ in range(3)]
    one, transport = model(*replies, Answer([message(0, "ok"), DONE]))
    result: Message = user_text("go")
    for _ in range(3):
        said = await ask(one, result)
        result = tool_call_output("out", said.calls()[0].tool_call_id)
    await ask(one, result)
    sent = transport.bodies()[3]["input"]
    ids = [item["call_id"] for item in sent if item["type"] == "function_call"]
    assert len(set(ids)) == 3
    assert [item["call_id"] for item in sent if item["type"] == "function_call_output"] == ids


# --- ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"", b"data: [DONE]\n\n", b": bye\n\n"])
async def test_D10_a_stream_without_its_terminal_event(tail: bytes) -> None:
    said = await fold(CREATED, call_begin(0, "write_file", "1"), arguments(0, "1", '{"path":"x"'), tail)
    assert trouble(said) == ("malformed", "network")
    assert said.pairs() == []


async def test_D10_nothing_of_it_is_in_the_next_request() -> None:
    one, transport = model(
        Answer([CREATED, call(0, "write_file", "{}")]),
        Answer([message(0, "ok"), DONE]),
        Answer([message(0, "ok"), DONE]),
    )
    await ask(one, user_text("a"))
    assert (await ask(one, user_text("b"))).outcome.status == "completed"
    assert [item["type"] for item in transport.bodies()[1]["input"]] == ["message"]


async def test_what_comes_after_the_end_does_not_matter() -> None:
    said = await fold(
        message(0, "ok"), DONE, b"data: {\n\n", event("error", code="x", message="y"), TransportError("reset")
    )
    assert (said.texts(), said.outcome.status) == (["ok"], "completed")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": "server_error", "message": "The server had an error"}, ("timeout", "overloaded")),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, ("timeout", "rate_limit")),
        ({"code": "context_length_exceeded", "message": "too much"}, ("failed", "context_overflow")),
        ({"code": "insufficient_quota", "message": "no money"}, ("failed", "quota")),
        ({"code": "invalid_prompt", "message": "flagged as violating our usage policy"}, ("failed", "refused")),
        (None, ("timeout", "overloaded")),
    ],
)
async def test_a_failed_response_keeps_code_and_message(error: Any, expected: tuple[str, str]) -> None:
    said = await fold(CREATED, event("response.failed", response=response("failed", error=error)))
    assert trouble(said) == expected
    assert said.outcome.error is not None
    for word in (error or {}).values():
        assert word in said.outcome.error.message


@pytest.mark.parametrize(
    "members",
    [
        {"code": "server_error", "message": "broken", "param": None},
        {"error": {"type": "server_error", "code": None, "message": "broken"}},
    ],
)
async def test_an_error_event_in_the_stream(members: dict[str, Any]) -> None:
    said = await fold(message(0, "Hi"), event("error", **members), DONE)
    assert trouble(said) == ("timeout", "overloaded")
    assert said.outcome.error is not None
    assert "broken" in said.outcome.error.message


async def test_a_refusal_is_failed_in_the_words_of_the_model() -> None:
    item = message_item("") | {"content": [{"type": "refusal", "refusal": "I cannot."}]}
    said = await fold(
        added(0, id="msg_1", type="message", role="assistant", content=[]),
        delta(0, "msg_1", "refusal", "I can", content_index=0),
        done(0, **item),
        DONE,
    )
    assert trouble(said) == ("failed", "refused")
    assert said.outcome.error is not None
    assert said.outcome.error.message == "I cannot."


async def test_a_filter_before_the_first_word_is_a_refusal() -> None:
    assert trouble(await fold(CREATED, reasoning(0, "hm"), incomplete("content_filter"))) == ("failed", "refused")


async def test_a_filter_in_the_text_is_a_note() -> None:
    said = await fold(message(0, "Hi"), incomplete("content_filter"))
    assert (said.outcome.status, said.texts()) == ("completed", ["Hi"])
    assert "filter" in (said.outcome.note or "")


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ([completed()], "The model ended its reply without a word."),
        ([reasoning(0, "hm"), completed()], "The model ended its reply before it answered."),
        (
            [reasoning(0, "hm"), incomplete("max_output_tokens")],
            "That was before it answered: raise `max_tokens`, or let it think less.",
        ),
    ],
)
async def test_L4_an_end_without_a_word_completes_the_reply_and_says_so(stream: list[bytes], words: str) -> None:
    said = await fold(CREATED, *stream)
    assert said.outcome.status == "completed"
    assert (said.outcome.note or "").endswith(words)


async def test_a_completed_event_whose_response_says_incomplete() -> None:
    whole = response("incomplete", incomplete_details={"reason": "max_output_tokens"})
    said = await fold(call_begin(0, "write_file", "1"), event("response.completed", response=whole))
    assert said.outcome.cut_off


# --- careless servers -----------------------------------------------------------------------------------


async def test_items_that_only_the_last_event_tells_of() -> None:
    said = await fold(
        CREATED, completed(reasoning_item("rs_1", "Hm."), message_item("Hi"), call_item("list_tasks", "{}", "1"))
    )
    assert (said.thoughts(), said.texts(), said.pairs()) == (["Hm."], ["Hi"], [("list_tasks", "{}")])


async def test_the_last_event_repeats_nothing() -> None:
    items = [reasoning_item("rs_1", "Hm."), message_item("Hi"), call_item("list_tasks", "{}", "1")]
    said = await fold(reasoning(0, "Hm."), message(1, "Hi"), call(2, "list_tasks", "{}"), completed(*items))
    assert (said.thoughts(), said.texts(), said.pairs()) == (["Hm."], ["Hi"], [("list_tasks", "{}")])


async def test_the_last_event_never_mixes_two_calls() -> None:
    said = await fold(
        call_begin(1, "write_file", "b"),
        completed(call_item("read_file", '{"path":"a"}', "a"), call_item("write_file", '{"b":2}', "b")),
    )
    assert set(said.pairs()) == {("write_file", '{"b":2}'), ("read_file", '{"path":"a"}')}


async def test_an_end_that_names_another_call_is_another_call() -> None:
    said = await fold(
        call_begin(0, "write_file", "b"), done(0, **call_item("read_file", '{"path":"a"}', "a")), completed()
    )
    assert trouble(said) == ("malformed", "malformed")
    assert said.pairs() == []


async def test_a_gateway_that_gives_an_item_another_id_in_each_event() -> None:
    said = await fold(
        added(0, id="x1", type="message", role="assistant", content=[]),
        delta(0, "x2", "output_text", "Hel"),
        delta(0, "x3", "output_text", "lo"),
        done(0, **message_item("Hello", "x4")),
        added(1, **(call_item("read_file", "", "a", status="in_progress") | {"id": "y1"})),
        event("response.function_call_arguments.delta", output_index=1, item_id="y2", delta="{}"),
        done(1, **(call_item("read_file", "{}", "a") | {"id": "y3"})),
        completed(message_item("Hello", "x5"), call_item("read_file", "{}", "a") | {"id": "y4"}),
    )
    assert (said.texts(), said.pairs()) == (["Hello"], [("read_file", "{}")])


async def test_a_server_that_numbers_every_item_0() -> None:
    said = await fold(
        message(0, "One", id="m"),
        message(0, "Two", id="n"),
        call(0, "read_file", '{"a":1}', id="a"),
        call(0, "read_file", '{"b":2}', id="b"),
        DONE,
    )
    assert said.texts() == ["One", "Two"]
    assert said.pairs() == [("read_file", '{"a":1}'), ("read_file", '{"b":2}')]


async def test_no_ids_and_no_places() -> None:
    said = await fold(
        event("response.output_item.added", item={"type": "message"}),
        event("response.output_text.delta", delta="Hi"),
        event(
            "response.output_item.done", item={"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
        ),
        event("response.output_item.added", item={"type": "function_call", "name": "list_tasks"}),
        event("response.function_call_arguments.delta", delta="{}"),
        event("response.output_item.done", item={"type": "function_call", "name": "list_tasks", "arguments": "{}"}),
        DONE,
    )
    assert (said.texts(), said.pairs()) == (["Hi"], [("list_tasks", "{}")])
    assert said.calls()[0].tool_call_id == "call"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_whole_reply_as_one_document(stream: bool) -> None:
    body = json.dumps(response("completed", message_item("Hi"), call_item("list_tasks", "{}", "1")), indent=1).encode()
    one, _ = model(Answer([body], headers={"content-type": "text/event-stream" if stream else "application/json"}))
    said = await ask(one)
    assert (said.texts(), said.pairs(), said.usage().request.total) == (["Hi"], [("list_tasks", "{}")], 12)


async def test_a_response_still_in_the_queue_is_no_reply() -> None:
    one, _ = model(Answer([json.dumps(response("queued")).encode()], headers={"content-type": "application/json"}))
    assert trouble(await ask(one)) == ("malformed", "malformed")


async def test_a_200_with_an_error_as_json() -> None:
    body = json.dumps({"error": {"message": "overloaded", "type": "server_error"}}).encode()
    one, _ = model(Answer([body], headers={"content-type": "application/json"}))
    assert trouble(await ask(one)) == ("timeout", "overloaded")


async def test_surrogates_and_wrong_types_do_no_harm() -> None:
    said = await fold(
        b'data: {"type":"response.output_text.delta","output_index":"0","delta":"a\\ud800b","item_id":5}\n\n',
        b'data: {"type":"response.output_item.added","output_index":{},"item":[]}\n\n',
        DONE,
    )
    assert said.texts() == ["a�b"]
    assert said.outcome.status == "completed"


@pytest.mark.parametrize("data", [b"{", b"nonsense", b'{"type":"response.output_text.delta",'])
async def test_what_cannot_be_parsed_is_malformed(data: bytes) -> None:
    assert trouble(await fold(message(0, "Hi"), b"data: " + data + b"\n\n", DONE)) == ("malformed", "malformed")


async def test_unknown_events_are_nobodys_business() -> None:
    said = await fold(message(0, "Hi"), event("response.new_thing", x=1), event("keepalive"), b"data: 5\n\n", DONE)
    assert (said.texts(), said.outcome.status) == (["Hi"], "completed")


async def test_several_parts_of_one_message() -> None:
    two = [{"type": "output_text", "text": "One"}, {"type": "output_text", "text": "Two", "annotations": []}]
    item = message_item("") | {"content": two}
    one, transport = model(
        Answer(
            [
                added(0, id="msg_1", type="message", role="assistant", content=[]),
                delta(0, "msg_1", "output_text", "One", content_index=0),
                delta(0, "msg_1", "output_text", "Two", content_index=1),
                done(0, **item),
                DONE,
            ]
        ),
        Answer([message(0, "ok"), DONE]),
    )
    said = await ask(one)
    assert said.texts() == ["One", "Two"]
    await ask(one)
    assert transport.bodies()[1]["input"][1] == item


# --- properties -----------------------------------------------------------------------------------------

CLEAN: list[bytes] = [
    piece + b"\n\n"
    for piece in b"".join(
        [
            CREATED,
            reasoning(0, "Hm ✅", "So."),
            message(1, "Look", "ing 你.", phase="commentary"),
            call_begin(2, "read_file", "a"),
            call_begin(3, "write_file", "b"),
            arguments(2, "a", '{"path":'),
            arguments(3, "b", '{"b":'),
            arguments(2, "a", '"a.txt"}'),
            arguments(3, "b", "2}"),
            arguments_done(3, "b", '{"b":2}'),
            done(3, **call_item("write_file", '{"b":2}', "b")),
            done(2, **call_item("read_file", '{"path":"a.txt"}', "a")),
            completed(
                reasoning_item("rs_1", "Hm ✅", "So."),
                message_item("Looking 你.", phase="commentary"),
                call_item("read_file", '{"path":"a.txt"}', "a"),
                call_item("write_file", '{"b":2}', "b"),
            ),
        ]
    )
    .removesuffix(b"\n\n")
    .split(b"\n\n")
]
WHOLE_CALLS = {("read_file", '{"path":"a.txt"}'), ("write_file", '{"b":2}')}


@settings(max_examples=200)
@given(damaged(CLEAN))
async def test_any_damage_gives_a_legal_outcome_and_no_half_call(stream: Damaged) -> None:
    said = await fold(*stream.chunks)
    assert said.outcome.status in {"completed", "malformed"}
    assert set(said.pairs()) <= WHOLE_CALLS
    assert len(said.pairs()) <= 2
    if said.outcome.status == "completed":
        assert set(said.pairs()) == WHOLE_CALLS
        assert {call.stop_reason for call in said.calls()} == {None}


@settings(max_examples=100)
@given(st.lists(st.sampled_from(CLEAN), max_size=14), st.binary(max_size=30))
async def test_any_order_of_events_and_junk_never_raises(events: list[bytes], junk: bytes) -> None:
    said = await fold(b"".join(events), junk)
    assert said.outcome.error is None or said.outcome.error.kind != "unknown"


WORDS = str.split(
    "type item item_id output_index content_index summary_index delta text refusal arguments response output usage"
    " status error code message id call_id name content summary object incomplete_details reason"
)
KINDS = [
    "response.output_text.delta",
    "response.output_item.added",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.reasoning_summary_text.delta",
    "response.refusal.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "error",
    "message",
    "function_call",
    "reasoning",
]
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(KINDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=14,
)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(KINDS), _json), max_size=6))
async def test_any_json_never_raises(values: list[tuple[str, Any]]) -> None:
    events = [
        b"data: " + json.dumps(({"type": kind} | value) if isinstance(value, dict) else value).encode() + b"\n\n"
        for kind, value in values
    ]
    said = await fold(*events)
    assert said.outcome.error is None or "internal error" not in said.outcome.error.message


@settings(max_examples=60)
@given(json_objects())
async def test_P5_any_raw_item_goes_back_with_its_bytes(data: bytes) -> None:
    raw = b'{"id":"x","type":"search","more":' + data + b"}"
    end = b'data: {"type":"response.output_item.done","output_index":0,"item":' + raw + b"}\n\n"
    one, transport = model(Answer([end, message(1, "ok"), DONE]), Answer([message(0, "ok"), DONE]))
    await ask(one)
    await ask(one)
    assert raw in transport.requests[1].body
