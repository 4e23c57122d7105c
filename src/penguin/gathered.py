"""Short blocking work for a thread, in lots: the way there and back costs more than what is done there.

To hand one call over and hear of its end costs a busy event loop a quarter of a millisecond, as much as saving
a file. Hundreds of sessions that begin or end together would pay it for each of their small files. It lies below
the layers because the trace and the checkpoints both need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from penguin.detached import start_detached

_MOST_THREADS = 8
_LARGEST_LOT = 16
"""A disk does better with some calls at once; more threads would only wait for the interpreter."""

T = TypeVar("T")


async def in_gathered_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread and return what it returns, or raise what it raises.

    It may be done after other calls of this event loop, so it must be short: files, no network, no waiting. When
    the caller is cancelled it is done all the same.

    Example::

        await in_gathered_thread(lambda: os.fsync(descriptor))
    """
    job = _Job(work)
    _waiting_room().add(job)
    await job.done.wait()
    if job.error is not None:
        raise job.error
    return job.results[0]


@dataclass(eq=False, slots=True)
class _Job(Generic[T]):
    work: Callable[[], T]
    done: anyio.Event = field(default_factory=anyio.Event)
    results: list[T] = field(default_factory=list)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self.results.append(self.work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            self.error = error


class _WaitingRoom:
    """The jobs of one event loop that no thread has taken yet."""

    def __init__(self) -> None:
        self._jobs: list[_Job[Any]] = []
        self._threads = 0

    def add(self, job: _Job[Any]) -> None:
        self._jobs.append(job)
        if self._threads < _MOST_THREADS:
            self._threads += 1
            start_detached(self._work_off, "gathered work for a thread")

    async def _work_off(self) -> None:
        """Take all that waits, again and again until nothing does."""
        try:
            while self._jobs:
                lot, self._jobs = self._jobs[:_LARGEST_LOT], self._jobs[_LARGEST_LOT:]
                await anyio.to_thread.run_sync(_run_all, lot, abandon_on_cancel=True)
                for job in lot:
                    job.done.set()
        finally:
            self._threads -= 1


def _run_all(lot: list[_Job[Any]]) -> None:
    for job in lot:
        job.run()


_room: RunVar[_WaitingRoom] = RunVar("penguin_gathered_work")


def _waiting_room() -> _WaitingRoom:
    try:
        return _room.get()
    except LookupError:
        room = _WaitingRoom()
        _room.set(room)
        return room
