"""The stream face of a task: leaving, iterating, lagging, results (E9, E10, K2)."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import anyio
import pytest
from tests.support.engine_kit import FakeEnvironment, ListTrace, allow, ends_with_abort, text_of

from penguin.protocol.builders import assistant_text, is_partial, partial_text, tool_call_output, user_text
from penguin.protocol.errors import ResultNotReady, SessionBusy, SessionClosed
from penguin.protocol.messages import Abort, Message, PartialText, RequestEnd
from penguin.session.feed import LAG_LIMIT, Feed
from penguin.session.session import Session
from penguin.testing.framing import assert_well_framed
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, hang, say, turn

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def session_of(*turns: Any) -> tuple[Session, ListTrace]:
    trace = ListTrace()
    return Session("session-x", ScriptedModel(turns), FakeEnvironment(), trace=trace), trace


async def test_the_stream_yields_everything_and_then_the_result() -> None:
    session, trace = session_of("Hello.")
    async with session.run("hi") as stream:
        with pytest.raises(ResultNotReady):
            _ = stream.result
        seen = [message async for message in stream]
    assert stream.result.text == "Hello."
    assert_well_framed(seen)
    assert [message for message in seen if not is_partial(message)] == trace.records[1:]


async def test_E10_leaving_the_block_early_interrupts_and_waits_for_the_abort() -> None:
    session, trace = session_of(turn(say("words"), hang()), "again")
    async with session.run("hi") as stream:
        async for message in stream:
            if isinstance(message.payload, PartialText):
                break
    assert stream.result.stop_reason == "aborted"
    assert isinstance(trace.records[-1].payload, Abort)
    assert not session.busy
    assert await session.ask("go on") == "again"


async def test_E10_leaving_at_once_keeps_the_prompt() -> None:
    session, trace = session_of("again")
    async with session.run("hi") as stream:
        pass
    assert stream.result.stop_reason == "aborted"
    assert [type(record.payload).__name__ for record in trace.records] == ["Text", "Abort"]


async def test_E10_an_exception_in_the_block_comes_out_unchanged() -> None:
    session, trace = session_of(turn(say("words"), hang()))

    async def fail_inside() -> None:
        async with session.run("hi") as stream:
            async for _ in stream:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        await fail_inside()
    assert type(caught.value) is KeyError
    assert ends_with_abort(trace.records)


async def test_E10_host_cancellation_is_recorded_and_goes_on() -> None:
    session, trace = session_of(turn(say("words"), hang()))
    with anyio.move_on_after(0.05) as scope:
        async with session.run("hi") as stream:
            async for _ in stream:
                pass
    assert scope.cancelled_caught
    last = trace.records[-1].payload
    assert isinstance(last, Abort)
    assert last.reason == "cancelled by the host program"


async def test_E10_interrupt_from_another_task_ends_the_stream_with_abort() -> None:
    session, _ = session_of(turn(say("words"), hang()))
    seen: list[Message] = []
    async with session.run("hi") as stream:
        async for message in stream:
            seen.append(message)
            if isinstance(message.payload, PartialText):
                session.interrupt()
    assert ends_with_abort(seen)
    assert stream.result.stop_reason == "aborted"


async def test_E10_iterating_without_the_block_works_to_the_end() -> None:
    session, _ = session_of("Hello.")
    seen = [message async for message in session.run("hi")]
    assert isinstance(seen[-1].payload, RequestEnd)
    assert not session.busy


async def test_E10_leaving_a_bare_loop_warns_with_the_fix_and_interrupts(recwarn: pytest.WarningsRecorder) -> None:
    session, trace = session_of(turn(say("words"), hang()))

    async def careless() -> None:
        async for _ in session.run("hi"):
            break

    aborted = anyio.Event()
    session.observe(lambda message: aborted.set() if isinstance(message.payload, Abort) else None)
    await careless()
    gc.collect()
    (warning,) = [w for w in recwarn.list if "task stream" in str(w.message)]
    assert "async with session.run" in str(warning.message)
    with anyio.fail_after(5):
        await aborted.wait()
    assert ends_with_abort(trace.records)


async def test_E9_two_streams_at_once_are_refused_when_the_second_starts() -> None:
    session, _ = session_of(turn(say("words"), hang()))
    async with session.run("hi"):
        with pytest.raises(SessionBusy):
            session.run("me too")
        with pytest.raises(SessionBusy):
            await session.close()
    await session.close()
    await session.close()
    with pytest.raises(SessionClosed):
        session.run("too late")


async def test_E9_wrong_prompts_are_typed_errors() -> None:
    session, _ = session_of()
    with pytest.raises(TypeError, match="not int"):
        session.run([7])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="ToolCallOutput"):
        session.run([tool_call_output("x", "a")])
    with pytest.raises(ValueError, match="Text"):
        session.run(assistant_text("I am the model"))
    for nothing in ([], "", " \n", [user_text("")]):
        with pytest.raises(ValueError, match="nothing to send"):
            session.run(nothing)
        with pytest.raises(ValueError, match="nothing in it"):
            session.steer(nothing)


async def test_an_observer_sees_the_stream_and_its_fault_changes_nothing() -> None:
    session, _ = session_of("Hello.", "again")
    seen: list[Message] = []

    def broken(message: Message) -> None:
        raise RuntimeError("observer")

    session.observe(broken)
    stop = session.observe(seen.append)
    async with session.run("hi") as stream:
        yielded = [message async for message in stream]
    assert seen == yielded
    stop()
    await session.ask("more")
    assert seen == yielded


async def test_steering_through_the_session() -> None:
    session, _ = session_of(turn(call("echo", {"text": "x"})), "ok")
    assert session.steer("nobody listens") is None
    async with session.run("hi", approve=allow) as stream:
        ticket = session.steer("hurry")
        async for _ in stream:
            pass
    assert ticket is not None
    assert ticket.state == "delivered"


async def test_E16_words_that_come_while_the_task_makes_its_trace_durable_are_dropped_with_it() -> None:
    """Found by the state machine: they stayed `waiting` for ever and turned up in the next task."""
    session, trace = session_of("ok", "next")
    late: list[Any] = []

    async def sync() -> None:
        if any(isinstance(record.payload, RequestEnd) for record in trace.records) and not late:
            late.append(session.steer("too late"))
        await anyio.lowlevel.checkpoint()

    trace.sync = sync  # type: ignore[method-assign]
    await session.ask("hi")
    assert late[0].state == "dropped"
    await session.ask("and?")
    assert "too late" not in [text_of(record) for record in trace.records]


async def test_K2_a_lagging_reader_gets_merged_deltas_and_loses_nothing() -> None:
    feed = Feed()
    feed.put(partial_text("start"))
    for number in range(50_000):
        feed.put(partial_text("delta", f"{number} "))
    feed.put(partial_text("stop"))
    feed.close()
    got = []
    while (message := await feed.next()) is not None:
        got.append(message)
    assert len(got) <= 2 * LAG_LIMIT
    assert "".join(map(text_of, got)) == "".join(f"{number} " for number in range(50_000))


def test_E10_a_native_asyncio_cancel_is_recorded_too() -> None:
    session, trace = session_of(turn(say("words"), hang()))

    async def main() -> None:
        async def consume() -> None:
            async with session.run("hi") as stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(consume())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    last = trace.records[-1].payload
    assert isinstance(last, Abort)
    assert last.reason == "cancelled by the host program"


def test_E10_a_loop_that_shuts_down_records_the_abort() -> None:
    session, trace = session_of(turn(say("words"), hang()))

    async def main() -> None:
        stream = session.run("hi")
        iterator = aiter(stream)
        await anext(iterator)
        kept.append(iterator)

    kept: list[Any] = []
    asyncio.run(main())
    assert ends_with_abort(trace.records)


async def test_E9_what_cannot_be_called_is_no_approval() -> None:
    session, _ = session_of()
    with pytest.raises(TypeError, match="allow_all"):
        session.run("hi", approve="allow-all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        session.run(5)  # type: ignore[arg-type]
