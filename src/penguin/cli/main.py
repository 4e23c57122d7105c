"""Where the process starts and ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from penguin.cli import streams

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    0 completed, 1 failed, 2 usage or configuration, 3 a limit was reached, 4 denied because nobody was
    there to ask, 130 interrupted.

    Example::

        sys.exit(main(["run", "-m", "List the files here"]))
    """
    streams.prepare()
    given = list(sys.argv[1:] if arguments is None else arguments)
    status = 0
    try:
        status = _status(given)
        return streams.flushed(status)
    except (streams.ReaderLeft, OSError) as error:
        status = _status_without_output(error, status)
        streams.abandon_output()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED


def _status_without_output(error: streams.ReaderLeft | OSError, status: int) -> int:
    """A reader that left is no failure; a full disk is one, and was told if the command met it itself."""
    if isinstance(error, streams.ReaderLeft) or streams.reader_left(error):
        return 0
    if not streams.output_full(error):
        raise error
    from penguin.cli.complaints import explain  # noqa: PLC0415 - as below

    return status or explain(error, debug=False)


def _status(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        # Before click is imported: asking for the version must cost no more than starting Python.
        from penguin._version import VERSION  # noqa: PLC0415

        print(f"penguin {VERSION}")
        return 0
    from penguin.cli.app import run_command_line  # noqa: PLC0415

    return run_command_line(arguments)
