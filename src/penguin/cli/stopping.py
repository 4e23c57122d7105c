"""Ctrl-C and the signals that mean the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.abc import TaskStatus

T = TypeVar("T")

INTERRUPTED = 128 + signal.SIGINT
"""The exit status of an interrupted command."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """What a signal stops: first the running task in good order, then everything.

    Attributes:
        asked: whether a signal came.
        gently: called for the first signal; ``None`` while there is no task yet, then everything stops at once.
        at_once: called for the second, so that nothing is left that could be waited for.
    """

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.asked = False
        self.gently: Callable[[], None] | None = None
        self.at_once: Callable[[], None] | None = None
        self._scope = scope
        self._count = 0

    async def watch(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Wait for signals; ends only when cancelled."""
        with anyio.open_signal_receiver(*_unignored()) as signals:
            task_status.started()
            async for _ in signals:
                self._climb()

    def _climb(self) -> None:
        self.asked = True
        self._count += 1
        if self._count == 1 and self.gently is not None:
            self.gently()
        elif not self._scope.cancel_called:
            # The host's cancellation: children are still ended and the abort recorded, but nothing is waited for.
            self._scope.cancel()
            if self.at_once is not None:
                self.at_once()
        elif self._count > 2:  # noqa: PLR2004 - once more than "twice"
            os._exit(INTERRUPTED)


def _unignored() -> list[signal.Signals]:
    """Under nohup, or in the background of a script, the caller has decided that a signal is not for us."""
    return [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]


async def stoppable(work: Callable[[Stop], Awaitable[T]]) -> T | None:
    """Run ``work`` while signals are watched; ``None`` when it was stopped before its end.

    What ``work`` raises comes out as it is, not in a group.
    """
    result: T | None = None
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        stop = Stop(tasks.cancel_scope)
        await tasks.start(stop.watch)
        try:
            result = await work(stop)
        except Exception as error:  # noqa: BLE001 - raised again below, outside the group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result
