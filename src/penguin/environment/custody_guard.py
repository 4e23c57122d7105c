"""Find and end every process that carries a custody mark (N9).

The harness imports this module, and runs it once more as a process of its own: ``python -I -S custody_guard.py``,
the guard, which outlives a harness that is killed. So it uses the standard library only, and nothing of Penguin.

A process belongs to a scope when its mark lies in that scope, when it is in the session of such a process, or when it
descends from one. ``setsid`` and double forks change none of that. There are two marks: a variable in the environment,
and for commands a resource limit that limits nothing, which stays when the environment is cleared (``env -i``,
``sudo``) or overwritten in place (servers do, for a title in the list of processes).

What escapes: a process that runs as another user whom we may not signal; a command as root that changes the limit and
clears its environment, leaves the session and loses its parent; a child that is no command (an MCP server) and does
the latter; and what a command asks somebody else to run (``systemd-run``, ``at``, a container daemon).
``PENGUIN_CUSTODY= setsid -f …`` detaches something on purpose: an empty variable stands above the limit.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

VARIABLE = "PENGUIN_CUSTODY"
"""Holds the marks of all harnesses above, outermost first, joined by ``:``."""

GRACE = 2.0
"""Seconds between TERM and KILL."""
_KILL_PATIENCE = 5.0  # after KILL only a process in uninterruptible sleep is left, and nothing ends that
_PREFIX = VARIABLE.encode() + b"="
_UNUSED_LIMIT = 10  # RLIMIT_LOCKS: Linux keeps it for every process and has not looked at it since 2.4
_PROC = "/proc"


class Process(NamedTuple):
    """A live process; ``started`` (clock ticks since boot) tells it from a later one with the same number."""

    pid: int
    parent: int
    session: int
    started: int
    command: str

    @property
    def identity(self) -> tuple[int, int]:
        """The same for two looks at one process, which may have got another name or parent between them."""
        return self.pid, self.started


Find: TypeAlias = Callable[[], "list[Process]"]
"""Looks at the process table and returns those that are to end."""


def available() -> bool:
    """Whether this system shows the environment of processes; elsewhere only process groups are ended."""
    return Path(_PROC, "self", "environ").exists()


# ---------------------------------------------------------------- finding


def members(
    scope: str, sessions: Iterable[int] = (), harness_session: int | None = None, *, above: int = 0
) -> list[Process]:
    """Every live process in ``scope`` or in one of ``sessions``, and their descendants; never the caller itself.

    ``harness_session`` (default: the caller's) is the session the harness was started in. Only numbers ``above`` one
    are looked at, which is cheap and misses what was started after the numbers began again.
    """
    pids = [pid for pid in _all_pids() if pid > above]
    marked = {pid for pid in pids if _is_marked(pid, scope)}
    wanted_sessions = set(sessions)
    if not marked and not wanted_sessions:
        return []
    table = {process.pid: process for process in map(_look_at, pids) if process}
    wanted_sessions |= {table[pid].session for pid in marked if pid in table}
    # A marked process that was started without a session of its own must not take the user's terminal with it.
    wanted_sessions.discard(os.getsid(0) if harness_session is None else harness_session)
    found = {pid for pid, process in table.items() if pid in marked or process.session in wanted_sessions}
    return [table[pid] for pid in sorted(_with_descendants(found & table.keys(), table) - {os.getpid()})]


def still_alive(processes: Iterable[Process]) -> list[Process]:
    """Those that have not ended, as they look now."""
    seen = ((each, _look_at(each.pid)) for each in processes)
    return [now for each, now in seen if now and now.started == each.started]


def joined(*several: Iterable[Process]) -> list[Process]:
    """Each process once, as it looked last."""
    return list({each.identity: each for found in several for each in found}.values())


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - half the time of Path
    except OSError:
        return []


def _is_marked(pid: int, scope: str) -> bool:
    environment = _read(f"{_PROC}/{pid}/environ")
    if _PREFIX in environment:
        for item in environment.split(b"\0"):
            if item.startswith(_PREFIX):
                return any(mark.startswith(scope.encode()) for mark in item[len(_PREFIX) :].split(b":"))
    return scope_in_limit(pid).startswith(scope)


def scope_in_limit(pid: int) -> str:
    """The scope that the limit of a process names, 0 is the caller; empty when it names none or may not be read."""
    try:
        soft, hard = resource.prlimit(pid, _UNUSED_LIMIT)
    except (OSError, AttributeError):
        return ""
    return f"{hard:016x}.{soft >> 32}.{soft & 0xFFFFFFFF}." if 0 < soft < hard else ""


def _look_at(pid: int) -> Process | None:
    # The name stands in parentheses and may hold spaces and parentheses itself.
    name, _, rest = _read(f"{_PROC}/{pid}/stat").rpartition(b")")
    fields = rest.split()
    if not fields or fields[0] in {b"Z", b"X"}:
        return None
    command = name.partition(b"(")[2].decode(errors="replace")
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), command)


def _with_descendants(found: set[int], table: dict[int, Process]) -> set[int]:
    found = set(found)
    while more := {pid for pid, process in table.items() if process.parent in found} - found:
        found |= more
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - half the time of Path, and a scan does this for every process
            return file.read()
    except OSError:
        return b""


# ---------------------------------------------------------------- ending


def end_all(find: Find, grace: float = GRACE) -> bool:
    """End what ``find`` finds: TERM, after ``grace`` seconds KILL, again until nothing is left.

    Blocks for up to ``grace`` plus five seconds; ``False`` when something could not be ended.
    """
    deadline = time.monotonic() + grace
    asked: set[tuple[int, int]] = set()
    while remaining := find():
        now = time.monotonic()
        if now > deadline + _KILL_PATIENCE:
            return False
        if now >= deadline:
            _signal_and_wait(remaining, signal.SIGKILL, 0.5)
        else:
            fresh = {each for each in remaining if each.identity not in asked}
            asked |= {each.identity for each in fresh}
            _signal_and_wait(remaining, signal.SIGTERM, deadline - now, fresh)
    return True


def _signal_and_wait(
    processes: list[Process], number: signal.Signals, timeout: float, only: set[Process] | None = None
) -> None:
    """Signal the processes (or ``only`` some of them), then wait until all are gone or ``timeout`` seconds passed."""
    with contextlib.ExitStack() as opened:
        poller = select.poll()
        waiting = 0
        for process in processes:
            descriptor = _open(process)
            if descriptor is None:
                continue
            opened.callback(os.close, descriptor)
            poller.register(descriptor, select.POLLIN)
            waiting += 1
            if only is None or process in only:
                _send(descriptor, number)
        _wait_for_exits(poller, waiting, time.monotonic() + timeout)


def _open(process: Process) -> int | None:
    """A descriptor of exactly this process: numbers are reused, descriptors are not."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return None
    seen = _look_at(process.pid)
    if seen is None or seen.started != process.started:
        os.close(descriptor)
        return None
    return descriptor


def _send(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(descriptor, number)
        if number is not signal.SIGKILL:
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # a stopped process would never see it


def _wait_for_exits(poller: select.poll, waiting: int, deadline: float) -> None:
    while waiting and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            waiting -= 1


# ---------------------------------------------------------------- without /proc


def end_group(pid: int, grace: float = GRACE) -> bool:
    """End one process group: TERM, after ``grace`` seconds KILL; blocks. ``False`` when something is left."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 1.0)):
        deadline = time.monotonic() + patience
        try:
            os.killpg(pid, number)
            while time.monotonic() < deadline:
                os.killpg(pid, 0)
                time.sleep(0.02)
        except OSError:
            return True
    return False


def start_of(pid: int) -> str | None:
    """When a process started, in some notation without spaces; ``None`` when there is no such process."""
    if available():
        seen = _look_at(pid)
        return str(seen.started) if seen else None
    import subprocess  # noqa: PLC0415 - the guard starts with the first command, and this takes as long as the rest

    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S603, S607 - fixed words and a number
    return "_".join(asked.stdout.decode(errors="replace").split()) or None


# ---------------------------------------------------------------- the ledger of harnesses


class Entry(NamedTuple):
    """What a harness notes about itself, and about the process groups it leads where there is no /proc."""

    scope: str
    pid: int
    started: str
    session: int
    place: str
    groups: tuple[tuple[int, str], ...]

    def end(self) -> bool:
        """End everything the harness was answerable for."""
        if available():
            return end_all(lambda: members(self.scope, harness_session=self.session))
        ended = [end_group(pid) for pid, started in self.groups if start_of(pid) == started]
        return all(ended)


def enter(ledger: Path, scope: str) -> Path:
    """Note in the directory ``ledger`` that this process is answerable for ``scope``; returns the entry's file."""
    ledger.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = ledger / scope.rstrip(".")
    file.write_text(f"{os.getpid()} {start_of(os.getpid())} {os.getsid(0)} {_this_place()}\n")
    return file


def note_group(file: Path, pid: int) -> None:
    """Add a process group to the entry; needed only where :func:`available` is false."""
    with file.open("a") as entry:
        entry.write(f"{pid} {start_of(pid)}\n")


def read_entry(file: Path) -> Entry:
    """The entry in ``file``.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not an entry.
    """
    first, *rest = file.read_text().splitlines() or [""]
    pid, started, session, place = first.split(maxsplit=3)
    groups = tuple((int(number), start) for number, start in (line.split() for line in rest))
    return Entry(f"{file.name}.", int(pid), started, int(session), place, groups)


def end_left_behind(ledger: Path) -> int:
    """End what harnesses left that are gone from this host; returns how many of them there were."""
    swept = 0
    for file in sorted(ledger.iterdir()) if ledger.is_dir() else []:
        with contextlib.suppress(OSError, ValueError):
            entry = read_entry(file)
            # Of another host, container or boot: its processes cannot be seen from here.
            if entry.place == _this_place() and start_of(entry.pid) != entry.started:
                swept += 1
                if entry.end():
                    file.unlink(missing_ok=True)
    return swept


def _this_place() -> str:
    boot = _read(f"{_PROC}/sys/kernel/random/boot_id").decode().strip()
    try:
        namespace = str(Path(_PROC, "self", "ns", "pid").readlink())
    except OSError:
        namespace = ""
    return f"{os.uname().nodename}/{boot}/{namespace}"


# ---------------------------------------------------------------- the guard


def main(scope: str, harness: int, session: int, ledger: Path | None) -> None:
    """End what earlier harnesses left, wait for the end of this one, and end everything in its ``scope``."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    if ledger:
        end_left_behind(ledger)
    _wait_for_the_end_of(harness)
    file = ledger / scope.rstrip(".") if ledger else None
    try:
        entry = read_entry(file) if file else Entry(scope, harness, "", session, "", ())
    except (OSError, ValueError):
        entry = Entry(scope, harness, "", session, "", ())
    if entry.end() and file:
        file.unlink(missing_ok=True)


def _wait_for_the_end_of(harness: int) -> None:
    poller = select.poll()
    poller.register(0, select.POLLIN | select.POLLHUP)
    # The pipe alone would not do: a process forked from the harness (multiprocessing) holds a copy of its other end.
    with contextlib.suppress(OSError, AttributeError):
        poller.register(os.pidfd_open(harness), select.POLLIN)
    # Our parent is somebody else when the harness ended before the line above was reached.
    while os.getppid() == harness and not poller.poll():
        pass


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)  # noqa: PLR2004
