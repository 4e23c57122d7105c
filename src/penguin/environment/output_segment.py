"""The output of one call as it appears on the stream: start, deltas, stop, complete message (P8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from penguin.environment.masking import Masker, Secrets
from penguin.environment.tool import DEFAULT_MAX_OUTPUT_LENGTH
from penguin.environment.truncation import Truncation
from penguin.protocol.blocks import NO_OUTPUT
from penguin.protocol.builders import partial_tool_call_output, tool_call_output
from penguin.protocol.events import StopReason
from penguin.protocol.interfaces import Emit
from penguin.protocol.messages import scrub

LEAST_OF_A_LINE = 2_000
"""Characters of a closing line (a note, an error) that are shown however much of the output was before it."""


class Ending(Struct, frozen=True):
    """How a call ended. ``marker`` is the line that says why it did not complete; it comes last."""

    stop_reason: StopReason = "completed"
    marker: str | None = None
    note: str | None = None
    images: Sequence[str] = ()


class OutputSegment:
    """Turns written text into a well-formed segment; every method is synchronous and none raises for trouble.

    That it never awaits is the point: after a scope is cancelled every await raises again, and the segment must
    still be closed. ``remark`` is shown the result and may have a line to add to it;
    ``secrets`` are masked in all of it, the archive included.
    """

    def __init__(
        self,
        tool_call_id: str,
        emit: Emit,
        truncation: Truncation,
        remark: Callable[[str], str | None] = lambda _result: None,
        secrets: Secrets | None = None,
    ) -> None:
        self._id = tool_call_id
        self._emit = emit
        self._truncation = truncation
        self._remark = remark
        self._secrets = secrets
        self._masker = Masker(secrets) if secrets else None
        self._notes: list[str] = []
        self._visible = False
        self.closed = False

    def open(self) -> None:
        """Begin the segment."""
        self._emit(partial_tool_call_output("start", self._id))

    def write(self, text: str) -> None:
        """Stream the next piece, as far as it fits; ignored after the end.

        Raises:
            TypeError: ``text`` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"the output of a tool is text, not {type(text).__name__}")
        if self.closed or not text:
            return
        self._show(self._masker.feed(scrub(text)) if self._masker else scrub(text))

    def _show(self, text: str) -> None:
        admitted = self._truncation.admit(text) if text else ""
        if admitted:
            self._visible = self._visible or not admitted.isspace()
            self._emit(partial_tool_call_output("delta", self._id, admitted))

    def add_note(self, text: str) -> None:
        """Keep a line for the end of the output, where no cut can reach it."""
        if not isinstance(text, str):
            raise TypeError(f"a note is text, not {type(text).__name__}")
        if text and not self.closed:
            self._notes.append(scrub(text))

    def close(self, ending: Ending) -> None:
        """Finish the segment and emit the complete message; only the first call counts."""
        if self.closed:
            return
        if self._masker:
            self._show(self._masker.flush())
        self.closed = True
        head = self._truncation.head
        closing = self._closing_lines(head, ending)
        reason = None if ending.stop_reason == "completed" else ending.stop_reason
        images = list(ending.images) or None
        if closing:
            self._emit(partial_tool_call_output("delta", self._id, closing))
        if images:
            self._emit(partial_tool_call_output("delta", self._id, images=images))
        self._emit(partial_tool_call_output("stop", self._id, stop_reason=reason))
        self._emit(tool_call_output(head + closing, self._id, images=images, stop_reason=reason))

    def _closing_lines(self, head: str, ending: Ending) -> str:
        result = f"{head}{ending.note or ''}{ending.marker or ''}"
        own_lines = [ending.note and scrub(ending.note), self._remark(result), ending.marker]
        lines = [self._bounded(line) for line in (*self._notes, *own_lines) if line]
        closing = "\n".join(line for line in (self._truncation.notice(), *lines) if line)
        if not self._visible and not closing.strip():
            closing = NO_OUTPUT
        return f"\n{closing}" if closing and head and not head.endswith("\n") else closing

    def _bounded(self, line: str) -> str:
        """The line, masked, and cut like any other output where its author repeats 600 kB of argument (N3)."""
        line = self._secrets.masked(line) if self._secrets else line  # first: a cut through a secret would show half
        room = max(min(self._truncation.room, DEFAULT_MAX_OUTPUT_LENGTH), LEAST_OF_A_LINE)
        if len(line) <= room:
            return line
        self._truncation.set_aside(line, room)
        return f"{line[:room]}…"
