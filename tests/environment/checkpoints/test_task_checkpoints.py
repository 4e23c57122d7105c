"""When a checkpoint is taken, seen from the environment's tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.environment.conftest import Desk
from tests.support.checkpoint_kit import Keeper
from tests.support.deadline import Deadline

from penguin.environment.checkpoints.limits import CheckpointConfig, Limits
from penguin.environment.checkpoints.records import SessionRecords, TaskRecord
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.function_tool import tool
from penguin.protocol.interfaces import SupportsTasks, TaskStart

pytestmark = pytest.mark.anyio

START = TaskStart(context=1, records=5, requests=2, title="Do it")


@tool(permission="r")
def look() -> str:
    """Only look."""
    return "looked"


MakeDesk = Callable[..., Desk]


@pytest.fixture
def make(keeper: Keeper) -> MakeDesk:
    def made(session_id: str = "s1", limits: Limits | None = None, directory: Path | None = None) -> Desk:
        here = keeper.workspace

        @tool
        def change(name: str, content: str) -> str:
            """Change a file."""
            (here / name).write_text(content)
            return "changed"

        config = CheckpointConfig(directory or keeper.directory, limits=limits or Limits())
        return Desk(
            Environment(
                EnvironmentConfig(
                    here,
                    ToolConfig(builtin=(), custom_tools=[look, change]),
                    session_id=session_id,
                    checkpoints=config,
                )
            )
        )

    return made


def tasks(keeper: Keeper, session_id: str = "s1") -> list[TaskRecord]:
    return SessionRecords(keeper.store.sessions / session_id).tasks()


async def test_the_checkpoint_is_from_before_the_first_change_and_the_end_is_noted(
    keeper: Keeper, make: MakeDesk
) -> None:
    keeper.write("a", "one")
    desk = make()
    assert isinstance(desk.environment, SupportsTasks)
    desk.environment.begin_task(START)
    await desk.call("look")
    assert tasks(keeper) == []
    assert (await desk.call("change", name="a", content="two")).output == "changed"
    [begun] = tasks(keeper)
    assert (begun.context, begun.records, begun.requests, begun.title) == (1, 5, 2, "Do it")
    assert begun.workspace == str(keeper.workspace)
    assert not begun.after
    await desk.call("change", name="a", content="three")
    await desk.environment.end_task()
    [ended] = tasks(keeper)
    assert ended.before == begun.before
    assert ended.after == keeper.take()
    assert keeper.restore(ended.before) == []
    assert (keeper.workspace / "a").read_text() == "one"


async def test_each_task_has_its_own_and_one_that_only_looks_is_noted_without_any(
    keeper: Keeper, make: MakeDesk
) -> None:
    desk = make()
    for number in range(3):
        desk.environment.begin_task(START)
        if number != 1:
            await desk.call("change", name="a", content=str(number))
        else:
            await desk.call("look")
        await desk.environment.end_task()
    noted = tasks(keeper)
    assert [task.number for task in noted] == [1, 2, 3]
    assert [bool(task.before) for task in noted] == [True, False, True]
    assert noted[2].before == noted[0].after
    await desk.environment.end_task()  # the end of what never began
    assert len(tasks(keeper)) == 3


async def test_tasks_that_change_nothing_are_noted_in_their_order_though_nobody_waits(
    keeper: Keeper, make: MakeDesk
) -> None:
    desk = make()
    for number in range(4):
        desk.environment.begin_task(replace(START, title=str(number)))
        await desk.environment.end_task()
    await desk.environment.aclose()
    assert [(task.number, task.title) for task in tasks(keeper)] == [(n + 1, str(n)) for n in range(4)]


async def test_calls_at_the_same_time_wait_for_one_checkpoint(keeper: Keeper, make: MakeDesk) -> None:
    keeper.write("a", "one")
    desk = make()
    desk.environment.begin_task(START)
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(partial(Desk(desk.environment).call, "change", name="a", content=str(number)))
    [task] = tasks(keeper)
    assert keeper.restore(task.before) == []
    assert (keeper.workspace / "a").read_text() == "one"


async def test_without_a_session_or_a_task_there_is_none(keeper: Keeper, make: MakeDesk) -> None:
    desk = make(session_id="")
    desk.environment.begin_task(START)
    await desk.call("change", name="a", content="x")
    await desk.environment.end_task()
    outside = make()
    await outside.call("change", name="a", content="x")
    assert not keeper.directory.exists()


async def test_a_failure_is_told_once_and_stops_nothing(keeper: Keeper, make: MakeDesk, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the store should be")
    desk = make(directory=blocked)
    outputs = []
    for number in range(2):
        desk.environment.begin_task(START)
        outputs += [(await desk.call("change", name=name, content=str(number))).output for name in "ab"]
        await desk.environment.end_task()
    first, *others = outputs
    assert first.startswith("changed\n[no checkpoint: ")
    assert "cannot be undone]" in first
    assert others == ["changed"] * 3
    assert (keeper.workspace / "b").read_text() == "1"


async def test_a_workspace_beyond_the_limits_is_a_failure_with_its_reason(keeper: Keeper, make: MakeDesk) -> None:
    for number in range(5):
        keeper.write(str(number), "x")
    desk = make(limits=Limits(files=3))
    desk.environment.begin_task(START)
    output = (await desk.call("change", name="a", content="x")).output
    assert "[no checkpoint: the workspace is not covered: more than 3 files" in output
    await desk.environment.end_task()
    [task] = tasks(keeper)
    assert (task.before, task.problem) == ("", "the workspace is not covered: more than 3 files")


class Gate:
    """Holds the scan up in its thread until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self.opened.wait(10)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr("penguin.environment.checkpoints.scan.Scan._visit", gate)
    return gate


async def test_the_event_loop_goes_on_meanwhile(keeper: Keeper, make: MakeDesk, gate: Gate) -> None:
    desk = make()
    desk.environment.begin_task(START)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(desk.call, "change", name="a", content="x"))
        deadline = Deadline()
        while not gate.reached.is_set():
            deadline.check()
            await anyio.lowlevel.checkpoint()
        assert not (keeper.workspace / "a").exists()
        gate.opened.set()
    assert (keeper.workspace / "a").exists()


async def test_E10_an_interruption_does_not_wait_for_it_and_nothing_runs_or_is_noted(
    keeper: Keeper, make: MakeDesk, gate: Gate
) -> None:
    desk = make()
    desk.environment.begin_task(START)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(desk.call, "change", name="a", content="x"))
        deadline = Deadline()
        while not gate.reached.is_set():
            deadline.check()
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    answer = desk.answer()
    assert answer.stop_reason == "aborted"
    assert not (keeper.workspace / "a").exists()
    gate.opened.set()
    await desk.environment.end_task()
    await desk.environment.aclose()
    assert [task.before for task in tasks(keeper)] == [""]


async def test_two_sessions_in_one_workspace_share_contents_and_nothing_else(keeper: Keeper, make: MakeDesk) -> None:
    keeper.write("a", "one")
    desks = [make("s1"), make("s2")]
    for desk in desks:
        desk.environment.begin_task(START)
    async with anyio.create_task_group() as group:
        for name, desk in zip("ab", desks, strict=True):
            group.start_soon(partial(desk.call, "change", name=name, content="two"))
    for desk in desks:
        await desk.environment.end_task()
    assert [len(tasks(keeper, name)) for name in ("s1", "s2")] == [1, 1]
    assert len(list(keeper.directory.glob("*/objects"))) == 1
