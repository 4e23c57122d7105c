"""A new session from an old one's records: lines are copied, not rewritten (T13)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penguin.private import private_directory
from penguin.protocol.codec import encode
from penguin.protocol.errors import ResumeError
from penguin.protocol.messages import (
    UNSET,
    ApprovalDecision,
    Message,
    RequestEnd,
    SessionMeta,
    Subagent,
    Text,
    ToolCall,
    ToolCallOutput,
)
from penguin.trace.names import trace_path
from penguin.trace.reader import TraceReader


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What becomes different in the copy; ``None`` stays as it was.

    ``at_request`` counts committed requests of the last context from 1; the copy ends with that one
    and the answers to its calls. ``before`` is a place instead, as a context (from 1) and the number of its records
    that stay; nothing later is copied. ``scratchpads`` are the old and the new directory of local files.
    """

    session_id: str
    traces_dir: Path
    at_request: int | None = None
    before: tuple[int, int] | None = None
    provider: str | None = None
    model_id: str | None = None
    workspace: str | None = None
    scratchpads: tuple[Path, Path] | None = None
    drop_fidelity: bool = False


def fork_trace(files: Sequence[Path], plan: ForkPlan) -> list[Path]:
    """Copy a session's files under a new id; the source is untouched. Returns the new files.

    Raises:
        TraceError: a source file cannot be read.
        ResumeError: there is no such request.

    Example::

        fork_trace(files_of(traces, old), ForkPlan(new_session_id(), traces, at_request=3))
    """
    copies: list[Path] = []
    retained = files if plan.before is None else files[: plan.before[0]]
    try:
        for index, file in enumerate(retained, start=1):
            lines = _lines(file, plan, last=file is retained[-1])
            copies.append(_write(trace_path(plan.traces_dir, plan.session_id, index), lines))
    except BaseException:
        for copy in copies:
            copy.unlink(missing_ok=True)
        raise
    _copy_scratch(plan)
    return copies


def _lines(file: Path, plan: ForkPlan, *, last: bool) -> Iterator[bytes]:
    reader = TraceReader(file)
    records = iter(reader)
    if last and plan.at_request is not None:
        records = _until(reader, plan.at_request)
    elif last and plan.before is not None:
        records = _first(reader, plan.before[1])
    for message in records:
        line = _changed(message, reader.line, plan)
        yield _moved(line, plan) if _is_of_the_harness(message) else line


def _first(reader: TraceReader, count: int) -> Iterator[Message]:
    """The first records, counted as the ledger counts them: those of children are none of this session's."""
    seen = 0
    for message in reader:
        seen += not message.origin
        if seen > count:
            return
        yield message


def _until(reader: TraceReader, cut: int) -> Iterator[Message]:
    """The records up to the end of committed request ``cut`` and the answers to its calls."""
    committed, due = 0, set[str]()
    for message in reader:
        if committed == cut and not (_answers(message, due) or isinstance(message.payload, Subagent)):
            return
        yield message
        match message.payload:
            case RequestEnd(status="completed"):
                committed += 1
            case RequestEnd():
                due.clear()
            case ToolCall(tool_call_id=call_id):
                due.add(call_id)
            case _:
                pass
        if isinstance(message.payload, RequestEnd) and committed < cut:
            due.clear()
    if committed < cut:
        raise ResumeError(f"{reader.path}: it has {committed} committed requests, so it cannot be forked at {cut}")


def _answers(message: Message, due: set[str]) -> bool:
    match message.payload:
        case ToolCallOutput(tool_call_id=call_id) | ApprovalDecision(tool_call_id=call_id):
            return call_id in due
        case _:
            return False


def _changed(message: Message, line: bytes, plan: ForkPlan) -> bytes:
    """The stored line, unless the fork itself is about something in it."""
    payload = message.payload
    if isinstance(payload, SessionMeta):
        changes = {"provider": plan.provider, "model_id": plan.model_id, "workspace": plan.workspace}
        wanted = {"session_id": plan.session_id} | {name: value for name, value in changes.items() if value is not None}
        return _with_fields(line, wanted)
    if plan.drop_fidelity and getattr(payload, "fidelity", UNSET) is not UNSET:
        return encode(msgspec.structs.replace(message, payload=msgspec.structs.replace(payload, fidelity=UNSET)))
    return line


def _with_fields(line: bytes, wanted: dict[str, str]) -> bytes:
    """Change members of the payload and keep everything else, known or not, as it stands."""
    record = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    payload = msgspec.json.decode(record["payload"], type=dict[str, msgspec.Raw])
    payload |= {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in wanted.items()}
    record["payload"] = msgspec.Raw(msgspec.json.encode(payload))
    return msgspec.json.encode(record)


def _is_of_the_harness(message: Message) -> bool:
    """Whether a record may hold a marker of ours; what the model said, signed or not, stays as it said it."""
    return isinstance(message.payload, ToolCallOutput) or (
        isinstance(message.payload, Text) and message.payload.role == "user"
    )


def _moved(line: bytes, plan: ForkPlan) -> bytes:
    """Point markers and notes at the copies of the local files."""
    if plan.scratchpads is None:
        return line
    old, new = (msgspec.json.encode(str(path))[1:-1] for path in plan.scratchpads)
    return line.replace(old, new)


def _write(path: Path, lines: Iterator[bytes]) -> Path:
    private_directory(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _copy_scratch(plan: ForkPlan) -> None:
    if plan.scratchpads is not None and plan.scratchpads[0].is_dir():
        with contextlib.suppress(FileExistsError):
            shutil.copytree(*plan.scratchpads, symlinks=True)
