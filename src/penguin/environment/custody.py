"""What this harness process started, it ends: marks for its children and a guard for the day it is killed (N9)."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from penguin.environment import custody_guard, lasting_mark
from penguin.environment.custody_guard import VARIABLE, Process, end_left_behind, members, still_alive

__all__ = [
    "VARIABLE",
    "Custody",
    "Process",
    "end_group",
    "end_left_behind",
    "members",
    "of_this_process",
    "still_alive",
]


class Custody:
    """The mark of one harness process; get it with :func:`of_this_process`.

    A scope is a prefix of marks: the whole harness, one owner in it (a session, say), or one command. Every scope
    ends with a dot, so that number 1 does not cover number 12.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.scope = f"{lasting_mark.new_token()}."
        self._outer = os.environ.get(VARIABLE, "")
        self._numbers = itertools.count(1)
        self.guard: int | None = None  # its process id, once it runs
        self._lifeline: int | None = None
        self._entry: Path | None = None

    def new_scope(self, within: str | None = None) -> str:
        """A scope nobody has used, for one owner, or for one command ``within`` an owner's scope."""
        return f"{within or self.scope}{next(self._numbers)}."

    def mark(self, scope: str) -> dict[str, str]:
        """The environment entry that puts a process into ``scope``, and into those of the harnesses above this one."""
        return {VARIABLE: f"{self._outer}:{scope}" if self._outer else scope}

    def start_guard(self, ledger: Path | None = None) -> None:
        """Start the process that cleans up when this one is killed; only the first call does something.

        Call it before the first child is started. ``ledger`` is a directory where harness processes are noted, so that
        a later guard can finish what an earlier one could not. Costs the caller about a millisecond.
        """
        if self.guard is not None or not sys.executable:
            return
        if ledger is not None:
            self._entry = self._entered(ledger)
            ledger = ledger if self._entry else None
        theirs, self._lifeline = os.pipe()
        try:
            self.guard = self._spawn_guard(theirs, ledger)
        finally:
            os.close(theirs)

    def _entered(self, ledger: Path) -> Path | None:
        try:
            return custody_guard.enter(ledger, self.scope)
        except OSError:  # a read-only home must not keep commands from running; the guard works without it
            return None

    def note(self, pid: int) -> None:
        """Remember a child that leads its own group; does something only where marks cannot be read."""
        if self._entry is not None and not custody_guard.available():
            custody_guard.note_group(self._entry, pid)

    def _spawn_guard(self, lifeline: int, ledger: Path | None) -> int:
        arguments = [sys.executable, "-I", "-S", custody_guard.__file__, self.scope, str(self.pid), str(os.getsid(0))]
        # posix_spawn, not Popen: a Popen object warns when it is collected before its process ended, and this
        # process is meant to be there until the very end.
        return os.posix_spawn(
            sys.executable,
            [*arguments, str(ledger)] if ledger else arguments,
            {VARIABLE: self._outer} if self._outer else {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, lifeline, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
        )


def end_group(pid: int, scope: str, grace: float) -> bool:
    """End the session led by ``pid`` (an unreaped child of this process) and everything in ``scope``; blocks.

    ``False`` when something could not be ended. Without /proc only the process group is reached.
    """
    if custody_guard.available():
        return custody_guard.end_all(lambda: members(scope, (pid,)), grace)
    return custody_guard.end_group(pid, grace)


_current: Custody | None = None


def of_this_process() -> Custody:
    """The custody of this process; a forked child gets one of its own."""
    global _current  # noqa: PLW0603 - there is one per process by nature
    if _current is None or _current.pid != os.getpid():
        _current = Custody()
    return _current
