"""What a server says beside the protocol: kept for the report and the log, never shown as output."""

from __future__ import annotations

import logging

LOUD_LINES = 5
"""Lines of junk that are logged as warnings; what follows is only for a debug log."""
_TAIL_BYTES = 4_096
_TAIL_LINES = 3
_SHOWN = 200
_log = logging.getLogger("penguin.environment.mcp")


class ServerNotes:
    """Collects junk on standard output, the end of standard error, how the process ended, what HTTP answered."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.ending: str | None = None
        """How the process of a stdio server ended, in words."""
        self.http_status: int | None = None
        """The status of the last request when it was an error."""
        self.problem: str | None = None
        """Why the transport gave up, when it did."""
        self._junk = 0
        self._tail = b""

    def junk(self, line: bytes) -> None:
        """Log a line of standard output that is no message; it is skipped."""
        self._junk += 1
        level = logging.WARNING if self._junk <= LOUD_LINES else logging.DEBUG
        text = line[:_SHOWN].decode(errors="replace")
        _log.log(level, "MCP server %s wrote a line that is no message; skipped: %r", self.server, text)

    def stderr(self, chunk: bytes) -> None:
        """Keep the end of standard error."""
        _log.debug("MCP server %s, stderr: %s", self.server, chunk[:_TAIL_BYTES].decode(errors="replace").rstrip())
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    @property
    def last_words(self) -> str:
        """The last few lines of standard error on one line, for a report."""
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines()]
        return " / ".join(line[:_SHOWN] for line in [line for line in lines if line][-_TAIL_LINES:])
