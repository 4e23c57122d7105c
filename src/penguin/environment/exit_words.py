"""How a command ended, in words for the model."""

from __future__ import annotations

import signal

NOT_RUN = 256
"""Stands for an exit code, all of which are lower: the command did not begin, since its sandbox could not be set up."""


def exit_words(returncode: int) -> str:
    """``exit code: 1``, or the signal's name; ``returncode`` is negative for a death by signal.

    Example::

        exit_words(-9)   # "killed by SIGKILL"
        exit_words(139)  # "exit code: 139, a process in it was killed by SIGSEGV"
    """
    if returncode == NOT_RUN:
        return "the sandbox could not be set up; the command was not run"
    if returncode < 0:
        return f"killed by {_signal_name(-returncode)}"
    # A shell reports the death of its last process this way. Small numbers (129, 130) are used by programs too.
    if returncode - 128 in _FATAL:
        return f"exit code: {returncode}, a process in it was killed by {_signal_name(returncode - 128)}"
    return f"exit code: {returncode}"


_FATAL = frozenset(
    {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM}
)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
