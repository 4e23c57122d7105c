"""The queue between the engine and one reader of its stream."""

from __future__ import annotations

from collections import deque

from penguin.protocol.merge import merge_adjacent
from penguin.protocol.messages import Message
from penguin.session.wakeup import Wakeup

LAG_LIMIT = 1000


class Feed:
    """Messages in one total order; ``put`` is synchronous and cannot fail.

    There is no back-pressure: the engine never waits for a reader. A reader that lags by more than a
    thousand messages gets adjacent deltas of one segment joined (K2), so memory follows the content
    and not the number of fragments.
    """

    def __init__(self) -> None:
        self._queue: deque[Message] = deque()
        self._limit = LAG_LIMIT
        self._arrived = Wakeup()
        self.closed = False

    def put(self, message: Message) -> None:
        """Queue a message; after ``close`` it is dropped."""
        if self.closed:
            return
        self._queue.append(message)
        if len(self._queue) > self._limit:
            self._join_deltas()
        self._arrived.wake()

    def close(self) -> None:
        """No more messages will come; what is queued can still be read."""
        self.closed = True
        self._arrived.wake()

    async def next(self) -> Message | None:
        """The next message, or ``None`` at the end."""
        while not self._queue:
            if self.closed:
                return None
            await self._arrived.wait()
        return self._queue.popleft()

    def _join_deltas(self) -> None:
        self._queue = deque(merge_adjacent(self._queue))
        # What could not be joined would be walked again and again: wait until as much has come anew.
        self._limit = max(LAG_LIMIT, 2 * len(self._queue))
