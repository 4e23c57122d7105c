"""An end to waiting: a test that polls must fail when what it waits for never comes, not hold the whole suite."""

from __future__ import annotations

import time


class Deadline:
    """Looked at in every turn of a loop that polls.

    The timeout of pytest is no substitute: it interrupts the event loop, whose clean-up then waits for the same loop.

    Example::

        deadline = Deadline()
        while not ready():
            deadline.check("it was never ready")
            await anyio.sleep(0.01)
    """

    def __init__(self, seconds: float = 20.0) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def check(self, seen: object = "what the test waits for did not come") -> None:
        """Fail when the time is up; ``seen`` tells what there was instead."""
        assert time.monotonic() < self._until, f"after {self._seconds:g} s: {seen}"
