"""Waking one waiting reader, cheaply: this happens once for every message of every session."""

from __future__ import annotations

import asyncio  # noqa: TID251 - a bare future costs a third of an anyio.Event, and is made for each message
import sys
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Wakeup:
    """``wait`` returns after the next ``wake``; one reader at a time, in the task's own event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._future: asyncio.Future[None] | None = None
        self._event: anyio.Event | None = None

    def wait(self) -> Awaitable[None]:
        """Something to await until somebody wakes us."""
        if self._loop is None:
            trio = sys.modules.get("trio")
            if trio is not None and trio.lowlevel.in_trio_run():
                self._event = anyio.Event()
                return self._event.wait()
            self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()
        return self._future

    def wake(self) -> None:
        """Wake the reader, if one waits."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)
        event, self._event = self._event, None
        if event is not None:
            event.set()
