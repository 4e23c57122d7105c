"""Keeps commands in the background from blocking on a full pipe, and notices when they end."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import threading
from collections.abc import Callable

from penguin.environment.running_command import RunningCommand

_log = logging.getLogger("penguin.environment")


class BackgroundReader:
    """One daemon thread for all background commands of this process; get it with :func:`of_this_process`.

    A thread and not a task: a command goes on between two runs of an agent, when no task group of ours is open and
    perhaps no event loop runs at all.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def adopt(self, command: RunningCommand, on_exit: Callable[[RunningCommand], None] | None = None) -> None:
        """Collect its output from now on; ``on_exit`` is called on the reader's thread when the shell has exited."""
        with self._lock:
            command.adopted = True
            self._selector.register(command.fileno(), selectors.EVENT_READ, (command, on_exit))
            if self._thread is None:
                self._thread = threading.Thread(target=self._read_on, name="penguin-background-reader", daemon=True)
                self._thread.start()

    def release(self, command: RunningCommand) -> None:
        """Leave the command to the caller; once this returns the reader does not touch it again."""
        self._forget(command)
        with command.lock:
            command.adopted = False

    def _forget(self, command: RunningCommand) -> None:
        with self._lock, contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(command.fileno())

    def _read_on(self) -> None:
        while True:
            for key, _ in self._selector.select():
                command, on_exit = key.data
                try:
                    self._attend_to(command, on_exit)
                except Exception:  # noqa: BLE001 - the other commands of all sessions are read by this thread too
                    _log.exception("the output of %s can no longer be read", command.process_id)
                    self._forget(command)

    def _attend_to(self, command: RunningCommand, on_exit: Callable[[RunningCommand], None] | None) -> None:
        was_running = not command.exited
        command.absorb()
        if not command.exited:
            return
        if not command.output_open:
            self._forget(command)
        if was_running and on_exit:
            on_exit(command)


_current: BackgroundReader | None = None


def of_this_process() -> BackgroundReader:
    """The reader of this process; a forked child, which has no threads but its own, gets a new one."""
    global _current  # noqa: PLW0603 - there is one per process by nature
    if _current is None or _current.pid != os.getpid():
        _current = BackgroundReader()
    return _current
