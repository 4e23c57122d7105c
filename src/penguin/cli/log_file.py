"""The log file itself."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from penguin.cli.redaction import redacted

_library = logging.getLogger("penguin")


class RedactingFormatter(logging.Formatter):
    """A line with time, level and logger; redacted as a whole, so that tracebacks are covered too."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return redacted(super().format(record))


def log_to(path: Path) -> logging.Handler:
    """Append the library's log to ``path`` (0600).

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    handler = logging.FileHandler(path, encoding="utf-8", errors="replace")
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    _library.addHandler(handler)
    _library.setLevel(logging.DEBUG)
    return handler


def stop_logging(handler: logging.Handler) -> None:
    """Finish the file."""
    _library.removeHandler(handler)
    handler.close()
