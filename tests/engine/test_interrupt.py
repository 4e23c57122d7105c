"""Stopping a task at any instant (E10 to E12), and what the next one sends."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import trio
import trio.testing
from tests.support.engine_kit import Drive, call_id_of, ends_with_abort, text_of

from penguin.engine.engine import EngineSettings
from penguin.engine.retry import RetryPolicy
from penguin.protocol.blocks import read_blocks
from penguin.protocol.builders import image_url, user_text
from penguin.protocol.events import Decision
from penguin.protocol.messages import (
    Abort,
    ImageUrl,
    Message,
    OmniMessage,
    PartialText,
    PartialToolCallOutput,
    RequestEnd,
    ToolCall,
)
from penguin.testing.turns import call, fail, hang, pause, say, think, turn

QUICK = EngineSettings(retry=RetryPolicy(base=0.05))


def stop_when(drive: Drive, condition: Callable[[Message], bool]) -> None:
    def look(message: Message) -> None:
        if condition(message):
            drive.engine.interrupt()

    drive.on_message = look


def is_delta(kind: type) -> Callable[[Message], bool]:
    return lambda message: isinstance(message.payload, kind) and getattr(message.payload, "event_type", "") == "delta"


@pytest.mark.anyio
async def test_E10_E12_case_B_a_stopped_reply_becomes_one_text_for_the_model() -> None:
    """D62: what was shown was said. Half-received thinking and calls go back as text, not as blocks."""
    reply = turn(think("hmm"), say("one two three four"), call("echo", {"text": "later"}, id="a"), delta_delay=0.01)
    drive = Drive([reply, "four five"])
    stop_when(drive, is_delta(PartialText))
    result = await drive.run("count")
    assert result.stop_reason == "aborted"
    assert ends_with_abort(drive.stream)
    drive.check()
    drive.on_message = lambda message: None
    await drive.run("continue")
    block, prompt = drive.sent_texts()
    (body,) = read_blocks("turn_aborted", block)
    assert read_blocks("user_input", body) == ["count"]
    assert read_blocks("thinking", body) == ["hmm"]
    assert read_blocks("text", body) == ["one two "]
    assert prompt == "continue"
    assert not [record for record in drive.trace.records if "turn_aborted" in text_of(record)]
    drive.check()


@pytest.mark.anyio
async def test_E12_case_A_a_running_tool_is_answered_with_its_text_so_far() -> None:
    drive = Drive([turn(call("slow", {"seconds": 60}, id="a"), call("echo", {"text": "B"}, id="b")), "ok"])
    stop_when(drive, lambda message: isinstance(message.payload, RequestEnd))
    await drive.run()
    assert drive.outline()[-3:] == ["output b aborted", "output a aborted", "Abort"] or drive.outline()[-1] == "Abort"
    drive.check()
    drive.on_message = lambda message: None
    await drive.run("next")
    first, second, prompt = drive.sent_texts()
    assert first in ("[interrupted: tool aborted by user]", "begun\n[interrupted: tool aborted by user]")
    assert second
    assert prompt == "next"
    drive.check()


@pytest.mark.anyio
async def test_E12_case_A_a_tool_that_does_not_close_itself_is_closed() -> None:
    drive = Drive([turn(call("careless", {"seconds": 60}, id="a")), "ok"])
    stop_when(drive, is_delta(PartialToolCallOutput))
    await drive.run()
    drive.check()
    drive.on_message = lambda message: None
    await drive.run("next")
    assert drive.sent_texts()[0] == "half\n[interrupted: tool aborted by user]"


@pytest.mark.anyio
async def test_E12_outputs_that_answer_a_committed_turn_stay_outputs() -> None:
    """The aborted request's input held a tool output: it must still follow its call."""
    drive = Drive([turn(call("echo", {"text": "out"}, id="a")), turn(say("thinking about it"), hang()), "ok"])
    stop_when(drive, is_delta(PartialText))
    await drive.run()
    drive.check()
    drive.on_message = lambda message: None
    await drive.run("next")
    output, block, prompt = drive.sent()
    assert text_of(output) == "out"
    assert call_id_of(output) == "a"
    assert "turn_aborted" in text_of(block)
    assert text_of(prompt) == "next"
    drive.check()


@pytest.mark.anyio
async def test_E12_input_that_was_never_sent_is_held_unchanged_with_its_images() -> None:
    drive = Drive(["ok"])
    prompt: list[Message] = [user_text("look"), image_url("https://example.org/a.png")]
    result = await drive.engine.run(prompt, interrupted="aborted by user")
    assert result.stop_reason == "aborted"
    assert drive.outline() == ["Abort"]
    await drive.run("now")
    assert [m.payload for m in drive.sent()[:2]] == [m.payload for m in prompt]
    assert drive.sent_texts()[2] == "now"
    drive.check()


@pytest.mark.anyio
async def test_E12_the_images_of_an_aborted_request_follow_its_block() -> None:
    drive = Drive([turn(say("I see"), hang()), "ok"])
    stop_when(drive, is_delta(PartialText))
    await drive.engine.run([user_text("look"), image_url("https://example.org/a.png")])
    drive.on_message = lambda message: None
    await drive.run("now")
    block, image, prompt = drive.sent()
    assert "turn_aborted" in text_of(block)
    assert isinstance(image.payload, ImageUrl)
    assert text_of(prompt) == "now"


@pytest.mark.anyio
async def test_E12_an_empty_prompt_goes_on_with_what_was_kept() -> None:
    drive = Drive([turn(say("half"), hang()), "ok"])
    stop_when(drive, is_delta(PartialText))
    await drive.run("question")
    drive.on_message = lambda message: None
    result = await drive.run("")
    assert result.text == "ok"
    assert read_blocks("user_input", drive.sent_texts()[0]) == ["question"]
    drive.check()


@pytest.mark.anyio
async def test_E10_interrupting_an_idle_session_does_nothing() -> None:
    drive = Drive(["ok"])
    drive.engine.interrupt()
    result = await drive.run()
    assert result.stop_reason == "completed"


@pytest.mark.anyio
async def test_E10_host_cancellation_records_the_abort_and_goes_on() -> None:
    drive = Drive([turn(say("words"), hang())])
    with anyio.move_on_after(0.05) as scope:
        await drive.run()
    assert scope.cancelled_caught
    assert ends_with_abort(drive.stream)
    payload = drive.stream[-1].payload
    assert isinstance(payload, Abort)
    assert payload.reason == "cancelled by the host program"
    drive.check()


@pytest.mark.anyio
async def test_E11_a_pending_approval_is_cancelled_and_its_call_answered() -> None:
    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        drive.engine.interrupt()
        await anyio.sleep_forever()
        return "allow"

    drive = Drive([turn(call("echo", id="a")), "ok"])
    await drive.run(approve=approve)
    assert drive.environment.executed == []
    drive.check()


# --- at every scheduler step ----------------------------------------------------------------------


class StepCounter(trio.abc.Instrument):
    """Calls `at` when the given scheduler step is reached."""

    def __init__(self, step: int, at: Callable[[], Any]) -> None:
        self.left = step
        self.at = at
        self.reached = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached = True
            self.at()


async def _approve_after_a_while(tool_call: OmniMessage[ToolCall]) -> Decision:
    await anyio.sleep(0.2)
    return "deny" if tool_call.payload.tool_call_id == "c" else "allow"


def _busy_task() -> Drive:
    """Thinking, text, three tools, a retry wait and an approval: everything a stop can fall into."""
    tools = turn(
        think("a plan"),
        say("Doing it."),
        call("slow", {"seconds": 1}, id="a"),
        pause(0.1),
        call("echo", {"text": "B"}, id="b"),
        call("careless", {"seconds": 0.5}, id="c"),
        delta_delay=0.01,
        delta_size=2,
    )
    broken = turn(say("lost wor"), call("slow", {"seconds": 1}, id="d"), pause(0.5), fault=fail("timeout"))
    return Drive([tools, broken, turn(say("Finished."), delta_delay=0.01)], settings=QUICK)


async def _interrupted_at(step: int, *, by_host: bool) -> tuple[Drive, bool]:
    drive = _busy_task()
    host = trio.CancelScope()
    counter = StepCounter(step, host.cancel if by_host else drive.engine.interrupt)
    trio.lowlevel.add_instrument(counter)
    try:
        with host:
            await drive.run("go", approve=_approve_after_a_while)
    finally:
        trio.lowlevel.remove_instrument(counter)
    return drive, counter.reached


async def _check_stopped(drive: Drive, step: int) -> None:
    assert sum(isinstance(message.payload, Abort) for message in drive.stream) <= 1
    if any(isinstance(message.payload, Abort) for message in drive.stream):
        assert ends_with_abort(drive.stream), f"step {step}: something came after the abort"
    drive.check()
    follow_up = Drive([turn(say("Continued."))], records=drive.trace.records)
    result = await follow_up.run("go on")
    assert result.text == "Continued.", f"step {step}: {follow_up.scripted.problems}"
    assert not follow_up.scripted.problems
    follow_up.check()


@pytest.mark.parametrize("by_host", [False, True], ids=["user", "host"])
def test_B1_E10_E11_E12_a_stop_at_every_scheduler_step_leaves_a_legal_conversation(*, by_host: bool) -> None:
    async def sweep() -> int:
        step = 0
        while True:
            step += 1
            drive, reached = await _interrupted_at(step, by_host=by_host)
            if not reached:
                return step
            await _check_stopped(drive, step)

    steps = trio.run(sweep, clock=trio.testing.MockClock(autojump_threshold=0))
    assert steps > 80


class _JumpingLoop(asyncio.SelectorEventLoop):
    """Asyncio on a clock that jumps, so whoever waits waits no time; ``at`` is called in its ``step``-th round."""

    def __init__(self, step: int = 0, at: Callable[[], object] = lambda: None) -> None:
        super().__init__(_NoWait(self))
        self.now = 0.0
        self.left = step
        self.at = at

    def time(self) -> float:
        return self.now


class _NoWait(selectors.DefaultSelector):
    def __init__(self, loop: _JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self._loop.now += timeout
        self._loop.left -= 1
        if self._loop.left == 0:
            self._loop.at()
        return ready


def _cancelled_at(step: int) -> tuple[Drive, bool]:
    """As a host does that knows asyncio only: by ``Task.cancel``."""
    drive = _busy_task()
    loop = _JumpingLoop()

    async def host() -> None:
        task = asyncio.ensure_future(drive.run("go", approve=_approve_after_a_while))
        loop.left, loop.at = step, task.cancel
        with contextlib.suppress(asyncio.CancelledError):
            await task
        loop.left = min(loop.left, 0)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(host())
    return drive, ends_with_abort(drive.stream)


def test_B1_E10_a_cancellation_of_asyncio_itself_at_every_step_comes_out_as_such() -> None:
    step, stopped = 1, True  # before the first step nothing has begun that could be recorded
    while stopped:
        step += 1
        drive, stopped = _cancelled_at(step)
        asyncio.run(_check_stopped(drive, step))
    assert step > 80
