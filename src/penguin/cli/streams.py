"""Standard input and output that are closed, broken, or cannot show each character."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

_READER_LEFT = (errno.EPIPE, errno.EIO, errno.ECONNRESET)
"""A pipe whose reader ended, a terminal that was closed, a socket as output whose peer is gone."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ReaderLeft(Exception):
    """Whoever read our output has had enough: no fault of ours, and no failure."""


def prepare() -> None:
    """Make the three standard streams usable whatever the caller handed over; once, before anything is opened."""
    _fill_closed_descriptors()
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal lacks is a question mark, not a traceback in the middle of an answer.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _fill_closed_descriptors() -> None:
    # With `<&-` the next file to be opened would become standard input, and a tool's output could land in it.
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def reader_left(error: OSError) -> bool:
    """Whether a write failed because nobody reads any more; a file that cannot be read has a name."""
    return error.errno in _READER_LEFT and error.filename is None


def output_full(error: OSError) -> bool:
    """Whether a write failed because what our output goes to is full; any other file has a name."""
    return error.errno in _FULL and error.filename is None


def flushed(status: int) -> int:
    """Bring out what is buffered while a reader that left can still be met; Python's own exit would complain.

    Raises:
        ReaderLeft: nobody reads any more.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        if reader_left(error):
            raise ReaderLeft from error
        raise
    return status


def abandon_output() -> None:
    """Let everything that is still to be written go nowhere."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if _is_broken(stream):
            os.dup2(nothing, stream.fileno())
    os.close(nothing)


def _is_broken(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return True
    return False
