"""The async-iterator face of a running task: the one place where messages are pulled."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio

from penguin.detached import start_detached
from penguin.engine.engine import HOST_CANCELLED, INTERRUPTED, TaskResult
from penguin.protocol.errors import ResultNotReady
from penguin.protocol.messages import Message
from penguin.session.feed import Feed

RunTask = Callable[[Feed], Awaitable[TaskResult]]


class TaskStream:
    """One task as a stream of messages.

    Leaving the block early interrupts the task and waits until the abort is recorded::

        async with session.run("Create hello.txt", approve=allow_all) as stream:
            async for message in stream:
                ...
        print(stream.result.text)

    Iterating without ``async with`` works to the end. Leaving such a loop early interrupts too, but
    nobody waits for it, so it warns.
    """

    def __init__(self, begin: Callable[[], None], run_task: RunTask, interrupt: Callable[[str], None]) -> None:
        self._task = _Task(begin, run_task)
        self._interrupt = interrupt
        self._owned = False

    @property
    def result(self) -> TaskResult:
        """How the task ended.

        Raises:
            ResultNotReady: the task has not ended yet.
        """
        return self._task.result()

    async def __aenter__(self) -> Self:
        self._owned = True
        self._task.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._task.ended.is_set():
            cancelled = kind is not None and issubclass(kind, anyio.get_cancelled_exc_class())
            self._interrupt(HOST_CANCELLED if cancelled else INTERRUPTED)
            with anyio.CancelScope(shield=True):
                await self._task.ended.wait()
        if error is None:
            self._task.raise_fault()

    def __aiter__(self) -> Self:
        self._task.start()
        return self

    async def __anext__(self) -> Message:
        message = await self._task.feed.next()
        if message is None:
            await self._task.ended.wait()
            self._task.raise_fault()
            raise StopAsyncIteration
        return message

    def __del__(self) -> None:
        if self._owned or not self._task.started or self._task.ended.is_set():
            return
        warnings.warn(
            "a task stream was left before its end and the task is being interrupted; write"
            " `async with session.run(...) as stream:` so that leaving waits for the abort to be recorded",
            ResourceWarning,
            stacklevel=2,
        )
        self._interrupt(INTERRUPTED)


class _Task:
    """What the background task needs, without a reference to the stream: else it would never be collected."""

    def __init__(self, begin: Callable[[], None], run_task: RunTask) -> None:
        self._begin = begin
        self._run_task = run_task
        self._result: TaskResult | None = None
        self._fault: Exception | None = None
        self.started = False
        self.feed = Feed()
        self.ended = anyio.Event()

    def start(self) -> None:
        if not self.started:
            self._begin()
            self.started = True
            start_detached(self._drive, "penguin task")

    async def _drive(self) -> None:
        try:
            self._result = await self._run_task(self.feed)
        except Exception as fault:  # noqa: BLE001 - a fault of ours, raised where the caller can see it
            self._fault = fault
        finally:
            self.feed.close()
            self.ended.set()

    def result(self) -> TaskResult:
        self.raise_fault()
        if self._result is not None:
            return self._result
        if self.ended.is_set():
            return TaskResult("aborted")
        raise ResultNotReady("the task has not ended: read the stream to its end before asking for the result")

    def raise_fault(self) -> None:
        """Raise what went wrong in the harness itself, once."""
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
