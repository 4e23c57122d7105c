"""Tell a command that waits for somebody to type from one that computes (N10). Linux only, and best effort."""

from __future__ import annotations

import platform
import re
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from penguin.environment.open_sockets import Sockets, descriptor_names, socket_inode
from penguin.environment.running_command import RunningCommand


class _Numbers(NamedTuple):
    """The numbers of the system calls in which a thread waits."""

    read: int
    select: tuple[int, ...]
    poll: tuple[int, ...]
    poll_in_ms: int  # the one of them that takes its time limit as a number
    epoll: tuple[int, ...]
    lock: int
    signal: int


_GENERIC = _Numbers(read=63, select=(72,), poll=(73,), poll_in_ms=-1, epoll=(22,), lock=98, signal=137)
_NUMBERS = {
    "x86_64": _Numbers(read=0, select=(23, 270), poll=(7, 271), poll_in_ms=7, epoll=(232, 281), lock=202, signal=128),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
}.get(platform.machine())  # an unknown machine means that nothing is recognised

_LONG_MS = 1_000  # a loop that wakes up more often has something to do; Node's own timers take some seconds
_FOR_EVER = 0xFFFFFFFF
_EPOLLIN = 0x1
_WATCHED = re.compile(r"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", re.MULTILINE)
_WAKERS = {"anon_inode:[eventfd]", "anon_inode:[signalfd]"}


def waits_for_input(command: RunningCommand) -> bool:
    """Whether a process of the command does nothing but wait for what we can type. Blocks briefly.

    One of its threads is blocked on the terminal or pipe we write to: in a read, in a select or poll on that
    descriptor alone (as line editors do), or in an epoll that else watches only what the process itself can wake it
    with (as Node and asyncio do). One that watches a listening socket is not recognised: every server does. A
    connection it made may be idle or not; with one it is recognised when it has written a prompt, as ``npm init`` has
    while it looks for news. And its other threads are idle: while one reads ahead, another may compute.
    """
    names = command.input_names()
    if not names or _NUMBERS is None:
        return False
    asks = bool(command.text.prompt.strip())
    return any(_Process(each.pid, _NUMBERS, asks=asks).only_reads(names) for each in command.members())


class _Process:
    """What /proc tells of a process at this moment."""

    def __init__(self, pid: int, numbers: _Numbers, *, asks: bool) -> None:
        self.path = Path("/proc", str(pid))
        self.numbers = numbers
        self._pid = pid
        self._asks = asks
        self._sockets = Sockets(pid)

    def only_reads(self, names: set[str]) -> bool:
        threads = [_Thread(self, path) for path in (self.path / "task").glob("*")]
        others = [thread for thread in threads if not thread.reads(names)]
        return len(others) < len(threads) and all(thread.is_idle() for thread in others)

    def name_of(self, descriptor: int) -> str:
        """What stands behind a descriptor, as /proc calls it."""
        try:
            return str((self.path / "fd" / str(descriptor)).readlink())
        except OSError:
            return ""

    @cached_property
    def _names(self) -> list[str]:
        return descriptor_names(self._pid)

    def watched_by(self, descriptor: int) -> dict[str, int]:
        """What an epoll descriptor watches, and for which events."""
        try:
            told = (self.path / "fdinfo" / str(descriptor)).read_text()
        except OSError:
            return {}
        return {self.name_of(int(number)): int(events, 16) for number, events in _WATCHED.findall(told)}

    def is_quiet(self, name: str) -> bool:
        """Whether what stands behind a descriptor brings no work: nobody outside this process writes there."""
        inode = socket_inode(name)
        if inode is None:
            return name in _WAKERS or (name.startswith("pipe:") and self._names.count(name) > 1)
        return self._is_own_pair(inode) or (self._asks and self._sockets.is_outgoing(inode))

    def _is_own_pair(self, inode: int) -> bool:
        # Nothing tells which the other end is, but the two are made together.
        pairs = self._sockets.nameless_pairs
        ends = [near for near in (inode - 1, inode + 1) if near in pairs and f"socket:[{near}]" in self._names]
        return inode in pairs and bool(ends)


class _Thread:
    """In which system call a thread waits, and for what."""

    def __init__(self, process: _Process, path: Path) -> None:
        self._process = process
        self._is_first = path.name == process.path.name
        try:
            self._call, *self._arguments = [int(word, 0) for word in (path / "syscall").read_text().split()]
        except (OSError, ValueError):  # it has ended, is running, or may not be looked at
            self._call, self._arguments = -1, []

    def reads(self, names: set[str]) -> bool:
        match self._process.numbers, self._arguments:
            case numbers, [first, *_] if self._call == numbers.read:
                return self._process.name_of(first) in names
            case numbers, [first, *_] if self._call in numbers.select:
                return self._process.name_of(first - 1) in names  # it is the highest descriptor plus one
            case numbers, [_, 1, *_] if self._call in numbers.poll:
                # Which one is in the program's memory; we take it for standard input.
                return self._process.name_of(0) in names
            case numbers, [first, _, _, limit, *_] if self._call in numbers.epoll and _is_long(limit):
                watched = self._process.watched_by(first)
                awaited = {name for name, events in watched.items() if name in names and events & _EPOLLIN}
                return bool(awaited) and self._all_quiet(watched.keys() - names)
            case _:
                return False

    def is_idle(self) -> bool:
        """Whether it can only be woken by another thread of its process, or by a signal."""
        match self._process.numbers, self._arguments:
            case numbers, [first, *_] if self._call == numbers.read:
                return self._all_quiet({self._process.name_of(first)})
            case numbers, [first, _, _, limit, *_] if self._call in numbers.epoll and _is_long(limit):
                return self._all_quiet(set(self._process.watched_by(first)))
            case numbers, [_, _, limit, *_] if self._call in numbers.poll and not self._is_first:
                return _is_long(limit) if self._call == numbers.poll_in_ms else limit == 0
            case numbers, _:
                return self._call in {numbers.lock, numbers.signal}

    def _all_quiet(self, names: set[str]) -> bool:
        return all(map(self._process.is_quiet, names))


def _is_long(limit: int) -> bool:
    """Whether a time limit in milliseconds, as a register holds it, is for ever or a long time."""
    return limit & _FOR_EVER >= _LONG_MS
