"""What an environment is told of tasks: where each begins, and that it ended."""

from __future__ import annotations

import anyio
import pytest
from tests.support.engine_kit import Drive, FakeEnvironment, allow

from penguin.engine.engine import ContextEngine
from penguin.engine.ledger import Ledger
from penguin.protocol.builders import user_text
from penguin.protocol.codec import decode
from penguin.protocol.interfaces import TaskStart
from penguin.testing import call, say, turn

pytestmark = pytest.mark.anyio


class Told(FakeEnvironment):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[TaskStart | str] = []

    def begin_task(self, start: TaskStart) -> None:
        self.heard.append(start)

    async def end_task(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.heard.append("end")


def told(drive: Drive) -> Told:
    """Give the engine of a drive an environment that listens."""
    environment = Told()
    drive.environment = environment
    drive.engine = ContextEngine(
        drive.model, environment, drive.trace, feed=drive.stream.append, ledger=drive.engine.ledger
    )
    return environment


async def test_a_task_begins_before_its_first_record_and_ends_after_its_last() -> None:
    drive = Drive([turn(say("a"), call("echo", {"text": "x"})), "b", "c"])
    environment = told(drive)
    for prompt in ("first   thing\n" + "x" * 100, "second"):
        start = len(drive.trace.records)
        await drive.run(prompt)
        begun = environment.heard[-2]
        assert isinstance(begun, TaskStart)
        assert (begun.context, begun.records) == (1, start)
        assert environment.heard[-1] == "end"
    first, _, second, _ = environment.heard
    assert isinstance(first, TaskStart)
    assert isinstance(second, TaskStart)
    assert (first.requests, second.requests) == (0, 2)
    assert first.title == "first thing " + "x" * 48
    assert second.title == "second"


async def test_the_place_is_the_same_when_the_session_was_resumed() -> None:
    drive = Drive(["a", "b", "c"])
    environment = told(drive)
    await drive.run("one")
    resumed = Ledger()
    for record in drive.trace.records:
        resumed.observe(decode(record.line))
    await drive.run("two")
    begun = environment.heard[2]
    assert isinstance(begun, TaskStart)
    assert (begun.context, begun.records, begun.requests) == (resumed.contexts, resumed.records, resumed.turns)


async def test_an_interrupted_task_ends_too_and_one_that_never_began_only_ends() -> None:
    drive = Drive([turn(call("slow", {"seconds": 60}))])
    environment = told(drive)

    async def stop_soon() -> None:
        while not environment.executed:
            await anyio.lowlevel.checkpoint()
        drive.engine.interrupt()

    async with anyio.create_task_group() as group:
        group.start_soon(stop_soon)
        result = await drive.run("go")
    assert result.stop_reason == "aborted"
    assert [type(each).__name__ for each in environment.heard] == ["TaskStart", "str"]
    await drive.engine.run([user_text("again")], approve=allow, interrupted="before it began")
    assert environment.heard[2:] in (["end"], [environment.heard[2], "end"])


async def test_the_engine_is_busy_until_the_end_was_told() -> None:
    drive = Drive(["a"])
    environment = told(drive)
    seen: list[bool] = []

    async def end_task() -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(drive.engine.busy)

    environment.end_task = end_task  # type: ignore[method-assign]
    await drive.run("go")
    assert seen == [True]
    assert not drive.engine.busy
