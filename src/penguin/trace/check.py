"""What is wrong, unfinished or unknown in a trace file: the facts behind ``penguin trace check`` (T4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penguin.protocol.messages import (
    Abort,
    CompactionBegin,
    CompactionEnd,
    Message,
    RequestBegin,
    RequestEnd,
    SessionMeta,
    Text,
    ToolCall,
    ToolCallOutput,
    UnknownPayload,
)
from penguin.trace.reader import TraceReader, TraceWarning

TraceEnding = Literal["complete", "aborted", "request", "tool", "compaction", "compacted", "prompt", "torn"]
"""How a file ends, in the middle of what: see :attr:`TraceReport.ending`."""

_ENDINGS: dict[TraceEnding, str] = {
    "complete": "at rest, after a finished request",
    "aborted": "with an interruption by the user",
    "request": "inside a request to the model",
    "tool": "with calls that have no output",
    "compaction": "inside a compaction",
    "compacted": "with a finished compaction; the conversation goes on in the next file",
    "prompt": "with input that no request has taken yet",
    "torn": "in the middle of a record",
}


@dataclass(slots=True)
class TraceReport:
    """The result of :func:`check_trace`.

    Attributes:
        path: the file.
        session_id: from its ``session_meta``.
        records: how many were read.
        warnings: damaged lines that were skipped, and a torn last line.
        unknown: how often each payload type occurs that this version does not know.
        unclosed_requests: lines of a ``request_begin`` without a ``request_end``.
        calls_without_output: ids of committed calls nobody answered.
        orphan_outputs: lines of outputs that nobody waits for: no such call, or answered, or its request failed.
        ending: what the file breaks off in; ``complete`` and ``compacted`` are the orderly ones.
    """

    path: Path
    session_id: str = ""
    records: int = 0
    warnings: list[TraceWarning] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    unclosed_requests: list[int] = field(default_factory=list)
    calls_without_output: list[str] = field(default_factory=list)
    orphan_outputs: list[int] = field(default_factory=list)
    ending: TraceEnding = "complete"

    @property
    def damaged(self) -> bool:
        """Whether a record was lost; an interruption or an unknown type is no damage."""
        return bool(self.warnings)

    @property
    def ending_words(self) -> str:
        """How the file ends, in words: ``at rest, after a finished request`` and the like."""
        return _ENDINGS[self.ending]

    def lines(self) -> list[str]:
        """The report in words, a finding a line; the first line is a summary."""
        findings = [f"{self.path}: {self.records} records of {self.session_id}, ends {self.ending_words}"]
        findings += [f"damaged: {warning}" for warning in self.warnings]
        findings += [f"unknown type: {kind or 'unreadable'} ({count})" for kind, count in sorted(self.unknown.items())]
        findings += [f"request without an end: line {line}" for line in self.unclosed_requests]
        findings += [f"call without an output: {call}" for call in self.calls_without_output]
        findings += [f"output without a call: line {line}" for line in self.orphan_outputs]
        return findings


def check_trace(path: Path) -> TraceReport:
    """Read the whole file and report what stands out.

    Raises:
        TraceError: it is no readable trace at all; the text says why.

    Example::

        report = check_trace(path)
        sys.exit(1 if report.damaged else 0)
    """
    reader = TraceReader(path)
    check = _Check(TraceReport(path))
    for message in reader:
        check.observe(message, reader.line_number)
    check.finish(reader)
    return check.report


class _Check:
    """Follows requests, calls and compactions through one file, without judging what the model remembers."""

    def __init__(self, report: TraceReport) -> None:
        self.report = report
        self._request_line: int | None = None
        self._called: list[str] = []
        self._unanswered: dict[str, None] = {}
        self._last: Message | None = None
        self._compacting = False

    def observe(self, message: Message, line: int) -> None:
        self.report.records += 1
        match message.payload:
            case SessionMeta(session_id=session_id):
                self.report.session_id = self.report.session_id or session_id
            case UnknownPayload(type=kind):
                self.report.unknown[kind] += 1
                return
            case RequestBegin():
                self._close_request()
                self._request_line = line
            case RequestEnd(status=status):
                self._end_request(committed=status == "completed")
            case ToolCall(tool_call_id=call_id):
                self._called.append(call_id)
                self._unanswered[call_id] = None
            case ToolCallOutput(tool_call_id=call_id):
                self._answer(call_id, line)
            case CompactionBegin():
                self._compacting = True
            case CompactionEnd():
                self._compacting = False
            case _:
                pass
        self._last = message

    def finish(self, reader: TraceReader) -> None:
        self.report.warnings = [*reader.warnings, *([reader.torn] if reader.torn else [])]
        self.report.ending = "torn" if reader.torn else self._ending()
        self._close_request()
        self.report.calls_without_output = list(self._unanswered)

    def _close_request(self) -> None:
        if self._request_line is not None:
            self.report.unclosed_requests.append(self._request_line)
            self._end_request(committed=False)

    def _end_request(self, *, committed: bool) -> None:
        # A request that did not commit is no part of the history, so nobody owes its calls an output. One may still
        # come, when the tool was running as the request failed.
        if not committed:
            for call_id in self._called:
                self._unanswered.pop(call_id, None)
        self._called.clear()
        self._request_line = None

    def _answer(self, call_id: str, line: int) -> None:
        if call_id in self._unanswered:
            del self._unanswered[call_id]
        else:
            self.report.orphan_outputs.append(line)

    def _ending(self) -> TraceEnding:
        last = self._last.payload if self._last else None
        match last:
            case CompactionEnd(status="completed"):
                return "compacted"
            case Abort():
                return "aborted"
            case _ if self._compacting:
                return "compaction"
            case _ if self._request_line is not None:
                return "request"
            case _ if self._unanswered:
                return "tool"
            case ToolCallOutput() | Text(role="user"):
                return "prompt"
            case _:
                return "complete"
