from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from penguin.protocol import builders
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.errors import ScriptError
from penguin.protocol.interfaces import GenerateRequest, LLMOutcome, ModelConfig, SupportsHistory
from penguin.protocol.messages import Message, PartialText, PartialToolCall, Text, Thinking, TokenUsage, ToolCall
from penguin.testing import (
    ScriptedModel,
    assert_well_framed,
    call,
    fail,
    hang,
    pause,
    say,
    think,
    turn,
    usage,
)

pytestmark = pytest.mark.anyio


def asking(text: str = "go") -> GenerateRequest:
    return GenerateRequest([builders.user_text(text)])


async def play(model: ScriptedModel, request: GenerateRequest | None = None) -> tuple[LLMOutcome, list[Message]]:
    messages: list[Message] = []
    outcome = await model.stream_generate(request or asking(), messages.append)
    assert_well_framed(messages, streamed_only=True)
    return outcome, messages


def words(messages: list[Message]) -> list[Any]:
    """Each message as the class of its payload, its event type if it has one, and what it says."""
    said = []
    for message in messages:
        payload: Any = message.payload
        content = next(
            (getattr(payload, name) for name in ("text", "thinking", "arguments") if hasattr(payload, name)), ""
        )
        said.append((type(payload).__name__, getattr(payload, "event_type", ""), content))
    return said


async def test_P8_a_turn_streams_exact_segments_and_usage_last() -> None:
    model = ScriptedModel([turn(think("hm"), say("hello world"), call("read_file", {"file_path": "a"}, id="c1"))])

    outcome, messages = await play(model)

    assert outcome == LLMOutcome("completed")
    assert words(messages) == [
        ("PartialThinking", "start", ""),
        ("PartialThinking", "delta", "hm"),
        ("PartialThinking", "stop", ""),
        ("Thinking", "", "hm"),
        ("PartialText", "start", ""),
        ("PartialText", "delta", "hello wo"),
        ("PartialText", "delta", "rld"),
        ("PartialText", "stop", ""),
        ("Text", "", "hello world"),
        ("PartialToolCall", "start", ""),
        ("PartialToolCall", "delta", '{"file_p'),
        ("PartialToolCall", "delta", 'ath": "a'),
        ("PartialToolCall", "delta", '"}'),
        ("PartialToolCall", "stop", ""),
        ("ToolCall", "", '{"file_path": "a"}'),
        ("TokenUsage", "", ""),
    ]
    model.assert_exhausted()


async def test_short_forms_of_a_turn_say_the_same() -> None:
    for short in ("hi", say("hi"), turn("hi"), lambda request, history: say("hi")):
        _, messages = await play(ScriptedModel([short]))
        assert [m.payload.text for m in messages if isinstance(m.payload, Text)] == ["hi"]


async def test_P8_interleaved_calls_are_open_together_and_complete_in_order() -> None:
    model = ScriptedModel([turn(call("a", "12345678x", id="1"), call("b", "1", id="2"), interleaved=True)])

    _, messages = await play(model)

    fragments = [
        (m.payload.event_type, m.payload.tool_call_id) for m in messages if isinstance(m.payload, PartialToolCall)
    ]
    assert fragments == [
        ("start", "1"),
        ("start", "2"),
        ("delta", "1"),
        ("delta", "2"),
        ("delta", "1"),
        ("stop", "1"),
        ("stop", "2"),
    ]


async def test_thinking_without_text_carries_its_fidelity() -> None:
    _, messages = await play(ScriptedModel([turn(think("", fidelity={"signature": "xyz"}), say("ok"))]))
    [thinking] = [m.payload for m in messages if isinstance(m.payload, Thinking)]
    assert isinstance(thinking.fidelity, msgspec.Raw)
    assert bytes(thinking.fidelity) == b'{"signature":"xyz"}'


@pytest.mark.parametrize("status", ["timeout", "malformed", "failed"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, None, 99])
async def test_P9_a_fault_closes_what_is_open_with_its_status(status: Any, after: int | None) -> None:
    fault = fail(status, "overloaded", "busy", retry_after=3.0, http_status=503, after=after)
    model = ScriptedModel([turn(say("12345678abc"), call("t", "{}", id="c"), fault=fault), "again"])

    outcome, messages = await play(model)

    assert outcome.status == status
    assert outcome.error == fault.error
    assert outcome.error is not None
    assert (outcome.error.retry_after, outcome.error.http_status) == (3.0, 503)
    deltas = [m for m in messages if getattr(m.payload, "event_type", "") == "delta"]
    assert len(deltas) == (3 if after in {None, 99} else after)
    cut = [m.payload for m in messages if isinstance(m.payload, Text | ToolCall) and m.payload.stop_reason == status]
    assert len(cut) == (1 if after in {1, 2, 3} else 0)
    assert model.history == []
    assert not any(isinstance(m.payload, TokenUsage) for m in messages)


async def test_L1_only_completed_attempts_join_the_history() -> None:
    model = ScriptedModel([turn(say("lost"), fault=fail()), turn(say("kept"), call("t", id="c1")), "end"])

    await play(model)
    assert model.history == []
    await play(model)
    outputs = GenerateRequest([builders.tool_call_output("out", "c1")])
    await play(model, outputs)

    assert [type(m.payload).__name__ for m in model.history] == ["Text", "Text", "ToolCall", "ToolCallOutput", "Text"]
    assert len(model.requests) == 3
    assert model.requests[2].new_messages == outputs.new_messages
    model.assert_exhausted()


async def test_L1_cancellation_closes_open_segments_without_awaiting() -> None:
    messages: list[Message] = []
    model = ScriptedModel([turn(call("a", '{"x": 1}', id="1"), call("b", '{"y": 12345}', id="2"), interleaved=True)])
    model_was_stopped = False

    with anyio.CancelScope() as scope:

        def emit(message: Message) -> None:
            messages.append(message)
            if len(messages) == 4:
                scope.cancel()

        try:
            await model.stream_generate(asking(), emit)
        except anyio.get_cancelled_exc_class():
            model_was_stopped = True
            raise

    assert model_was_stopped
    assert_well_framed(messages)
    complete = [m.payload for m in messages if isinstance(m.payload, ToolCall)]
    assert [(c.tool_call_id, c.stop_reason) for c in complete] == [("1", "aborted"), ("2", "aborted")]
    assert model.history == []


async def test_a_hanging_turn_ends_only_by_interruption() -> None:
    messages: list[Message] = []
    started = anyio.Event()

    def emit(message: Message) -> None:
        messages.append(message)
        if isinstance(message.payload, Text):
            started.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ScriptedModel([turn("hello", hang(), "never")]).stream_generate, asking(), emit)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert words(messages)[-1] == ("Text", "", "hello")


async def test_a_pause_waits_for_something_to_happen() -> None:
    happened, order = anyio.Event(), []

    def emit(message: Message) -> None:
        if isinstance(message.payload, Text):
            order.append(message.payload.text)
            if message.payload.text == "one":
                tasks.start_soon(happen)

    async def happen() -> None:
        order.append("happened")
        happened.set()

    async with anyio.create_task_group() as tasks:
        await ScriptedModel([turn("one", pause(happened.wait), "two")]).stream_generate(asking(), emit)
    assert order == ["one", "happened", "two"]


async def test_running_out_of_turns_is_a_failed_outcome_and_a_problem() -> None:
    model = ScriptedModel(["only"])
    await play(model)

    outcome, messages = await play(model)

    assert messages == []
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.kind == "unknown"
    assert "exhausted" in outcome.error.message
    with pytest.raises(ScriptError, match="request 2 came after 1 turns"):
        model.assert_exhausted()


async def test_unused_turns_are_reported() -> None:
    model = ScriptedModel(["one", "two"])
    await play(model)
    with pytest.raises(ScriptError, match="1 of the script's turns"):
        model.assert_exhausted()


async def test_L1_a_scripted_function_that_raises_becomes_an_outcome() -> None:
    def broken(request: GenerateRequest, history: list[Message]) -> str:
        raise ValueError("my mistake")

    model = ScriptedModel([broken])
    outcome, _ = await play(model)
    assert outcome.status == "failed"
    assert model.problems == ["ValueError: my mistake"]


async def test_a_function_sees_the_request_and_the_committed_history() -> None:
    def echo(request: GenerateRequest, history: list[Message]) -> str:
        [message] = request.new_messages
        assert isinstance(message.payload, Text)
        return f"{message.payload.text} after {len(history)}"

    model = ScriptedModel([echo, echo])
    await play(model, asking("a"))
    _, messages = await play(model, asking("b"))
    assert ("Text", "", "b after 2") in words(messages)


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        ([], "no new messages"),
        ([builders.assistant_text("me")], "user's side only"),
        ([builders.partial_text("start")], "user's side only"),
        ([builders.user_text("and the output?")], r"called \['c1'\], but the request answers nothing"),
        ([builders.tool_call_output("x", "other")], r"answers \['other'\]"),
        ([builders.tool_call_output("x", "c1"), builders.tool_call_output("x", "c1")], r"answers \['c1', 'c1'\]"),
    ],
)
async def test_E25_an_illegal_request_is_refused_and_uses_no_turn(new: list[Message], complaint: str) -> None:
    model = ScriptedModel([call("t", id="c1"), "end"])
    await play(model)

    outcome, _ = await play(model, GenerateRequest(new))

    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.kind == "bad_request"
    with pytest.raises(ScriptError, match=complaint):
        model.assert_exhausted()
    again, _ = await play(model, GenerateRequest([builders.tool_call_output("x", "c1")]))
    assert again.status == "completed"


async def test_P4_usage_is_counted_from_characters_unless_scripted() -> None:
    model = ScriptedModel(["12345678", "12345678", turn("x", usage=usage(cache_read=1, cache_write=2, output=3))])
    counts = []
    for _ in range(3):
        _, messages = await play(model, asking("abcd" * 5))
        [reported] = [m.payload for m in messages if isinstance(m.payload, TokenUsage)]
        assert reported.session == reported.request
        counts.append(reported.request)
    assert counts == [
        usage(cache_read=0, cache_write=5, output=2),
        usage(cache_read=7, cache_write=5, output=2),
        usage(cache_read=1, cache_write=2, output=3),
    ]
    assert counts[2].total == 6


async def test_L9_ids_pass_through_the_allocator_of_the_session() -> None:
    def ids_of(messages: list[Message]) -> list[str]:
        return [m.payload.tool_call_id for m in messages if isinstance(m.payload, ToolCall)]

    calls = turn(call("t", id="c"), call("t", id="c"), call("t"))
    _, messages = await play(ScriptedModel([calls], tool_call_ids=ToolCallIdAllocator()))
    assert ids_of(messages) == ["c", "c_2", "call"]

    _, messages = await play(ScriptedModel([calls]))
    assert ids_of(messages) == ["c", "c", "call"]


async def test_set_history_is_for_an_empty_context() -> None:
    model = ScriptedModel(["end"])
    assert isinstance(model, SupportsHistory)
    model.set_history([builders.user_text("before"), builders.assistant_text("then")])
    await play(model)
    assert len(model.history) == 4
    with pytest.raises(ScriptError):
        model.set_history([])


async def test_contexts_of_a_factory_share_the_script_and_nothing_else() -> None:
    script = ScriptedModel(["one", "two"])
    build = script.factory()
    config = ModelConfig("scripted", "m", tool_call_ids=ToolCallIdAllocator())
    first, second = build(config), build(config)

    for model in (first, second):
        await model.stream_generate(asking(), lambda _: None)

    assert script.contexts == [first, second]
    assert script.configs == [config, config]
    assert len(script.requests) == 2
    assert [len(context.history) for context in script.contexts] == [2, 2]
    script.assert_exhausted()


async def test_a_note_and_a_cut_call_reach_the_outcome() -> None:
    model = ScriptedModel(
        [turn("x", note="cut at the limit"), turn(call("t", "{"), fault=fail("malformed", cut_off=True))]
    )
    noted, _ = await play(model)
    cut, _ = await play(model)
    assert noted.note == "cut at the limit"
    assert (cut.status, cut.cut_off) == ("malformed", True)


async def test_deltas_have_the_wanted_size() -> None:
    _, messages = await play(ScriptedModel([turn("abcdefg", delta_size=3)]))
    deltas = [
        m.payload.text for m in messages if isinstance(m.payload, PartialText) and m.payload.event_type == "delta"
    ]
    assert deltas == ["abc", "def", "g"]
