"""Attempts that fail and are tried again (E13, E14, the cut-off part of L4)."""

from __future__ import annotations

import anyio
import pytest
from tests.support.engine_kit import Drive, text_of

from penguin.engine.engine import EngineSettings
from penguin.engine.retry import RetryLadder, RetryPolicy
from penguin.protocol.blocks import read_blocks
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import LLMOutcome, ModelError
from penguin.protocol.messages import Message, OmniMessage, RequestBegin, RequestEnd, ToolCall
from penguin.testing.turns import call, fail, hang, pause, say, think, turn

pytestmark = pytest.mark.anyio

QUICK = EngineSettings(retry=RetryPolicy(base=0.01))


def ends(drive: Drive) -> list[RequestEnd]:
    return [message.payload for message in drive.stream if isinstance(message.payload, RequestEnd)]


def climbs(outcome: LLMOutcome, times: int) -> list[float | None]:
    ladder = RetryLadder(RetryPolicy())
    rungs = [ladder.climb(outcome) for _ in range(times)]
    return [None if rung is None else rung.seconds for rung in rungs]


@pytest.mark.parametrize("status", ["timeout", "malformed"])
def test_E13_five_retries_with_growing_waits(status: str) -> None:
    assert climbs(LLMOutcome(status), 6) == [2, 4, 8, 16, 30, None]  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["completed", "failed", "aborted"])
def test_E13_other_endings_are_not_retried(status: str) -> None:
    assert climbs(LLMOutcome(status), 1) == [None]  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "waits"), [(3.0, [3, 4]), (0.0, [2, 4]), (None, [2, 4]), (9999.0, [120, 120])])
def test_E13_D64_a_retry_after_lengthens_the_wait_up_to_two_minutes(asked: float | None, waits: list[float]) -> None:
    outcome = LLMOutcome("timeout", ModelError("rate_limit", "slow down", 429, asked))
    assert climbs(outcome, 2) == waits


def test_L4_a_cut_off_reply_is_retried_without_wait_at_most_twice() -> None:
    assert climbs(LLMOutcome("malformed", cut_off=True), 3) == [0, 0, None]


async def test_E13_the_next_attempt_sends_the_input_and_what_was_already_produced() -> None:
    broken = turn(think("let me see"), say("Half an ans"), fault=fail("timeout", after=3))
    drive = Drive([broken, "The answer."], settings=QUICK)
    result = await drive.run("question")
    assert result.text == "The answer."
    prompt, block = drive.sent_texts()
    assert prompt == "question"
    (body,) = read_blocks("turn_retried", block)
    assert read_blocks("thinking", body) == ["let me see"]
    assert "Half an ans".startswith(read_blocks("text", body)[0])
    first, second = ends(drive)
    assert (first.status, first.attempt, first.retry_in_ms) == ("timeout", 1, 10)
    assert first.error is not None
    assert (second.status, second.attempt, second.retry_in_ms) == ("completed", 2, None)
    drive.check()


async def test_E13_the_wait_is_the_one_announced() -> None:
    moments: list[float] = []

    def note(message: Message) -> None:
        if isinstance(message.payload, RequestBegin | RequestEnd):
            moments.append(anyio.current_time())

    drive = Drive([turn(fault=fail(retry_after=0.2)), "ok"], settings=QUICK)
    drive.on_message = note
    await drive.run()
    announced = ends(drive)[0].retry_in_ms
    assert announced == 200
    assert moments[2] - moments[1] == pytest.approx(0.2, abs=0.1)


async def test_E13_running_tools_finish_and_undecided_calls_are_dropped() -> None:
    asked = anyio.Event()

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        if tool_call.payload.tool_call_id == "b":
            asked.set()
            await anyio.sleep_forever()
        return "allow"

    broken = turn(
        call("slow", {"seconds": 0.1}, id="a"), call("echo", id="b"), pause(asked.wait), fault=fail("malformed")
    )
    drive = Drive([broken, "ok"], settings=QUICK)
    result = await drive.run(approve=approve)
    assert result.stop_reason == "completed"
    assert drive.environment.executed == ["a"]
    assert [word for word in drive.outline() if word.startswith(("allow", "deny"))] == ["allow a"]
    (body,) = read_blocks("turn_retried", drive.sent_texts()[-1])
    assert read_blocks("tool_call_output", body) == ["begun\nended"]
    assert "this call was not run" in body
    drive.check()


async def test_E13_the_same_call_in_the_next_attempt_is_a_new_call_with_its_own_approval() -> None:
    asked: list[str] = []

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        asked.append(tool_call.payload.tool_call_id)
        return "allow"

    broken = turn(call("echo", {"text": "1"}, id="a"), pause(0.01), fault=fail())
    again = turn(call("echo", {"text": "1"}, id="a2"))
    drive = Drive([broken, again, "ok"], settings=QUICK)
    await drive.run(approve=approve)
    assert asked == ["a", "a2"]
    assert drive.environment.executed == ["a", "a2"]
    drive.check()


async def test_E13_when_the_retries_are_used_up_the_input_is_carried_over() -> None:
    faults = [turn(say(f"try {number}"), fault=fail(message="gone")) for number in range(3)]
    settings = EngineSettings(retry=RetryPolicy(retries=2, base=0.01))
    drive = Drive([*faults, "at last"], settings=settings)
    result = await drive.run("question")
    assert (result.stop_reason, result.error and result.error.message) == ("failed", "gone")
    assert [end.retry_in_ms is None for end in ends(drive)] == [False, False, True]
    await drive.run("go on")
    prompt, block, follow_up = drive.sent_texts()
    assert (prompt, follow_up) == ("question", "go on")
    assert all(f"try {number}" in block for number in range(3))
    drive.check()


async def test_E13_failed_stops_the_task_at_once_and_keeps_the_input() -> None:
    drive = Drive([turn(fault=fail("failed", "auth", "no such key; set api_key", http_status=401)), "ok"])
    result = await drive.run("question")
    assert result.stop_reason == "failed"
    assert result.error is not None
    assert (result.error.kind, result.error.http_status) == ("auth", 401)
    await drive.run("again")
    assert drive.sent_texts() == ["question", "again"]
    drive.check()


async def test_E13_outputs_of_the_turn_before_are_sent_again_and_once() -> None:
    drive = Drive([turn(call("echo", {"text": "out"}, id="a")), turn(fault=fail()), "ok"], settings=QUICK)
    await drive.run()
    assert [text_of(message) for message in drive.sent(1)] == ["out"]
    assert drive.sent_texts(2)[0] == "out"
    assert drive.environment.executed == ["a"]
    drive.check()


async def test_D06_a_cut_off_call_is_sent_again_with_advice_and_never_run() -> None:
    cut = turn(call("echo", '{"text": "long', id="a"), fault=fail("malformed", cut_off=True, after=1))
    drive = Drive([cut, cut, cut, "never"], settings=QUICK)
    result = await drive.run()
    assert result.stop_reason == "failed"
    assert [end.retry_in_ms for end in ends(drive)] == [0, 0, None]
    assert "write less at once" in drive.sent_texts()[-1]
    assert drive.environment.executed == []
    drive.check()


async def test_D06_a_cut_before_the_first_word_is_not_answered_with_words_about_a_call() -> None:
    cut = turn(think("Long."), fault=fail("malformed", cut_off=True))
    drive = Drive([cut, "done"], settings=QUICK)
    assert (await drive.run()).text == "done"
    assert "before its first word" in drive.sent_texts()[-1]
    assert "tool call" not in drive.sent_texts()[-1]
    drive.check()


async def test_L4_a_filter_inside_a_call_is_not_answered_with_advice_about_size() -> None:
    fault = fail("malformed", "refused", "filtered", cut_off=True, after=1)
    drive = Drive([turn(call("echo", '{"text": "long', id="a"), fault=fault), "done"], settings=QUICK)
    assert (await drive.run()).text == "done"
    assert "content filter" in drive.sent_texts()[-1]
    assert "less" not in drive.sent_texts()[-1]
    drive.check()


async def test_E14_the_wait_can_be_skipped_and_the_count_stays() -> None:
    long_wait = EngineSettings(retry=RetryPolicy(retries=1, base=30))
    drive = Drive([turn(fault=fail()), turn(fault=fail()), "never"], settings=long_wait)

    def skip(message: Message) -> None:
        if isinstance(message.payload, RequestEnd) and message.payload.retry_in_ms:
            drive.engine.skip_retry_wait()

    drive.on_message = skip
    with anyio.fail_after(5):
        result = await drive.run()
    assert result.stop_reason == "failed"
    assert [end.attempt for end in ends(drive)] == [1, 2]


async def test_E10_interrupting_the_wait_is_as_safe_as_anything() -> None:
    drive = Drive([turn(say("half"), fault=fail()), "ok"])
    drive.on_message = lambda message: drive.engine.interrupt() if isinstance(message.payload, RequestEnd) else None
    result = await drive.run("question")
    assert result.stop_reason == "aborted"
    drive.on_message = lambda message: None
    await drive.run("go on")
    block, follow_up = drive.sent_texts()
    assert read_blocks("user_input", block) == ["question"]
    assert follow_up == "go on"
    drive.check()


async def test_a_slow_human_does_not_hold_the_model() -> None:
    """The approval runs beside the stream: the model finishes while nobody has answered yet."""
    finished = anyio.Event()

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        await finished.wait()
        return "allow"

    drive = Drive([turn(call("echo", id="a"), say("done talking")), "ok"])
    drive.on_message = lambda message: finished.set() if isinstance(message.payload, RequestEnd) else None
    with anyio.fail_after(5):
        await drive.run(approve=approve)
    assert drive.environment.executed == ["a"]
    drive.check()


async def test_a_hanging_model_can_be_interrupted() -> None:
    drive = Drive([turn(say("words"), hang())])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive.run)
        await anyio.sleep(0.05)
        drive.engine.interrupt()
    assert drive.outline()[-3:] == ["assistant text", "end aborted", "Abort"]
    drive.check()
