"""``--debug`` and ``PENGUIN_LOG``: the library's log in a file, without keys."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

LOG_VARIABLE = "PENGUIN_LOG"


class DebugSwitch:
    """Whether ``--debug`` was given; owns the log file.

    ``PENGUIN_LOG`` alone writes the file too, but shows no tracebacks.
    """

    def __init__(self) -> None:
        self.on = False
        self._handler: logging.Handler | None = None
        named = os.environ.get(LOG_VARIABLE)
        if named:
            self._write_log(Path(named).expanduser())

    def turn_on(self) -> None:
        """Show tracebacks from now on, and write the log."""
        self.on = True
        if self._handler is None:
            self._write_log(_default_path())

    def close(self) -> None:
        """Finish the file."""
        if self._handler is not None:
            from penguin.cli.log_file import stop_logging  # noqa: PLC0415 - as below

            stop_logging(self._handler)

    def _write_log(self, path: Path) -> None:
        # Nothing on the ordinary path needs logging configured, and it costs 20 ms.
        from penguin.cli.log_file import log_to  # noqa: PLC0415

        try:
            self._handler = log_to(path)
        except OSError as error:
            print(f"penguin: {path}: cannot write the log: {error.strerror}. Going on without it.", file=sys.stderr)
            return
        print(f"penguin: logging to {path}", file=sys.stderr)


def _default_path() -> Path:
    from penguin.state.paths import DataRoot  # noqa: PLC0415

    return DataRoot.from_environment(os.environ).path / "debug.log"
