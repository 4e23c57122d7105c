from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from penguin.adapters import from_generator
from penguin.protocol import builders as b
from penguin.protocol.interfaces import (
    GenerateRequest,
    LLMOutcome,
    ModelError,
    Permission,
    SupportsContextNotes,
    SupportsHistory,
    ToolExecutionRequest,
)
from penguin.protocol.messages import Message, Text, ToolCallOutput, ToolDefinition
from penguin.testing import assert_well_framed

pytestmark = pytest.mark.anyio

ASKING = GenerateRequest([b.user_text("go")])
NOTHING: list[Message | LLMOutcome] = []
CALLING = ToolExecutionRequest(b.tool_call("t", "{}", "c"))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Model:
    def __init__(self, generate: Callable[[], AsyncIterator[Message | LLMOutcome]]) -> None:
        self._generate = generate

    def stream_generate(self, request: GenerateRequest) -> AsyncIterator[Message | LLMOutcome]:
        assert request is ASKING
        return self._generate()


async def generate(
    generator: Callable[[], AsyncIterator[Message | LLMOutcome]],
) -> tuple[LLMOutcome, list[Message]]:
    messages: list[Message] = []
    outcome = await from_generator(Model(generator)).stream_generate(ASKING, messages.append)
    assert_well_framed(messages, streamed_only=True)
    return outcome, messages


async def test_messages_are_emitted_and_the_outcome_is_returned() -> None:
    expected = LLMOutcome("timeout", ModelError("network", "gone"))

    async def good() -> AsyncIterator[Message | LLMOutcome]:
        yield b.partial_text("start")
        yield b.partial_text("stop")
        yield b.assistant_text("")
        yield expected

    outcome, messages = await generate(good)
    assert outcome is expected
    assert len(messages) == 3


async def test_L1_an_exception_becomes_an_outcome_and_closes_what_is_open() -> None:
    async def raising() -> AsyncIterator[Message | LLMOutcome]:
        yield b.partial_text("start")
        yield b.partial_text("delta", "half")
        yield b.partial_tool_call("start", "c", name="t")
        raise ConnectionError("gone")

    messages: list[Message] = []
    outcome = await from_generator(Model(raising)).stream_generate(ASKING, messages.append)
    assert outcome == LLMOutcome("failed", ModelError("unknown", "ConnectionError: gone"))
    closing = [m.payload.stop_reason for m in messages if b.is_complete_model_message(m)]
    assert closing == ["failed", "failed"]


async def test_an_exception_between_stop_and_complete_still_gives_the_complete_message() -> None:
    async def raising() -> AsyncIterator[Message | LLMOutcome]:
        yield b.partial_text("start")
        yield b.partial_text("delta", "all")
        yield b.partial_text("stop")
        raise ConnectionError("gone")

    _, messages = await generate(raising)
    assert [m.payload.text for m in messages if isinstance(m.payload, Text)] == ["all"]


@pytest.mark.parametrize("status", ["completed", "timeout", None])
async def test_a_model_that_leaves_something_open_is_closed(status: Any) -> None:
    async def forgetful() -> AsyncIterator[Message | LLMOutcome]:
        yield b.partial_text("start")
        if status is not None:
            yield LLMOutcome(status)

    outcome, messages = await generate(forgetful)
    expected = "timeout" if status == "timeout" else "failed"
    assert outcome.status == expected
    assert [m.payload.stop_reason for m in messages if isinstance(m.payload, Text)] == [expected]


async def test_a_model_without_an_outcome_has_failed() -> None:
    async def silent() -> AsyncIterator[Message | LLMOutcome]:
        for item in NOTHING:
            yield item

    outcome, _ = await generate(silent)
    assert outcome.error == ModelError("unknown", "the model ended without an outcome")


async def test_L1_an_interruption_closes_what_is_open_and_comes_out() -> None:
    messages: list[Message] = []

    async def waiting() -> AsyncIterator[Message | LLMOutcome]:
        yield b.partial_text("start")
        yield b.partial_text("delta", "half")
        await anyio.sleep_forever()

    await interrupted_at(messages, 2, from_generator(Model(waiting)).stream_generate, ASKING)
    assert [m.payload.stop_reason for m in messages if isinstance(m.payload, Text)] == ["aborted"]


async def test_a_turn_that_completed_in_spite_of_the_interruption_stands() -> None:
    with anyio.CancelScope() as scope:

        async def hasty() -> AsyncIterator[Message | LLMOutcome]:
            scope.cancel()
            yield LLMOutcome("completed")

        outcome, _ = await generate(hasty)
        assert outcome.status == "completed"
        return
    pytest.fail("the outcome was lost")


async def test_last_words_of_an_interrupted_generator_do_not_hide_the_interruption() -> None:
    messages: list[Message] = []

    async def polite() -> AsyncIterator[Message | LLMOutcome]:
        yield b.partial_text("start")
        try:
            await anyio.sleep_forever()
        except BaseException:
            yield b.partial_text("stop", stop_reason="aborted")
            yield b.assistant_text("", stop_reason="aborted")
            raise

    await interrupted_at(messages, 1, from_generator(Model(polite)).stream_generate, ASKING)
    assert len(messages) == 3


async def interrupted_at(messages: list[Message], position: int, run: Any, request: Any) -> None:
    returned = False
    with anyio.CancelScope() as scope:

        def emit(message: Message) -> None:
            messages.append(message)
            if len(messages) == position:
                scope.cancel()

        await run(request, emit)
        returned = True
    assert not returned
    assert_well_framed(messages)


# ---------------------------------------------------------------- environments


class Environment:
    def __init__(self, execute: Callable[[], AsyncIterator[Message]]) -> None:
        self._execute = execute
        self.closed = False

    async def list_tools(self) -> list[ToolDefinition]:
        return [ToolDefinition("t", "a tool")]

    def tool_permission(self, name: str) -> Permission | None:
        return "rw"

    def execute_tool(self, request: ToolExecutionRequest) -> AsyncIterator[Message]:
        assert request is CALLING
        return self._execute()

    async def aclose(self) -> None:
        self.closed = True


async def execute(generator: Callable[[], AsyncIterator[Message]]) -> tuple[ToolCallOutput, list[Message]]:
    messages: list[Message] = []
    await from_generator(Environment(generator)).execute_tool(CALLING, messages.append)
    assert_well_framed(messages)
    [output] = [m.payload for m in messages if isinstance(m.payload, ToolCallOutput) and not m.origin]
    return output, messages


async def test_everything_else_of_an_environment_passes_through() -> None:
    inner = Environment(lambda: said("x"))
    wrapped = from_generator(inner)
    assert await wrapped.list_tools() == [ToolDefinition("t", "a tool")]
    assert wrapped.tool_permission("t") == "rw"
    await wrapped.aclose()
    assert inner.closed


async def said(*texts: str) -> AsyncIterator[Message]:
    for text in texts:
        yield b.partial_tool_call_output("start", "c")
        yield b.partial_tool_call_output("delta", "c", text)
        yield b.partial_tool_call_output("stop", "c")
        yield b.tool_call_output(text, "c")


async def test_E5_only_the_first_complete_output_counts() -> None:
    output, messages = await execute(lambda: said("one", "two"))
    assert output.output == "one"
    assert len(messages) == 4


async def test_messages_of_a_child_session_pass_at_any_time() -> None:
    async def parent() -> AsyncIterator[Message]:
        yield b.with_origin(b.assistant_text("before"), "child")
        async for message in said("one"):
            yield message
        yield b.with_origin(b.tool_call_output("after", "c"), "child")

    output, messages = await execute(parent)
    assert output.output == "one"
    assert len(messages) == 6


def broken() -> list[Message]:
    raise OSError("disk full")


async def test_E5_an_exception_becomes_the_output() -> None:
    async def raising() -> AsyncIterator[Message]:
        for message in broken():
            yield message

    output, _ = await execute(raising)
    assert (output.output, output.stop_reason) == ("[tool error] OSError: disk full", "failed")


async def test_E5_an_exception_in_the_middle_keeps_what_was_said() -> None:
    async def raising() -> AsyncIterator[Message]:
        yield b.partial_tool_call_output("start", "c")
        yield b.partial_tool_call_output("delta", "c", "half\n")
        raise OSError("disk full")

    output, _ = await execute(raising)
    assert output.output == "half\n[tool error] OSError: disk full"


async def test_an_exception_after_the_stop_only_adds_the_complete_output() -> None:
    async def raising() -> AsyncIterator[Message]:
        yield b.partial_tool_call_output("start", "c")
        yield b.partial_tool_call_output("delta", "c", "all")
        yield b.partial_tool_call_output("stop", "c")
        raise OSError("disk full")

    output, _ = await execute(raising)
    assert (output.output, output.stop_reason) == ("all", None)


async def test_E5_a_run_without_output_gets_one() -> None:
    output, _ = await execute(said)
    assert (output.output, output.stop_reason) == ("[tool error] the tool ended without an output", "failed")


@pytest.mark.parametrize("spoken", [True, False])
async def test_an_interrupted_run_is_closed_as_aborted(spoken: bool) -> None:
    messages: list[Message] = []

    async def waiting() -> AsyncIterator[Message]:
        yield b.partial_tool_call_output("start", "c")
        if spoken:
            yield b.partial_tool_call_output("delta", "c", "half")
        await anyio.sleep_forever()

    await interrupted_at(messages, 1, from_generator(Environment(waiting)).execute_tool, CALLING)
    [output] = [m.payload for m in messages if isinstance(m.payload, ToolCallOutput)]
    expected = "half\n[interrupted: tool aborted by user]" if spoken else "[interrupted: tool aborted by user]"
    assert (output.output, output.stop_reason) == (expected, "aborted")


# ---------------------------------------------------------------- optional abilities


async def test_optional_abilities_come_through_and_are_not_invented() -> None:
    class Remembering(Model):
        def set_history(self, messages: list[Message]) -> None:
            self.remembered = messages

    class Noting(Environment):
        def context_notes(self) -> str:
            return "notes"

    async def nothing() -> AsyncIterator[Message | LLMOutcome]:
        for item in NOTHING:
            yield item

    assert not isinstance(from_generator(Model(nothing)), SupportsHistory)
    assert not isinstance(from_generator(Environment(said)), SupportsContextNotes)

    remembering = Remembering(nothing)
    wrapped = from_generator(remembering)
    assert isinstance(wrapped, SupportsHistory)
    wrapped.set_history([b.user_text("x")])
    assert len(remembering.remembered) == 1

    noting = from_generator(Noting(said))
    assert isinstance(noting, SupportsContextNotes)
    assert noting.context_notes() == "notes"
