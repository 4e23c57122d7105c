"""Streams of Gemini servers, clean and unclean, each with the messages and the outcome it must give."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import json_objects
from tests.support.gemini_kit import STOP, USAGE, call, chunk, event, fold, model, text, thought
from tests.support.llm_kit import Answer, Said, ask
from tests.support.stream_mutations import Damaged, damaged

from penguin.llm.transport import TransportError
from penguin.protocol.builders import tool_call_output, user_text
from penguin.protocol.messages import InlineData, InlineThinking, Message, PartialToolCall, Text

pytestmark = pytest.mark.anyio
SIGNATURE = "c2ln/bmF0+dXJl=="


def fidelity(payload: Any) -> Any:
    return msgspec.json.decode(payload.fidelity) if isinstance(payload.fidelity, msgspec.Raw) else None


def payloads(said: Said) -> list[Any]:
    return [message.payload for message in said.complete()]


def trouble(said: Said) -> tuple[str, str]:
    """Status and kind of an attempt that did not complete."""
    assert said.outcome.error is not None
    return said.outcome.status, said.outcome.error.kind


async def sent_back(*steps: bytes) -> list[dict[str, Any]]:
    """The parts of the model's turn as they go back in the next request."""
    one, transport = model(Answer(steps), Answer([chunk(text("ok")), STOP]))
    first = await ask(one)
    results: list[Message] = [tool_call_output("out", made.tool_call_id) for made in first.calls()]
    await ask(one, *results or [user_text("go on")])
    return list(transport.bodies()[1]["contents"][1]["parts"])


# --- clean streams --------------------------------------------------------------------------------------


async def test_thoughts_words_and_calls() -> None:
    said = await fold(
        chunk(thought("Hm, ")),
        chunk(thought("so.")),
        chunk(text("Look")),
        chunk(text("ing."), call("read_file", {"path": "a.txt"}, "c1")),
        STOP,
    )
    assert [type(payload).__name__ for payload in payloads(said)] == ["Thinking", "Text", "ToolCall"]
    assert (said.thoughts(), said.texts()) == (["Hm, so."], ["Looking."])
    assert said.pairs() == [("read_file", '{"path":"a.txt"}')]
    assert (said.calls()[0].tool_call_id, said.outcome.status, said.outcome.note) == ("c1", "completed", None)


async def test_P8_a_whole_call_is_a_start_one_delta_and_a_stop() -> None:
    said = await fold(chunk(call("read_file", {"path": "a"})), STOP)
    partials = [m.payload for m in said.messages if isinstance(m.payload, PartialToolCall)]
    assert [(p.event_type, p.arguments) for p in partials] == [("start", ""), ("delta", '{"path":"a"}'), ("stop", "")]


async def test_P4_usage_is_cumulative_and_thoughts_are_beside_the_reply() -> None:
    early = {"promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11}
    said = await fold(chunk(text("Hi"), usageMetadata=early), STOP)
    counts = said.usage().request
    assert (counts.cache_read, counts.cache_write, counts.output, counts.total) == (3, 7, 7, 17)
    assert said.usage().provider is not None
    assert not said.usage().estimated


async def test_usage_that_comes_after_the_end() -> None:
    said = await fold(chunk(text("Hi"), finish="STOP"), event({"usageMetadata": USAGE}))
    assert said.usage().request.total == 17


async def test_L12_no_usage_is_estimated() -> None:
    assert (await fold(chunk(text("Hi"), finish="STOP"))).usage().estimated


@pytest.mark.parametrize("args", [None, {}])
async def test_D04_no_arguments_are_an_empty_object(args: Any) -> None:
    said = await fold(chunk(call("list_tasks", args)), STOP)
    assert said.pairs() == [("list_tasks", "{}")]


@pytest.mark.parametrize("finish", ["STOP", "FINISH_REASON_UNSPECIFIED", "NEW_REASON", "stop"])
async def test_D05_content_decides_not_the_label(finish: str) -> None:
    said = await fold(chunk(call("read_file", {"path": "a"}), finish=finish))
    assert (said.pairs(), said.outcome.status) == ([("read_file", '{"path":"a"}')], "completed")


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "RECITATION"])
async def test_D06_a_reply_cut_in_or_right_after_a_call_runs_none(finish: str) -> None:
    said = await fold(chunk(text("I'll write.")), chunk(call("write_file", {"command": "rm -rf build"}), finish=finish))
    assert said.outcome.status == "malformed"
    assert said.outcome.cut_off
    assert [one.stop_reason for one in said.calls()] == ["malformed"]


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"])
async def test_D06_a_call_that_came_whole_waits_for_what_ends_the_reply(finish: str) -> None:
    said = await fold(chunk(call("exec_command", {"command": "make"})), chunk(finish=finish))
    assert said.outcome.status == "malformed"
    assert [one.stop_reason for one in said.calls()] == ["malformed"]


def timed(*steps: Any) -> tuple[Said, float]:
    """One reply on a clock that jumps, numbers being pauses in seconds: what was said, after how many seconds."""
    result: list[Any] = []

    async def run() -> None:
        one, _ = model(Answer([step if isinstance(step, bytes) else partial(anyio.sleep, step) for step in steps]))
        started = trio.current_time()
        said = await ask(one)
        result.append((said, trio.current_time() - started))

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    said, seconds = result[0]
    return said, seconds


@pytest.mark.parametrize("later", [0.3, 1.5, 60])
def test_D08_a_finish_on_every_chunk_is_the_last_word_only_if_nothing_follows(later: float) -> None:
    pieces = [
        chunk(part, finish="STOP", usageMetadata=USAGE)
        for part in (text("a"), text("b"), text("c"), call("list_tasks"))
    ]
    said, _ = timed(pieces[0], 0.3, pieces[1], later, pieces[2], later, pieces[3])
    assert (said.texts(), said.pairs(), said.outcome.status) == (["abc"], [("list_tasks", "{}")], "completed")


@pytest.mark.parametrize("last", [chunk(text("b"), finish="STOP", usageMetadata=USAGE), chunk(text("b")) + STOP])
def test_a_connection_left_open_after_the_last_words_does_not_hang(last: bytes) -> None:
    said, seconds = timed(chunk(text("a")), last, 10_000)
    assert (said.texts(), said.outcome.status) == (["ab"], "completed")
    assert seconds <= 2.001


@pytest.mark.parametrize("part", [thought("hm"), {"text": "", "thoughtSignature": "QQ=="}, {"executableCode": {}}])
async def test_D06_a_call_that_was_let_go_is_no_reason_to_ask_again(part: dict[str, Any]) -> None:
    said = await fold(chunk(call("list_tasks")), chunk(part), chunk(finish="MAX_TOKENS"))
    assert (said.pairs(), said.outcome.status) == ([("list_tasks", "{}")], "completed")


async def test_L9_two_calls_that_share_an_id_are_two() -> None:
    one, two = (call("exec_command", {"command": name}, id="exec_command") for name in ("a", "b"))
    said = await fold(chunk(one), chunk(two), chunk(one), STOP)
    assert said.pairs() == [("exec_command", '{"command":"a"}'), ("exec_command", '{"command":"b"}')]


@pytest.mark.parametrize("finish", ["STOP", "FINISH_REASON_UNSPECIFIED"])
async def test_D05_a_server_may_say_stop_with_every_chunk(finish: str) -> None:
    parts = [text("Hello "), text("world"), call("list_tasks")]
    said = await fold(*(chunk(part, finish=finish, usageMetadata=USAGE) for part in parts))
    assert (said.texts(), said.pairs()) == (["Hello world"], [("list_tasks", "{}")])


async def test_D09_an_error_beside_empty_candidates_is_the_error() -> None:
    said = await fold(event({"candidates": [], "error": {"code": 503, "message": "The model is overloaded."}}))
    assert said.outcome.status == "timeout"
    assert said.outcome.error is not None
    assert "overloaded" in said.outcome.error.message


@pytest.mark.parametrize(
    ("before", "words"),
    [([thought("Long.")], "nothing but thinking came before the output limit"), ([], "nothing came before the output")],
)
async def test_D06_a_cut_before_the_first_word_may_be_one_in_a_call(before: list[Any], words: str) -> None:
    said = await fold(chunk(*before), chunk(finish="MAX_TOKENS"))
    assert (said.outcome.status, said.outcome.cut_off) == ("malformed", True)
    assert said.outcome.error is not None
    assert words in said.outcome.error.message
    assert "tool call" not in said.outcome.error.message


@pytest.mark.parametrize("before", [[thought("Long.")], []])
async def test_L4_without_tools_thinking_that_uses_up_the_limit_is_a_completed_reply_with_a_note(
    before: list[Any],
) -> None:
    said = await fold(chunk(*before), chunk(finish="MAX_TOKENS"), tools=[])
    assert said.outcome.status == "completed"
    assert said.outcome.note is not None
    assert said.outcome.note.startswith("The reply was cut at the output limit. That was ")
    assert said.outcome.note.endswith("raise `max_tokens`, or let it think less.")


async def test_D06_tools_of_the_entry_are_tools_too() -> None:
    extra = {"tools": [{"functionDeclarations": [{"name": "look"}]}]}
    said = await fold(chunk(thought("Long.")), chunk(finish="MAX_TOKENS"), tools=[], extra_body=extra)
    assert said.outcome.cut_off


async def test_D06_a_cut_in_text_is_a_completed_reply_with_a_note() -> None:
    said = await fold(chunk(call("read_file", {})), chunk(text("half a sent"), finish="MAX_TOKENS"))
    assert (said.texts(), said.pairs(), said.outcome.status) == (["half a sent"], [("read_file", "{}")], "completed")
    assert "cut" in (said.outcome.note or "")


async def test_D40_calls_without_ids_get_unique_ones() -> None:
    replies = [Answer([chunk(call("exec_command", {}), call("exec_command", {})), STOP]) for _ in range(2)]
    one, transport = model(*replies, Answer([chunk(text("ok")), STOP]))
    new: list[Message] = [user_text("go")]
    ids: list[str] = []
    for _ in replies:
        said = await ask(one, *new)
        ids += [made.tool_call_id for made in said.calls()]
        new = [tool_call_output(f"of {made.tool_call_id}", made.tool_call_id) for made in said.calls()]
    await ask(one, *new)
    assert len(set(ids)) == 4
    contents = transport.bodies()[2]["contents"]
    assert "id" not in json.dumps([content["parts"] for content in contents])
    outputs = [
        part["functionResponse"]["response"]["output"] for content in contents[2::2] for part in content["parts"]
    ]
    assert outputs == [f"of {each}" for each in ids]


async def test_D40_ids_that_repeat_become_unique_and_are_sent() -> None:
    replies = [Answer([chunk(call("exec_command", {}, "call_0")), STOP]) for _ in range(2)]
    one, transport = model(*replies, Answer([chunk(text("ok")), STOP]))
    new: list[Message] = [user_text("go")]
    for _ in replies:
        said = await ask(one, *new)
        new = [tool_call_output("out", said.calls()[0].tool_call_id)]
    await ask(one, *new)
    contents = transport.bodies()[2]["contents"]
    assert [content["parts"][0]["functionCall"]["id"] for content in contents[1::2]] == ["call_0", "call_0_2"]
    assert [content["parts"][0]["functionResponse"]["id"] for content in contents[2::2]] == ["call_0", "call_0_2"]


async def test_the_same_call_twice_is_one() -> None:
    said = await fold(chunk(call("read_file", {}, "c1")), chunk(call("read_file", {}, "c1")), STOP)
    assert said.pairs() == [("read_file", "{}")]


# --- signatures -----------------------------------------------------------------------------------------


async def test_P5_a_signature_on_the_first_of_parallel_calls() -> None:
    parts = [call("read_file", {"n": 1.0}, "c1", thoughtSignature=SIGNATURE), call("list_tasks", {}, "c2")]
    said = await fold(chunk(*parts), STOP)
    assert [fidelity(made) for made in said.calls()] == [
        {"signature": SIGNATURE, "call": {"id": "c1"}},
        {"call": {"id": "c2"}},
    ]
    assert await sent_back(chunk(*parts), STOP) == parts


async def test_P5_a_signature_on_text_closes_it() -> None:
    parts = [text("Hel"), text("lo", thoughtSignature=SIGNATURE), text("Next")]
    said = await fold(*(chunk(part) for part in parts), STOP)
    assert said.texts() == ["Hello", "Next"]
    assert [fidelity(payload) for payload in payloads(said)] == [{"signature": SIGNATURE}, None]
    assert await sent_back(*(chunk(part) for part in parts), STOP) == [
        text("Hello", thoughtSignature=SIGNATURE),
        text("Next"),
    ]


async def test_P5_a_signature_on_an_empty_last_part_goes_back_as_one() -> None:
    last = chunk(text("", thoughtSignature=SIGNATURE), finish="STOP", usageMetadata=USAGE)
    said = await fold(chunk(text("Hello")), last)
    assert said.texts() == ["Hello"]
    assert await sent_back(chunk(text("Hello")), last) == [text("Hello"), text("", thoughtSignature=SIGNATURE)]


async def test_P5_a_signature_alone_after_a_call_stands_where_it_came() -> None:
    parts = [call("read_file", {}, "c"), text("", thoughtSignature=SIGNATURE)]
    said = await fold(chunk(*parts), STOP)
    assert [type(payload).__name__ for payload in payloads(said)] == ["ToolCall", "Thinking"]
    assert await sent_back(chunk(*parts), STOP) == parts


async def test_P5_signed_thoughts_go_back_and_others_do_not() -> None:
    parts = [thought("plain"), text("a"), thought("signed", thoughtSignature=SIGNATURE), text("b")]
    said = await fold(*(chunk(part) for part in parts), STOP)
    assert said.thoughts() == ["plain", "signed"]
    assert await sent_back(*(chunk(part) for part in parts), STOP) == parts[1:]


async def test_P5_an_empty_signed_thought_closes_the_open_one() -> None:
    said = await fold(chunk(thought("Hm")), chunk(thought("", thoughtSignature=SIGNATURE)), chunk(text("a")), STOP)
    assert said.thoughts() == ["Hm"]
    assert fidelity(payloads(said)[0]) == {"part": {"text": "", "thought": True, "thoughtSignature": SIGNATURE}}


async def test_an_unknown_part_is_kept_raw() -> None:
    part = {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": SIGNATURE}
    said = await fold(chunk(text("Run:")), chunk(part), chunk(text("1")), STOP)
    assert (said.thoughts(), said.texts()) == ([""], ["Run:", "1"])
    assert await sent_back(chunk(text("Run:")), chunk(part), chunk(text("1")), STOP) == [text("Run:"), part, text("1")]


async def test_inline_data_of_the_model() -> None:
    blob = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    parts = [text("See"), blob | {"thoughtSignature": SIGNATURE}, blob | {"thought": True}]
    said = await fold(*(chunk(part) for part in parts), STOP)
    assert [type(payload) for payload in payloads(said)] == [Text, InlineData, InlineThinking]
    assert said.outcome.status == "completed"
    assert await sent_back(*(chunk(part) for part in parts), STOP) == parts


@settings(max_examples=60)
@given(json_objects(), json_objects())
async def test_P5_any_raw_part_goes_back_with_its_bytes(part: bytes, args: bytes) -> None:
    raw = b'{"newThing":' + part + b"}"
    called = b'{"functionCall":{"name":"ls","args":' + args + b"}}"
    data = b'data: {"candidates":[{"content":{"parts":[' + raw + b"," + called + b']},"finishReason":"STOP"}]}\n\n'
    one, transport = model(Answer([data]), Answer([chunk(text("ok")), STOP]))
    said = await ask(one)
    await ask(one, tool_call_output("out", said.calls()[0].tool_call_id))
    assert raw in transport.requests[1].body
    assert b'"args":' + args in transport.requests[1].body


# --- ends -----------------------------------------------------------------------------------------------


async def test_D10_a_stream_without_its_reason() -> None:
    said = await fold(chunk(text("half")), chunk(call("write_file", {})))
    assert trouble(said) == ("malformed", "network")


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"])
@pytest.mark.parametrize("parts", [[], [text("I will")], [call("read_file", {"path": "a"})]])
async def test_D12_a_malformed_call_is_retried_whatever_came_with_it(reason: str, parts: list[Any]) -> None:
    said = await fold(chunk(*parts, finish=reason, message="Malformed function call: print(", usageMetadata=USAGE))
    assert trouble(said) == ("malformed", "malformed")
    assert said.outcome.error is not None
    assert reason in said.outcome.error.message
    assert "print(" in said.outcome.error.message


async def test_D12_as_reported() -> None:
    said = await fold(
        b'data: {"candidates":[{"content":{},"finishReason":"MALFORMED_FUNCTION_CALL","index":0}],'
        b'"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9}}\n\n'
    )
    assert trouble(said) == ("malformed", "malformed")


@pytest.mark.parametrize(
    "last",
    [
        chunk(finish="STOP"),
        event({"candidates": [{"finishReason": "STOP", "index": 0}]}),
        event({"candidates": [{"content": None, "finishReason": "STOP"}]}),
        chunk(text(""), finish="STOP"),
        chunk(thought("Hm"), finish="STOP"),
    ],
)
async def test_L4_a_plain_end_without_a_word_completes_the_reply_and_says_so(last: bytes) -> None:
    said = await fold(last)
    assert said.outcome.status == "completed"
    assert (said.outcome.note or "").startswith("The model ended its reply ")


@pytest.mark.parametrize("reason", ["OTHER", "NO_IMAGE", "IMAGE_OTHER"])
@pytest.mark.parametrize("before", [[], [thought("Hm")]])
async def test_D12_an_early_end_without_a_word_is_no_reply(reason: str, before: list[Any]) -> None:
    said = await fold(chunk(*before, finish=reason))
    assert trouble(said) == ("malformed", "malformed")
    assert said.outcome.error is not None
    assert reason in said.outcome.error.message


@pytest.mark.parametrize("candidates", [{"candidates": []}, {}])
async def test_D12_a_blocked_prompt_names_the_reason(candidates: dict[str, Any]) -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "because"}
    said = await fold(event(candidates | {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 9}}))
    assert trouble(said) == ("failed", "refused")
    assert said.outcome.error is not None
    assert "PROHIBITED_CONTENT: because" in said.outcome.error.message


async def test_feedback_without_a_block_is_no_block() -> None:
    said = await fold(chunk(text("Hi"), promptFeedback={"safetyRatings": []}), STOP)
    assert said.outcome.status == "completed"


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST", "IMAGE_SAFETY"])
async def test_a_filter_before_the_first_word_is_a_refusal(reason: str) -> None:
    said = await fold(chunk(thought("Hm")), chunk(finish=reason))
    assert trouble(said) == ("failed", "refused")
    assert said.outcome.error is not None
    assert reason in said.outcome.error.message


async def test_a_filter_in_the_text_is_a_note() -> None:
    said = await fold(chunk(text("Hi")), chunk(finish="SAFETY"))
    assert (said.outcome.status, said.texts()) == ("completed", ["Hi"])
    assert "SAFETY" in (said.outcome.note or "")


async def test_a_missing_signature_is_not_retried() -> None:
    said = await fold(chunk(finish="MISSING_THOUGHT_SIGNATURE", message="turn 3"))
    assert said.outcome.status == "failed"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}, ("timeout", "overloaded")),
        ({"code": 500, "message": "Internal", "status": "INTERNAL"}, ("timeout", "overloaded")),
        ({"code": 400, "message": "Function call is missing a thought_signature"}, ("failed", "bad_request")),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
async def test_an_error_inside_the_stream(error: dict[str, Any], expected: tuple[str, str], listed: bool) -> None:
    said = await fold(chunk(text("Hi")), event([{"error": error}] if listed else {"error": error}))
    assert trouble(said) == expected
    assert said.outcome.error is not None
    assert error["message"] in said.outcome.error.message


async def test_what_comes_after_the_end_does_not_matter() -> None:
    said = await fold(chunk(text("ok")), STOP, chunk(call("write_file", {})), b"data: {\n\n", TransportError("reset"))
    assert (said.texts(), said.pairs(), said.outcome.status) == (["ok"], [], "completed")


# --- careless servers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [True, False])
async def test_a_whole_reply_as_one_document(listed: bool) -> None:
    whole = {
        "candidates": [{"content": {"parts": [text("Hi"), call("list_tasks")]}, "finishReason": "STOP"}],
        "usageMetadata": USAGE,
    }
    body = json.dumps([whole] if listed else whole, indent=1).encode()
    one, _ = model(Answer([body], headers={"content-type": "application/json"}))
    said = await ask(one)
    assert (said.texts(), said.pairs(), said.usage().request.total) == (["Hi"], [("list_tasks", "{}")], 17)


async def test_only_the_first_candidate_counts() -> None:
    one = {"content": {"parts": [text("A")]}, "index": 0}
    other = {"content": {"parts": [text("B")]}, "index": 1}
    assert (await fold(event({"candidates": [other, one]}), STOP)).texts() == ["A"]


@pytest.mark.parametrize("name", [None, ""])
async def test_a_call_without_a_name_is_malformed(name: str | None) -> None:
    assert trouble(await fold(chunk({"functionCall": {"name": name, "args": {}}}), STOP)) == ("malformed", "malformed")


async def test_arguments_that_are_no_object_are_left_to_the_engine() -> None:
    said = await fold(chunk({"functionCall": {"name": "ls", "args": [1]}}), STOP)
    assert said.pairs() == [("ls", "[1]")]


async def test_surrogates_and_wrong_types_do_no_harm() -> None:
    said = await fold(
        b'data: {"candidates":[{"index":"0","content":'
        b'{"parts":[5,{"text":"a\\ud800b","thoughtSignature":7},[]]}}]}\n\n',
        STOP,
    )
    assert said.texts() == ["a�b"]


@pytest.mark.parametrize("data", [b"{", b"nonsense", b'{"candidates":['])
async def test_what_cannot_be_parsed_is_malformed(data: bytes) -> None:
    assert trouble(await fold(chunk(text("Hi")), b"data: " + data + b"\n\n", STOP)) == ("malformed", "malformed")


# --- properties -----------------------------------------------------------------------------------------

CLEAN = [
    chunk(thought("Hm ✅")),
    chunk(thought(" so")),
    chunk(text("Look")),
    chunk(text("ing 你.")),
    chunk(call("read_file", {"path": "a.txt"}, "c1", thoughtSignature=SIGNATURE), call("list_tasks", {}, "c2")),
    chunk(call("write_file", {"b": 2}, "c3")),
    chunk(text("", thoughtSignature=SIGNATURE)),
    STOP,
]
WHOLE_CALLS = {("read_file", '{"path":"a.txt"}'), ("list_tasks", "{}"), ("write_file", '{"b":2}')}


@settings(max_examples=200)
@given(damaged(CLEAN))
async def test_any_damage_gives_a_legal_outcome_and_no_half_call(stream: Damaged) -> None:
    said = await fold(*stream.chunks)
    assert said.outcome.status in {"completed", "malformed"}
    assert set(said.pairs()) <= WHOLE_CALLS
    assert len(said.pairs()) <= 3
    if said.outcome.status == "completed":
        assert {call.stop_reason for call in said.calls()} <= {None}
    if not stream.reordered and b"totalTokenCount" in b"".join(stream.chunks):
        assert (said.outcome.status, set(said.pairs())) == ("completed", WHOLE_CALLS)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(CLEAN), max_size=14), st.binary(max_size=30))
async def test_any_order_of_events_and_junk_never_raises(events: list[bytes], junk: bytes) -> None:
    said = await fold(b"".join(events), junk)
    assert said.outcome.error is None or said.outcome.error.kind != "unknown"


WORDS = str.split(
    "candidates content parts text thought thoughtSignature functionCall name args id inlineData mimeType data"
    " finishReason finishMessage index promptFeedback blockReason usageMetadata error message code status"
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["STOP", "SAFETY"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=14,
)


@settings(max_examples=100)
@given(st.lists(_json, max_size=4), st.lists(_json, max_size=4))
async def test_any_json_never_raises(values: list[Any], parts: list[Any]) -> None:
    said = await fold(*(event(value) for value in values), chunk(*parts), STOP)
    assert said.outcome.error is None or "internal error" not in said.outcome.error.message
