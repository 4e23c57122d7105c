"""Blocking work in lots: everything is done once, whoever waits hears of it, and few threads carry it."""

from __future__ import annotations

import threading
from functools import partial

import anyio
import pytest

from penguin import gathered
from penguin.gathered import in_gathered_thread

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_each_gets_its_own_result_from_a_thread() -> None:
    results: dict[int, tuple[int, bool]] = {}
    main = threading.get_ident()

    async def ask(number: int) -> None:
        results[number] = await in_gathered_thread(lambda: (number, threading.get_ident() == main))

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(ask, number)
    assert results == {number: (number, False) for number in range(200)}


async def test_an_error_is_raised_where_it_belongs_and_stops_nobody_else() -> None:
    heard: list[str] = []

    async def ask(number: int) -> None:
        try:
            await in_gathered_thread(partial(divide, number))
        except ZeroDivisionError:
            heard.append(f"{number} failed")

    def divide(number: int) -> float:
        return 1 / (number % 3)

    async with anyio.create_task_group() as tasks:
        for number in range(9):
            tasks.start_soon(ask, number)
    assert sorted(heard) == ["0 failed", "3 failed", "6 failed"]


async def test_what_comes_while_threads_are_busy_goes_in_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    lots: list[int] = []
    run_all = gathered._run_all

    def counted(lot: list[gathered._Job[None]]) -> None:
        lots.append(len(lot))
        run_all(lot)

    monkeypatch.setattr(gathered, "_run_all", counted)
    async with anyio.create_task_group() as tasks:
        for _ in range(400):
            tasks.start_soon(in_gathered_thread, lambda: None)
    assert sum(lots) == 400
    assert len(lots) <= 60


async def test_the_work_of_a_cancelled_caller_is_done_all_the_same() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(10)
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(in_gathered_thread, work)
        while not begun.is_set():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    go_on.set()
    await in_gathered_thread(lambda: None)
    assert await anyio.to_thread.run_sync(done.wait, 10)
