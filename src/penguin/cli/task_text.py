"""The task: from ``-m``, from standard input, or from both."""

from __future__ import annotations

import os
import stat
import sys
from typing import Final

import anyio
import click

MOST_INPUT: Final = 8 * 1024 * 1024
"""Bytes of standard input that may be attached; no model reads more."""
PATIENCE: Final = 10.0
"""Seconds to wait for the first byte when the task is known from ``-m``."""
_MENTION_AFTER: Final = 1.0
_CHUNK: Final = 65_536
_NO_TASK: Final = "there is no task: give it with -m TEXT, or pipe it into `penguin run`"


def refuse_missing_task(message: str | None, *, attach: bool | None) -> None:
    """Complain before anything is loaded when there can be no task.

    Raises:
        click.UsageError: the text is empty, or there is none and standard input is not read.
    """
    if message is not None and not message.strip():
        raise click.UsageError("the text of -m is empty; say what is to be done")
    if message is None and not _is_read(attach):
        raise click.UsageError(_NO_TASK)


async def task_messages(message: str | None, *, attach: bool | None) -> list[str]:
    """What the user says: the text of ``-m``, then what came on standard input.

    Args:
        message: the text of ``-m``.
        attach: ``True`` waits for standard input as long as it takes, ``False`` never looks at it, ``None``
            reads it when it is no terminal.

    Raises:
        click.UsageError: there is no task, or standard input is too much or stays silent.
    """
    attached = ""
    if _is_read(attach):
        _refuse_directory()
        if message is not None and attach is None:
            await _wait_for_first_byte()
        # No terminal and no command takes a NUL, so nobody means one.
        attached = (await _read_all()).decode("utf-8-sig", "replace").replace("\0", "")
    said = [text for text in (message, attached) if text is not None and text.strip()]
    if not said:
        raise click.UsageError(_NO_TASK)
    return said


def _is_read(attach: bool | None) -> bool:  # noqa: FBT001 - it has three values
    return not os.isatty(0) if attach is None else attach


def _refuse_directory() -> None:
    if stat.S_ISDIR(os.fstat(0).st_mode):
        raise click.UsageError("standard input is a directory; pipe text into penguin, or name the directory in -m")


async def _wait_for_first_byte() -> None:
    """Wait for input that may never come: whoever started us may have left a pipe open that nobody writes to.

    Ignoring it would lose the input of a slow command without a word, waiting on would hang: so it ends in
    an error that names the two ways out.
    """
    with anyio.move_on_after(_MENTION_AFTER) as briefly:
        await _readable()
    if not briefly.cancelled_caught:
        return
    print("penguin: waiting for standard input (--no-stdin starts without it)", file=sys.stderr, flush=True)
    with anyio.move_on_after(PATIENCE - _MENTION_AFTER) as longer:
        await _readable()
    if longer.cancelled_caught:
        raise click.UsageError(
            f"standard input is a pipe and nothing came through it for {PATIENCE:g} s. Pass --no-stdin (or"
            " </dev/null) to start without it, or --stdin to wait for it as long as it takes"
        )


async def _readable() -> None:
    # A blocking read would leave Ctrl-C without effect. Files and /dev/null cannot be waited for, and need not be.
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0):
        await anyio.wait_readable(0)


async def _read_all() -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await _read():
        pieces.append(piece)
        size += len(piece)
        if size > MOST_INPUT:
            raise click.UsageError(
                f"standard input is longer than {MOST_INPUT // 1024 // 1024} MiB; save it to a file and name the"
                " file in -m, so that the agent can read what it needs"
            )
    return b"".join(pieces)


async def _read() -> bytes:
    try:
        await _readable()
        return os.read(0, _CHUNK)
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {error.strerror}") from error
