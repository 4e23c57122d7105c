"""Which sessions a directory of traces holds, told from names and the heads of files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from msgspec import Struct

from penguin.protocol.errors import TraceError
from penguin.protocol.messages import SessionMeta, Text
from penguin.trace.names import created_at, day_of, index_of, is_session_id, session_of
from penguin.trace.reader import read_trace

_TITLE_LENGTH = 60
_HEAD = 100


class SessionSummary(Struct, frozen=True):
    """A session as a list shows it.

    ``files`` counts its model contexts. ``title`` is the first 60 characters of the first prompt.
    ``problem`` says why the trace cannot be read; then the fields from the trace are empty.
    """

    session_id: str
    created: datetime
    modified: datetime
    files: int
    workspace: str = ""
    provider: str = ""
    model_id: str = ""
    title: str = ""
    problem: str | None = None


def list_sessions(traces_dir: Path) -> Iterator[SessionSummary]:
    """Every session with a trace, the newest first; reads only the heads of files, and only as far as asked.

    Example::

        for summary in itertools.islice(list_sessions(traces_dir), 20):
            print(summary.created, summary.title)
    """
    for session_id, files in _sessions(traces_dir):
        yield _summary(session_id, files)


def latest_session(traces_dir: Path) -> str | None:
    """The session that was written to last; ``None`` when there is none.

    Example::

        session_id = latest_session(traces_dir)  # what `--continue` goes on with
    """
    newest = max(_sessions(traces_dir), key=lambda found: (max(map(_modified, found[1])), found[0]), default=None)
    return newest[0] if newest else None


def _sessions(traces_dir: Path) -> Iterator[tuple[str, list[Path]]]:
    """Ids and trace files, the newest session first."""
    days = [day for day in traces_dir.iterdir() if day.is_dir()] if traces_dir.is_dir() else []
    for day in sorted(days, reverse=True):
        yield from sorted(_sessions_of(day).items(), reverse=True)


def _sessions_of(day: Path) -> dict[str, list[Path]]:
    files: dict[str, list[tuple[int, Path]]] = {}
    for path in day.glob("session-*.jsonl"):
        session_id, index = session_of(path), index_of(path)
        # An id of another day was put here by hand: only its path finds it.
        if session_id and index is not None and is_session_id(session_id) and day_of(session_id) == day.name:
            files.setdefault(session_id, []).append((index, path))
    return {session_id: [path for _, path in sorted(found)] for session_id, found in files.items()}


def _summary(session_id: str, files: list[Path]) -> SessionSummary:
    times = (created_at(session_id), datetime.fromtimestamp(max(map(_modified, files)), UTC))
    try:
        meta, title = _head(files[0])
    except TraceError as error:
        return SessionSummary(session_id, *times, len(files), problem=str(error))
    return SessionSummary(session_id, *times, len(files), meta.workspace, meta.provider, meta.model_id, title)


def _head(path: Path) -> tuple[SessionMeta, str]:
    """The configuration and the title: reads as far as the first prompt."""
    meta = None
    for message in islice(read_trace(path), _HEAD):
        match message.payload:
            case SessionMeta() as first if meta is None:
                meta = first
            case Text(role="user", text=text) if meta is not None:
                return meta, " ".join(text[: 4 * _TITLE_LENGTH].split())[:_TITLE_LENGTH]
            case _:
                pass
    if meta is None:
        raise TraceError(f"{path}: it has no session_meta")
    return meta, ""


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed in this moment
        return 0.0
