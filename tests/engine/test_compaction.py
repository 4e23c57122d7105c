"""Replacing a context by its summary (E15, E18 to E22) and what a resume sees of it (T10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.support.engine_kit import META, Drive, allow, ends_with_abort, text_of

from penguin.engine.compaction import CompactionPolicy, compactability
from penguin.engine.engine import EngineSettings
from penguin.engine.ledger import Ledger
from penguin.engine.retry import RetryPolicy
from penguin.protocol.blocks import read_blocks
from penguin.protocol.builders import image_url, user_text
from penguin.protocol.interfaces import Emit, GenerateRequest, LLMInterface, LLMOutcome, ModelConfig
from penguin.protocol.messages import (
    CompactionBegin,
    CompactionEnd,
    ImageUrl,
    Message,
    PartialText,
    Text,
    TokenUsage,
)
from penguin.testing.framing import assert_well_framed
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, fail, hang, say, turn, usage

pytestmark = pytest.mark.anyio

BIG = usage(cache_write=5_000, output=10)
SMALL = usage(cache_write=10, output=1)


class Source:
    """Fresh contexts that share one script."""

    def __init__(self, script: ScriptedModel) -> None:
        self._factory = script.factory()

    def new_model(self) -> LLMInterface:
        return self._factory(ModelConfig("p", "m"))

    async def next_meta(self) -> Message:
        return META


def drive_of(*turns: Any, **policy: Any) -> Drive:
    settings = EngineSettings(
        compaction=CompactionPolicy(prompt="Summarize.", **{"max_context_length": 1_000, **policy}),
        retry=RetryPolicy(retries=2, base=0.01),
    )
    script = ScriptedModel(turns)
    return Drive(model=script, settings=settings, source=Source(script))


def texts(drive: Drive) -> list[list[str]]:
    return [[text_of(message) for message in request.new_messages] for request in drive.scripted.requests]


def ends(drive: Drive) -> list[str]:
    return [message.payload.status for message in drive.stream if isinstance(message.payload, CompactionEnd)]


SUMMARY = turn(say("[summary]All is well.[/summary]"), usage=SMALL)


async def test_E18_E19_a_full_context_inside_a_task_is_replaced_and_the_task_goes_on() -> None:
    drive = drive_of(
        turn(call("echo", {"text": "out"}, id="a"), usage=BIG), SUMMARY, turn(say("Finished."), usage=SMALL)
    )
    result = await drive.run("do it")
    assert result.text == "Finished."
    _, summary_request, next_context = texts(drive)
    assert summary_request == ["out", "Summarize."]
    (opening,) = next_context
    assert opening.startswith("[context_summary]\nAll is well.")
    assert read_blocks("user_input", opening) == ["do it"]
    assert len(drive.trace.files) == 2
    drive.check()


async def test_E21_only_the_words_and_the_usage_of_the_summary_are_streamed() -> None:
    drive = drive_of(turn(call("echo", id="a"), usage=BIG), SUMMARY, turn(say("ok"), usage=SMALL))
    await drive.run()
    begin, end = (
        next(i for i, m in enumerate(drive.stream) if isinstance(m.payload, kind))
        for kind in (CompactionBegin, CompactionEnd)
    )
    kinds = {type(message.payload) for message in drive.stream[begin + 1 : end]}
    assert kinds == {PartialText, TokenUsage}
    assert_well_framed(drive.stream)


async def test_E18_by_turns_and_at_the_end_of_a_task() -> None:
    drive = drive_of("One.", SUMMARY, "Two.", SUMMARY, max_session_turns=1, max_context_length=10**6)
    await drive.run("first")
    assert isinstance(drive.stream[-1].payload, CompactionEnd)
    await drive.run("second")
    opening, prompt = texts(drive)[2]
    assert "All is well." in opening
    assert prompt == "second"


async def test_E19_discard_happens_at_the_boundary_only_and_asks_nobody() -> None:
    drive = drive_of(
        turn(call("echo", {"text": "out"}, id="a"), usage=BIG), turn(say("Done."), usage=BIG), "fresh", mode="discard"
    )
    await drive.run("first")
    assert [type(m.payload).__name__ for m in drive.stream[-2:]] == ["CompactionBegin", "CompactionEnd"]
    await drive.run("second")
    assert texts(drive) == [["first"], ["out"], ["second"]]
    drive.check()


@pytest.mark.parametrize(
    "useless",
    [turn(usage=SMALL), turn(call("echo", id="x"), usage=SMALL), turn(say("  "), usage=SMALL)],
    ids=["empty", "calls", "blank"],
)
async def test_E19_D43_a_useless_reply_is_a_failed_attempt(useless: Any) -> None:
    drive = drive_of(turn(say("One."), usage=BIG), useless, SUMMARY, turn(say("Two."), usage=SMALL))
    await drive.run("first")
    assert ends(drive) == ["completed"]
    await drive.run("second")
    assert not drive.scripted.problems
    assert "echo" not in drive.environment.executed
    assert "no summary" in texts(drive)[2][-1]
    drive.check()


async def test_E20_D43_a_compaction_that_fails_leaves_the_old_context_in_force() -> None:
    faults = [turn(fault=fail()) for _ in range(3)]
    drive = drive_of(turn(call("echo", {"text": "out"}, id="a"), usage=BIG), *faults, turn(say("Two."), usage=SMALL))
    result = await drive.run("first")
    assert result.text == "Two."
    assert ends(drive) == ["failed"]
    assert texts(drive)[-1] == ["out"]
    assert len(drive.trace.files) == 1
    drive.check()


async def test_E20_what_a_useless_attempt_committed_is_never_sent_twice() -> None:
    useless = [turn(usage=SMALL) for _ in range(3)]
    drive = drive_of(turn(call("echo", {"text": "out"}, id="a"), usage=BIG), *useless, turn(say("Two."), usage=SMALL))
    result = await drive.run("first")
    assert result.text == "Two."
    assert ends(drive) == ["failed"]
    assert [request.count("out") for request in texts(drive)] == [0, 1, 0, 0, 0]
    assert texts(drive)[-1] == ["Go on with the task."]
    drive.check()


async def test_E20_D41_a_compaction_that_does_not_help_is_not_repeated() -> None:
    loop = turn(call("echo", {"text": "out"}), usage=BIG)
    drive = drive_of(loop, SUMMARY, loop, loop, loop, turn(say("End."), usage=BIG))
    result = await drive.run("first")
    assert result.text == "End."
    assert ends(drive) == ["completed"]
    notices = [m for m in drive.stream if isinstance(m.payload, Text) and m.payload.stop_reason == "failed"]
    assert len(notices) == 1
    drive.check()


async def test_E20_interrupting_the_summary_keeps_everything() -> None:
    drive = drive_of(
        turn(call("echo", {"text": "out"}, id="a"), usage=BIG), turn(say("[summary]half"), hang()), turn(say("Two."))
    )
    drive.on_message = lambda message: (
        drive.engine.interrupt()
        if isinstance(message.payload, PartialText) and "half" in message.payload.text
        else None
    )
    result = await drive.run("first")
    assert result.stop_reason == "aborted"
    assert ends(drive) == ["aborted"]
    assert ends_with_abort(drive.stream)
    drive.check()
    drive.on_message = lambda message: None
    await drive.run("next")
    assert texts(drive)[-1] == ["out", "next"]
    drive.check()


def overflow() -> Any:
    return turn(fault=fail("failed", "context_overflow", "too long", http_status=400))


async def test_E15_D42_an_overflow_is_rescued_by_one_compaction() -> None:
    drive = drive_of("One.", overflow(), SUMMARY, turn(say("Two."), usage=SMALL), max_context_length=10**6)
    await drive.run("first")
    result = await drive.run("second")
    assert result.text == "Two."
    assert read_blocks("user_input", texts(drive)[-1][0]) == ["second"]
    assert ends(drive) == ["completed"]
    drive.check()


async def test_E15_D42_when_the_summary_request_overflows_too_it_is_made_smaller() -> None:
    drive = drive_of(
        turn(call("echo", {"text": "x" * 9_000}, id="a")),
        overflow(),
        overflow(),
        overflow(),
        SUMMARY,
        turn(say("Two."), usage=SMALL),
        max_context_length=10**6,
    )
    result = await drive.run("first")
    assert result.text == "Two."
    requests = texts(drive)
    assert len(requests[2][0]) == 9_000
    assert len(requests[3][0]) < 2_200
    transcript, ask = requests[4]
    assert transcript.startswith("This is the conversation so far")
    assert "user: first" in transcript
    assert ask == "Summarize."
    drive.check()


async def test_E15_D41_it_is_tried_at_most_twice_a_task_then_the_error_says_so() -> None:
    drive = drive_of("One.", overflow(), SUMMARY, overflow(), "never")
    await drive.run("first")
    result = await drive.run("second")
    assert result.stop_reason == "failed"
    assert result.error is not None
    assert result.error.kind == "context_overflow"
    assert (await drive.run("third")).text == "never"


async def test_E21_compactability_is_the_same_before_and_after_a_restart() -> None:
    drive = drive_of("One.", SUMMARY)
    assert drive.engine.compactability() == "empty"
    await drive.run("first")
    assert drive.engine.compactability() == "ok"
    result = await drive.engine.compact()
    assert result.stop_reason == "completed"
    assert drive.engine.compactability() == "just_compacted"
    assert (await drive.engine.compact()).stop_reason == "failed"
    assert Drive(["x"]).engine.compactability() == "unsupported"


@pytest.mark.parametrize("mode", ["summarize", "discard"])
async def test_E21_T11_right_after_a_compaction_a_restart_finds_an_empty_context(mode: Any) -> None:
    """Found by the state machine: the closed context was still there after a restart, and could be compacted again."""
    drive = drive_of("One.", SUMMARY, mode=mode)
    await drive.run("first")
    await drive.engine.compact()
    assert drive.engine.compactability() == "just_compacted"
    resumed = Ledger()
    # A file never holds only its session_meta: what follows a discard is not on disk yet, nor is it after a crash.
    for record in drive.trace.files[0]:
        resumed.observe(record)
    assert (resumed.history, resumed.carry_over, resumed.turns) == ([], [], 0)
    assert compactability(resumed, supported=True) == "just_compacted"


async def test_T10_a_file_that_ends_in_a_compaction_opens_the_next_context() -> None:
    drive = drive_of("One.", SUMMARY)
    await drive.run("first")
    await drive.engine.compact()
    ledger = Ledger()
    for record in drive.trace.files[0]:
        ledger.observe(record)
    assert ledger.closed
    assert ledger.summary == "All is well."


async def test_E11_interrupting_a_manual_compaction() -> None:
    drive = drive_of("One.", turn(hang()), "Two.")
    await drive.run("first")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive.engine.compact)
        await anyio.sleep(0.05)
        drive.engine.interrupt()
    assert ends(drive) == ["aborted"]
    assert ends_with_abort(drive.stream)
    await drive.run("second")
    assert texts(drive)[-1] == ["second"]
    drive.check()


async def test_E22_the_notes_of_the_environment_survive_verbatim() -> None:
    drive = drive_of(turn(call("echo", id="a"), usage=BIG), SUMMARY, turn(say("ok"), usage=SMALL))
    drive.environment.context_notes = lambda: "Running: p1 `npm run dev`"  # type: ignore[attr-defined]
    await drive.run("serve it")
    assert "Running: p1 `npm run dev`" in texts(drive)[-1][0]


async def test_the_summary_request_keeps_the_prefix() -> None:
    """E19: the old context is extended, nothing of it is rewritten."""
    seen: list[list[Message]] = []

    def summary(request: GenerateRequest, history: list[Message]) -> Any:
        seen.append(history)
        return say("[summary]s[/summary]")

    drive = drive_of(turn(say("One."), usage=BIG), summary)
    await drive.run("first")
    assert [text_of(message) for message in seen[0]] == ["first", "One."]


class SlowSource(Source):
    """Whoever opens a context waits, as for a server that lists its tools."""

    slow = False

    async def next_meta(self) -> Message:
        if self.slow:
            await anyio.sleep_forever()
        return META


@pytest.mark.parametrize("resumed", [False, True])
async def test_E11_E12_a_prompt_is_kept_when_the_next_context_was_not_opened(*, resumed: bool) -> None:
    script = ScriptedModel(["One.", SUMMARY, "Two.", SUMMARY])
    source = SlowSource(script)
    settings = EngineSettings(compaction=CompactionPolicy(prompt="Summarize.", max_session_turns=1))
    drive = Drive(model=script, settings=settings, source=source)
    source.slow = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive.run, "first")
        while not drive.engine.ledger.closed:
            await anyio.lowlevel.checkpoint()
        drive.engine.interrupt()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive.run, "precious")
        await anyio.wait_all_tasks_blocked()
        drive.engine.interrupt()
    source.slow = False
    if resumed:
        drive = Drive(model=script, settings=settings, source=source, records=drive.trace.records)
    await drive.run("go on")
    opening, kept, prompt = texts(drive)[2]
    assert opening.startswith("[context_summary]\nAll is well.")
    assert "precious" not in opening
    assert (kept, prompt) == ("precious", "go on")
    drive.check()


async def test_E15_E19_an_overflow_never_discards_what_was_asked() -> None:
    drive = drive_of("One.", overflow(), "Two.", mode="discard", max_context_length=10**6)
    await drive.run("first")
    result = await drive.run("second")
    assert (result.stop_reason, result.error and result.error.kind) == ("failed", "context_overflow")
    await drive.run("third")
    assert texts(drive)[-1] == ["second", "third"]
    drive.check()


class CutOnce(ScriptedModel):
    """The limit ends the words of its second reply."""

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        outcome = await super().stream_generate(request, emit)
        return replace(outcome, unfinished=len(self.requests) == 2)


async def test_E19_D43_a_summary_that_was_cut_off_replaces_nothing() -> None:
    script = CutOnce(["One.", "[summary]The user wan", SUMMARY, "Two."])
    settings = EngineSettings(
        compaction=CompactionPolicy(prompt="Summarize.", max_session_turns=1), retry=RetryPolicy(base=0.01)
    )
    drive = Drive(model=script, settings=settings, source=Source(script))
    await drive.run("first")
    assert ends(drive) == ["completed"]
    assert "cut off" in texts(drive)[2][0]
    assert drive.engine.ledger.contexts == 2
    await drive.run("second")
    assert texts(drive)[3][0].startswith("[context_summary]\nAll is well.")


async def test_E22_pictures_of_requests_that_are_still_worked_on_survive() -> None:
    busy = [turn(call("echo", {"text": "out"}, id=name), usage=SMALL) for name in "ab"]
    drive = drive_of(busy[0], SUMMARY, busy[1], SUMMARY, "Done.", SUMMARY, max_session_turns=1)
    await drive.engine.run([user_text("like this"), image_url("https://example.org/a.png")], approve=allow)
    for request in (drive.scripted.requests[2], drive.scripted.requests[4]):
        opening, image = request.new_messages
        assert read_blocks("user_input", text_of(opening)) == ["like this"]
        assert isinstance(image.payload, ImageUrl)
    assert drive.engine.ledger.request_images == []
    drive.check()
