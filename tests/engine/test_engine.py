"""The loop without faults: order, approvals, answers, limits (E1 to E9)."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from tests.support.engine_kit import Drive, allow, call_id_of, text_of

from penguin.engine.engine import EngineSettings
from penguin.protocol.blocks import NO_OUTPUT
from penguin.protocol.builders import partial_text, tool_call, user_text
from penguin.protocol.errors import SessionBusy
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import Emit, GenerateRequest, LLMOutcome
from penguin.protocol.messages import OmniMessage, RequestBegin, RequestEnd, Text, TokenUsage, ToolCall
from penguin.testing.turns import call, pause, say, think, turn

pytestmark = pytest.mark.anyio


async def test_E1_the_prompt_is_recorded_before_anything_is_sent_and_not_streamed() -> None:
    drive = Drive(["Hello."])
    result = await drive.run("hi")
    assert result.stop_reason == "completed"
    assert result.text == "Hello."
    assert text_of(drive.trace.records[1]) == "hi"
    assert isinstance(drive.trace.records[2].payload, RequestBegin)
    assert all(text_of(message) != "hi" for message in drive.stream)
    drive.check()


async def test_E2_usage_is_last_and_the_request_ends_without_waiting_for_tools() -> None:
    drive = Drive([turn(say("Working."), call("slow", {"seconds": 0.05}, id="a"), pause(0.01)), "Done."])
    await drive.run()
    assert drive.outline() == [
        "RequestBegin",
        "assistant text",
        "call a",
        "allow a",
        "TokenUsage",
        "end completed",
        "output a",
        "RequestBegin",
        "assistant text",
        "TokenUsage",
        "end completed",
    ]
    drive.check()


async def test_E3_to_E7_three_parallel_tools_one_denied_one_slow() -> None:
    """A3: the stream and the trace are in the order of the rules, the model hears outputs in call order."""

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        return "deny" if tool_call.payload.tool_call_id == "b" else "allow"

    calls = turn(
        call("slow", {"seconds": 0.3}, id="a"),
        call("echo", {"text": "B"}, id="b"),
        call("slow", {"seconds": 0.1}, id="c"),
    )
    drive = Drive([calls, "Done."])
    await drive.run(approve=approve)
    outline = drive.outline()
    assert [word for word in outline if word.startswith(("allow", "deny"))] == ["allow a", "deny b", "allow c"]
    assert [word for word in outline if word.startswith("output")] == ["output b aborted", "output c", "output a"]
    assert outline.index("end completed") < outline.index("output c")
    assert [call_id_of(message) for message in drive.sent()] == ["a", "b", "c"]
    assert drive.environment.executed == ["a", "c"]
    drive.check()


async def test_E3_arguments_that_are_no_object_are_answered_and_nobody_is_asked() -> None:
    asked: list[str] = []

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        asked.append(tool_call.payload.tool_call_id)
        return "allow"

    drive = Drive(
        [turn(call("echo", '{"text": ', id="a"), call("echo", "[1]", id="b"), call("echo", "", id="c")), "ok"]
    )
    await drive.run(approve=approve)
    broken, not_object, empty = drive.sent_texts()
    assert asked == ["c"]
    assert broken.startswith("[tool error]")
    assert '{"text": ' in broken
    assert "an array" in not_object
    assert empty == ""
    drive.check()


async def test_E3_no_callback_means_deny_and_a_callback_that_raises_means_deny() -> None:
    async def broken(tool_call: OmniMessage[ToolCall]) -> Decision:
        raise ValueError("lost my mind")

    for approve in (None, broken):
        drive = Drive([turn(call("echo", id="a")), "ok"])
        result = await drive.run(approve=approve)
        assert result.stop_reason == "completed"
        assert "deny a" in drive.outline()
        assert drive.environment.executed == []
        drive.check()


async def test_E3_calls_are_decided_one_at_a_time_while_the_model_still_streams() -> None:
    asking = 0
    first_asked = anyio.Event()

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        nonlocal asking
        asking += 1
        assert asking == 1
        first_asked.set()
        await anyio.sleep(0.01)
        asking -= 1
        return "allow"

    reply = turn(call("echo", id="a"), pause(first_asked.wait), call("echo", id="b"), say("still talking"))
    drive = Drive([reply, "ok"])
    await drive.run(approve=approve)
    assert drive.environment.executed == ["a", "b"]
    drive.check()


async def test_E4_a_denied_call_is_answered_at_once_without_fragments() -> None:
    async def deny(tool_call: OmniMessage[ToolCall]) -> Decision:
        return "deny"

    drive = Drive([turn(call("echo", id="a")), "ok"])
    await drive.run(approve=deny)
    output = next(message for message in drive.stream if drive.outline([message]) == ["output a aborted"])
    assert "denied" in text_of(output)
    assert not [m for m in drive.stream if type(m.payload).__name__ == "PartialToolCallOutput"]


@pytest.mark.parametrize(
    ("tool", "expected"),
    [("boom", "[tool error] boom"), ("silent", "[tool error]"), ("careless", "half\n[tool error]"), ("chatty", "one")],
)
async def test_E5_every_call_gets_one_output_whatever_its_tool_does(tool: str, expected: str) -> None:
    drive = Drive([turn(call(tool, id="a"), call("echo", {"text": "fine"}, id="b")), "ok"])
    result = await drive.run()
    assert result.stop_reason == "completed"
    first, second = drive.sent_texts()
    assert first.startswith(expected)
    assert second == "fine"
    drive.check()


async def test_E5_the_environment_that_raises_does_not_end_the_task() -> None:
    drive = Drive([turn(call("no_such_tool", id="a")), "ok"])
    result = await drive.run()
    assert result.text == "ok"
    assert "no_such_tool" in drive.sent_texts()[0]
    drive.check()


async def test_E6_the_result_names_text_usage_and_turns() -> None:
    drive = Drive([turn(think("hm"), call("echo", id="a")), turn(say("The "), say("end."))])
    result = await drive.run()
    usages = [message.payload for message in drive.stream if isinstance(message.payload, TokenUsage)]
    assert result.text == "The end."
    assert result.turns == 2
    assert result.usage == usages[-1].session
    assert usages[-1].session.total == sum(usage.request.total for usage in usages)


async def test_P4_usage_accumulates_over_tasks_of_a_session() -> None:
    drive = Drive(["one", "two"])
    first = await drive.run()
    second = await drive.run()
    assert drive.engine.ledger.tokens.total == first.usage.total + second.usage.total
    drive.check()


async def test_E8_the_turn_limit_keeps_unsent_outputs_and_says_so_outside_the_history() -> None:
    loop = turn(call("echo", {"text": "again"}))
    drive = Drive([loop, loop, "after"], settings=EngineSettings(max_turns=2))
    result = await drive.run()
    assert result.stop_reason == "turn_limit"
    notice = drive.stream[-1].payload
    assert isinstance(notice, Text)
    assert (notice.role, notice.stop_reason) == ("assistant", "failed")
    await drive.run("go on")
    assert drive.sent_texts() == ["again", "go on"]
    assert all(message.payload is not notice for message in drive.engine.ledger.history)
    drive.check()


async def test_E9_a_second_task_at_once_is_a_typed_error() -> None:
    started = anyio.Event()
    drive = Drive([turn(pause(0.1), say("slow"))])
    drive.on_message = lambda message: started.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive.run)
        await started.wait()
        with pytest.raises(SessionBusy):
            await drive.engine.run([user_text("me too")], approve=allow)
    drive.check()


async def test_E9_a_model_that_raises_is_a_failed_result() -> None:
    class Broken:
        async def stream_generate(self, request: object, emit: object) -> object:
            raise ZeroDivisionError("division by zero")

    drive = Drive(model=Broken())  # type: ignore[arg-type]
    result = await drive.run()
    assert result.stop_reason == "failed"
    assert result.error is not None
    assert "division by zero" in result.error.message
    drive.check()


async def test_P8_segments_a_model_left_open_are_closed_for_it() -> None:
    class Sloppy:
        async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
            emit(partial_text("start"))
            emit(partial_text("delta", "half"))
            return LLMOutcome("failed")

    drive = Drive(model=Sloppy())
    await drive.run()
    assert drive.outline() == ["RequestBegin", "assistant text failed", "end failed"]
    drive.check()


async def test_P9_a_call_that_was_cut_off_is_never_executed() -> None:
    class Cut:
        async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
            emit(tool_call("echo", '{"te', "a", stop_reason="malformed"))
            return LLMOutcome("failed")

    drive = Drive(model=Cut())
    await drive.run()
    assert drive.environment.executed == []
    drive.check()


async def test_a_request_is_synced_before_it_is_sent_and_the_task_at_its_end() -> None:
    drive = Drive([turn(call("echo")), "ok"])
    await drive.run()
    assert drive.trace.syncs == 3


async def test_T5_a_trace_that_cannot_be_written_any_more_ends_the_task() -> None:
    drive = Drive([turn(call("echo")), "never"])
    drive.trace.error = "no space left on the disk"

    def fill(message: object) -> None:
        drive.trace.lost = True

    drive.on_message = fill
    result = await drive.run()
    assert result.stop_reason == "failed"
    assert result.trace_error == "no space left on the disk"
    assert len(drive.scripted.requests) == 1


async def test_an_empty_output_reaches_the_model_as_it_is() -> None:
    drive = Drive([turn(call("echo", {"text": NO_OUTPUT})), "ok"])
    await drive.run()
    assert drive.sent_texts() == [NO_OUTPUT]


async def test_all_requests_have_ends() -> None:
    drive = Drive([turn(call("echo")), "ok"])
    await drive.run()
    begins = sum(isinstance(message.payload, RequestBegin) for message in drive.stream)
    ends = sum(isinstance(message.payload, RequestEnd) for message in drive.stream)
    assert begins == ends == 2


@pytest.mark.parametrize("depth", [500, 3000, 100_000])
async def test_E5_L10_arguments_nested_without_end_are_answered(depth: int) -> None:
    deep = '{"text":' + "[" * depth + "]" * depth + "}"
    drive = Drive([turn(call("silent", deep, id="a"), call("echo", {"text": "fine"}, id="b")), "ok"])
    result = await drive.run()
    assert result.text == "ok"
    first, second = drive.sent_texts()
    assert first.startswith("[tool error]")
    assert second == "fine"
    drive.check()


async def test_P12_lone_surrogates_in_arguments_are_replaced_and_not_refused() -> None:
    drive = Drive([turn(call("echo", '{"text": "a\\ud800"}', id="a")), "ok"])
    await drive.run()
    assert drive.environment.executed == ["a"]


async def test_L10_the_complaint_names_the_position() -> None:
    drive = Drive([turn(call("echo", '{"text": "x", }', id="a")), "ok"])
    await drive.run()
    assert "char 14" in drive.sent_texts()[0]


@pytest.mark.parametrize("fault", [SystemExit(3), KeyError("x"), GeneratorExit()])
async def test_E3_whatever_an_approval_callback_raises_means_deny(fault: BaseException) -> None:
    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        if tool_call.payload.tool_call_id == "a":
            raise fault
        return "allow"

    drive = Drive([turn(call("echo", id="a"), call("echo", id="b"), call("echo", id="c")), "ok"])
    result = await drive.run(approve=approve)
    assert result.stop_reason == "completed"
    assert drive.environment.executed == ["b", "c"]
    drive.check()


async def test_E3_other_answers_than_allow_mean_deny_and_a_plain_function_will_do() -> None:
    for answer, executed in (("allow", ["a"]), ("yes", []), (True, []), (None, [])):
        drive = Drive([turn(call("echo", id="a")), "ok"])
        await drive.run(approve=lambda tool_call, answer=answer: answer)  # type: ignore[misc]
        assert drive.environment.executed == executed
        drive.check()


def test_E3_a_callback_that_ends_with_a_cancellation_of_its_own_means_deny() -> None:
    """A closed web client cancels the future its approval waits for; the other calls still get theirs."""

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        if tool_call.payload.tool_call_id == "a":
            future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
            future.cancel()
            return await future
        return "allow"

    async def main() -> Drive:
        drive = Drive([turn(call("echo", id="a"), call("echo", id="b"), call("echo", id="c")), "ok"])
        assert (await drive.run(approve=approve)).stop_reason == "completed"
        return drive

    drive = asyncio.run(main())
    assert drive.environment.executed == ["b", "c"]
    assert [word for word in drive.outline() if word.startswith(("allow", "deny"))] == ["deny a", "allow b", "allow c"]
    drive.check()
