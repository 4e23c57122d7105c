"""Signals: once gently, twice at once, and never when the caller has switched them off."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

from penguin.cli.stopping import Stop, stoppable

pytestmark = pytest.mark.anyio


async def test_without_a_task_yet_the_first_signal_ends_everything() -> None:
    async def loading(stop: Stop) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()
        return 0

    assert await stoppable(loading) is None


async def test_the_first_signal_is_gentle_and_the_second_is_not() -> None:
    told: list[str] = []

    async def task(stop: Stop) -> int:
        interrupted = anyio.Event()
        stop.gently = interrupted.set
        os.kill(os.getpid(), signal.SIGINT)
        await interrupted.wait()
        told.append("interrupted, and not ending")
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await anyio.sleep_forever()
        finally:
            told.append("cancelled")
        return 0

    assert await stoppable(task) is None
    assert told == ["interrupted, and not ending", "cancelled"]


async def test_a_task_that_ends_itself_keeps_its_status() -> None:
    async def task(stop: Stop) -> int:
        interrupted = anyio.Event()
        stop.gently = interrupted.set
        os.kill(os.getpid(), signal.SIGHUP)
        await interrupted.wait()
        return 130

    assert await stoppable(task) == 130


async def test_what_the_work_raises_comes_out_as_it_is() -> None:
    async def task(stop: Stop) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        await stoppable(task)


async def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    async def task(stop: Stop) -> bool:
        await anyio.lowlevel.checkpoint()
        os.kill(os.getpid(), signal.SIGHUP)
        await anyio.lowlevel.checkpoint()
        return stop.asked

    with ignored(signal.SIGHUP):
        assert await stoppable(task) is False


@contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)
