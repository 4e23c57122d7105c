"""Tell a command that waits for somebody to type from one that computes (N10). Linux only, and best effort."""

from __future__ import annotations

import platform
from pathlib import Path

from penguin.environment.running_command import RunningCommand

# Numbers of system calls; an unknown machine means that nothing is recognised.
_READ = {"x86_64": 0, "aarch64": 63, "riscv64": 63}.get(platform.machine())
_SELECT = {"x86_64": (23, 270), "aarch64": (72,), "riscv64": (72,)}.get(platform.machine(), ())
_POLL = {"x86_64": (7, 271), "aarch64": (73,), "riscv64": (73,)}.get(platform.machine(), ())


def waits_for_input(command: RunningCommand) -> bool:
    """Whether a process of the command is blocked reading the terminal or pipe we can type into. Blocks briefly.

    Recognised are a plain read, and a select or poll on that descriptor alone, as line editors do. One that waits for
    several descriptors at once is not: every server does.
    """
    names = command.input_names()
    return bool(names) and any(_reads(each.pid, names) for each in command.members())


def _reads(pid: int, names: set[str]) -> bool:
    return any(_is_blocked_on(task, names) for task in Path("/proc", str(pid), "task").glob("*"))


def _is_blocked_on(task: Path, names: set[str]) -> bool:
    try:
        words = (task / "syscall").read_text().split()
        number, first, second = int(words[0]), int(words[1], 16), int(words[2], 16)
        if number == _READ:
            descriptor = first
        elif number in _SELECT:  # the first argument is the highest descriptor plus one
            descriptor = first - 1
        elif number in _POLL and second == 1:  # which one is in the program's memory; we take it for standard input
            descriptor = 0
        else:
            return False
        return str((task / "fd" / str(descriptor)).readlink()) in names
    except (OSError, ValueError, IndexError):  # it has ended, is running, or may not be looked at
        return False
