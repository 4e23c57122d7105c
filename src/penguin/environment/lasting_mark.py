"""The second custody mark of a command, which ``env -i`` does not take away (N9): a limit that limits nothing."""

from __future__ import annotations

import secrets
from pathlib import Path

from penguin.environment import custody_guard

_HIGHEST = 2**62
_LOWEST = 2**61  # above every soft limit, which holds the numbers of the owner and of the command


def new_token() -> str:
    """The part of a scope that names a harness: 16 digits, the hard limit of its commands.

    A harness inside a command of another one gets a lower one than that has: without privileges a hard limit can only
    be lowered. The outer one then sees a process with a cleared environment only as long as it has a parent; the guard
    of the inner one goes on seeing it.
    """
    outer = custody_guard.scope_in_limit(0).partition(".")[0]
    ceiling = min(int(outer, 16), _HIGHEST) if outer else _HIGHEST
    return f"{_LOWEST + secrets.randbelow(max(ceiling - _LOWEST, 1)):016x}"


def running(arguments: list[str], scope: str, shell: str) -> list[str]:
    """What to start so that ``arguments`` run in ``scope``; costs half a millisecond.

    The shell sets the limits for itself and becomes the program. Setting them from outside would be too late for what
    a command starts at once, and between fork and exec no code of ours runs.
    """
    if not custody_guard.available():
        return arguments
    token, owner, command = scope.rstrip(".").split(".")
    is_bash = Path(shell).name == "bash"
    # -p keeps it from running $BASH_ENV, which the command's own shell does; other shells do not know the letter x.
    letter, options = ("x", ["-p"]) if is_bash else ("w", [])
    setting = f'{{ ulimit -S{letter} "$1" && ulimit -H{letter} "$2"; }} 2>/dev/null; shift 2; exec "$@"'
    limits = [str(int(owner) << 32 | int(command)), str(int(token, 16))]
    return [shell, *options, "-c", setting, shell, *limits, *arguments]
